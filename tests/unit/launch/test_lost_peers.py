"""Lost connections as gloo and the system tell of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hocket.launch.lost_peers import LOST_PEER, line_of, lost_connection


@pytest.mark.parametrize(
    ("failure", "line"),
    [
        (
            "[/gloo/transport/tcp/pair.cc:537] Read error [10.77.0.2]:686: Connection reset by peer. This is",
            "lost its connection to 10.77.0.2: Connection reset by peer",
        ),
        (
            "[pair.cc:534] Connection closed by peer [fd00::1]:1",
            "lost its connection to fd00::1: Connection closed by peer",
        ),
        ("writev: Broken pipe", "lost a connection: Broken pipe"),
        ("[buffer.cc:78] Timed out waiting 1800000ms for recv operation to complete", None),
        ("Application timeout caused pair closure", None),
    ],
)
def test_gloo_says_which_connection_was_lost(failure: str, line: str | None) -> None:
    assert lost_connection(failure) == line


def test_a_process_that_ends_with_a_lost_peer_says_so_and_others_end_as_ever() -> None:
    program = (
        "import sys\n"
        "from hocket.errors import HocketError\n"
        "from hocket.launch.lost_peers import PeerLostError, end_as_lost\n"
        "end_as_lost()\n"
        "raise {}('training stopped: rank 1 is gone')"
    )
    ended = [
        subprocess.run(
            [sys.executable, "-c", program.format(kind)], capture_output=True, text=True, timeout=60
        )
        for kind in ("PeerLostError", "HocketError")
    ]
    assert [each.returncode for each in ended] == [LOST_PEER, 1]
    assert [line_of(each.stderr) for each in ended] == [
        "lost a connection: training stopped: rank 1 is gone",
        None,
    ]
