"""How many files a manager opens, and how many its ranks may."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hocket.launch.rank_processes import Ranks

ASK = """import resource
from hocket.errors import HocketError
from hocket.launch.open_files import BEGAN_WITH, allow_ranks
print(BEGAN_WITH, allow_ranks(384), *resource.getrlimit(resource.RLIMIT_NOFILE))
try:
    allow_ranks(385)
except HocketError as error:
    print(error)"""


def test_a_manager_opens_as_many_files_as_it_may() -> None:
    limited = ["sh", "-c", 'ulimit -Sn 128; ulimit -Hn 512; exec "$@"', "sh", sys.executable, "-c", ASK]
    first, second = subprocess.run(
        limited, capture_output=True, text=True, timeout=60, check=True
    ).stdout.splitlines()
    assert first == "128 384 512 512"
    assert second == (
        "385 GPUs: each has a rank with a connection of its own, and of the 512 files that this process may "
        "open (ulimit -Hn) three quarters are for those; allow it 514, or give it fewer GPUs"
    )


def test_ranks_may_open_what_their_manager_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.launch.rank_processes.BEGAN_WITH", 77)
    ranks = Ranks(tmp_path, ())
    ranks.start("a", ["sh", "-c", "ulimit -Sn; ulimit -Hn"], {}, str(tmp_path))
    deadline = time.monotonic() + 40
    while ranks.conditions() == {"a": None}:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert ranks.output("a").split() == ["77", str(resource.getrlimit(resource.RLIMIT_NOFILE)[1])]
