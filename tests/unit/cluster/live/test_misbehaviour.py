"""Who misbehaves disturbs nobody else, and what fails is said: nonsense, answers not taken, a full disk."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hocket.cli.cluster.live_options import NodeOptions
from hocket.cli.cluster.served_manager import open_nodes
from hocket.cluster.live.manager_address import Contact, ask_manager
from hocket.cluster.live.manager_messages import FromClient, ManagerAnswer, Submit
from hocket.cluster.live.runnable_jobs import attempt_token
from hocket.errors import HocketError
from hocket.launch.control import TransportError, reach
from hocket.launch.gate import (
    ATTEMPT_VARIABLE,
    FINGERPRINT_VARIABLE,
    GATE_VARIABLE,
    TOKEN_VARIABLE,
    ChunkRequest,
    Join,
    ToRank,
)
from hocket.launch.job import split_address
from tests.tokens import CREDENTIALS, FINGERPRINT, SECRET, TOKEN
from tests.unit.cluster.live.clusters import LIMIT_S, as_rank, live_job, running
from tests.unit.cluster.live.test_manager import events, noting

STUBBORN = """import signal, time
from hocket.launch import gate
gate._GRACE_S = 0.2
signal.signal(signal.SIGTERM, signal.SIG_IGN)
asking = gate.gate_of_environment(0)
time.sleep(60)"""


@pytest.mark.slow
def test_a_manager_that_cannot_write_says_so_and_the_next_one_goes_on(tmp_path: Path) -> None:
    with running(tmp_path, [noting("a", tmp_path, 1.0)], until_idle=False, keep=True) as cluster:
        cluster.until(lambda _: (tmp_path / "a.ran").exists())
        cluster.manager._database._connection.execute("pragma query_only = on")
        with pytest.raises(HocketError, match=r"database cannot be written: .*; jobs go on"):
            cluster.join()
    with running(tmp_path) as cluster:
        record = cluster.join()["a"]
    assert (record.state, record.attempt) == ("finished", 1)
    assert (tmp_path / "a.ran").read_text() == "0\n"


def test_a_rank_that_says_what_cannot_be_is_sent_away(tmp_path: Path) -> None:
    with running(tmp_path, [noting("a", tmp_path, 1.0)]) as cluster:
        cluster.until(lambda s: s.jobs[0].state == "running")
        rank = as_rank(cluster.manager.address, "1-1")
        rank.set_timeout(20.0)
        rank.send(Join(0))
        rank.send(ChunkRequest(1, 0, -5, 10))
        with pytest.raises(TransportError):
            rank.receive(ToRank)
        record = cluster.join()["a"]
    assert (record.state, record.attempt) == ("finished", 1)
    assert any("what came is no message of Hocket's" in what for _, _, what in events(tmp_path))


@pytest.mark.slow
def test_who_does_not_take_an_answer_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.cluster.live.manager_server._PATIENCE_S", 1.0)

    async def much(_: FromClient) -> ManagerAnswer:
        return ManagerAnswer(notes=("x" * (1 << 25),))

    with running(tmp_path, until_idle=False) as cluster:
        server = cluster.manager._server
        object.__setattr__(cluster.manager._backend, "serve", much)
        client = reach(cluster.manager.address, FINGERPRINT, 5.0)
        token = CREDENTIALS.without_key.text
        client.write(f"GET /v1/status HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
        assert client.read(5) == b"HTTP/"
        deadline = time.monotonic() + LIMIT_S
        while server._serving:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        client.close()
    assert any("does not take its answer" in what for _, _, what in events(tmp_path))


def test_a_rank_that_was_given_up_does_not_stay(tmp_path: Path) -> None:
    with running(tmp_path, until_idle=False) as cluster:
        told = {
            GATE_VARIABLE: cluster.manager.address,
            ATTEMPT_VARIABLE: "7-1",
            TOKEN_VARIABLE: attempt_token(SECRET, "7-1"),
            FINGERPRINT_VARIABLE: FINGERPRINT,
            "RANK": "0",
        }
        ran = subprocess.run([sys.executable, "-c", STUBBORN], env={**os.environ, **told}, timeout=50)
    assert ran.returncode == -signal.SIGKILL


def test_ranks_find_the_next_manager_where_the_last_one_was(tmp_path: Path) -> None:
    with running(tmp_path, until_idle=False) as cluster:
        address = cluster.manager.address
    with running(tmp_path, until_idle=False) as cluster:
        assert cluster.manager.address == address
    with socket.create_server(split_address(address)), running(tmp_path, until_idle=False) as cluster:
        assert cluster.manager.address != address  # somebody else is there


def test_a_request_that_is_too_long_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.cluster.live.manager_address.MOST_BYTES", 1000)
    contact = Contact(address="127.0.0.1:1", token=TOKEN)
    with pytest.raises(HocketError, match="a manager takes 1000: submit fewer jobs at once"):
        ask_manager(contact, Submit(tuple(live_job(f"j{k}") for k in range(10))))


def test_ranks_do_not_inherit_what_commands_have_to_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOCKET_CLUSTER_TOKEN", TOKEN)
    with open_nodes(tmp_path, NodeOptions(servers=1)):
        assert "HOCKET_CLUSTER_TOKEN" not in os.environ
