"""So many connections and no more: others are sent away, it is said once, and nobody else is disturbed."""

from __future__ import annotations

import contextlib
import socket
import time
from pathlib import Path

import pytest

from hocket.cluster.live.manager_address import Contact, ManagerLine
from hocket.cluster.live.manager_messages import AskStatus
from hocket.cluster.live.manager_server import _FILES
from hocket.errors import HocketError
from hocket.launch.capacity import Capacity
from hocket.launch.control import UNIX, Connection, TransportError
from hocket.launch.gate import Compute, Go, Join, ToRank
from hocket.launch.job import split_address
from tests.tokens import TOKEN
from tests.unit.cluster.live.clusters import LIMIT_S, Running, as_rank, running
from tests.unit.cluster.live.test_manager import events, noting

pytestmark = pytest.mark.slow


def until_answered(cluster: Running) -> None:
    deadline = time.monotonic() + LIMIT_S
    while True:
        with contextlib.suppress(HocketError):
            cluster.status()
            return
        assert time.monotonic() < deadline
        time.sleep(0.05)


def rank(address: str, k: int = 0) -> Connection:
    """One of the first attempt at the first job."""
    found = as_rank(address, "1-1", k)
    found.set_timeout(LIMIT_S)
    found.send(Join(0))
    return found


def staying(cluster: Running) -> ManagerLine:
    """A client that was answered and keeps its connection."""
    line = ManagerLine(Contact(address=cluster.manager.address, token=TOKEN))
    line.ask(AskStatus())
    return line


def said(folder: Path, what: str) -> int:
    return sum(what in line for _, _, line in events(folder))


def test_that_there_is_no_place_is_said_once_until_half_are_free() -> None:
    notes: list[str] = []
    places = Capacity(4, "guests", notes.append)
    assert [places.take() for _ in range(7)] == [True] * 4 + [False] * 3
    assert notes == ["there are 4 guests; others are sent away until some have gone"]
    places.leave()
    assert [places.take() for _ in range(2)] == [True, False]
    assert len(notes) == 1
    places.leave()
    places.leave()
    assert [places.take() for _ in range(3)] == [True, True, False]
    assert len(notes) == 2


def test_strangers_beyond_a_bound_are_sent_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.cluster.live.manager_server._MOST_STRANGERS", 8)
    monkeypatch.setattr("hocket.cluster.live.manager_server.HANDSHAKE_S", LIMIT_S)
    with running(tmp_path, [noting("a", tmp_path, 100.0)], until_idle=False) as cluster:
        cluster.until(lambda s: s.jobs[0].state == "running")
        host_and_port = split_address(cluster.manager.address)
        with contextlib.ExitStack() as stack:
            for _ in range(8):
                stack.enter_context(socket.create_connection(host_and_port, LIMIT_S))
            for _ in range(20):
                with socket.create_connection(host_and_port, LIMIT_S) as late:
                    assert late.recv(1) == b""
            with pytest.raises(HocketError, match="connection"):
                cluster.status()
            rank(f"{UNIX}{cluster.manager._socket}").close()  # this machine's come by another way
        until_answered(cluster)
    assert said(tmp_path, "there are 8 connections that have yet to say who they are") == 1
    assert said(tmp_path, "was refused") == 0


def test_commands_beyond_a_bound_are_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.cluster.live.manager_server._MOST_CLIENTS", 4)
    with running(tmp_path, until_idle=False) as cluster:
        idle = [staying(cluster) for _ in range(4)]
        for _ in range(3):
            with pytest.raises(HocketError, match="there are 4 commands that are being answered; others"):
                cluster.status()
        for each in idle:
            each.close()
        until_answered(cluster)
    assert said(tmp_path, "4 commands that are being answered") == 1


def test_a_rank_has_one_connection(tmp_path: Path) -> None:
    with running(tmp_path, [noting("a", tmp_path, 100.0)], until_idle=False) as cluster:
        cluster.until(lambda s: s.jobs[0].state == "running")
        first, second = rank(cluster.manager.address), rank(cluster.manager.address)
        with pytest.raises(TransportError, match="connection"):
            first.receive(ToRank)
        second.send(Compute(1, 0, 0))
        assert second.receive(ToRank) == Go(1)
        first.close()
        second.close()


def test_ranks_beyond_what_files_allow_are_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(tmp_path, [noting("a", tmp_path, 100.0, gpus=3)], until_idle=False) as cluster:
        cluster.until(lambda s: s.jobs[0].state == "running")
        server, address = cluster.manager._server, cluster.manager.address
        monkeypatch.setattr(server, "_rank_places", Capacity(2, _FILES, server._note))
        joined = [rank(address, k) for k in range(2)]
        for _ in range(3):
            with pytest.raises(TransportError, match="there are 2 ranks connected, as many as the files"):
                rank(address, 2)
        joined[0].close()
        deadline = time.monotonic() + LIMIT_S
        while True:
            with contextlib.suppress(TransportError):
                rank(address, 2).close()
                break
            assert time.monotonic() < deadline
        joined[1].close()
    assert said(tmp_path, "there are 2 ranks connected") >= 1


def test_where_few_files_may_be_open_there_are_fewer_places_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.cluster.live.manager.allow_ranks", lambda _: 45)
    with running(tmp_path, until_idle=False) as cluster:
        idle = [staying(cluster) for _ in range(3)]
        with pytest.raises(HocketError, match="there are 3 commands that are being answered"):
            cluster.status()
        for each in idle:
            each.close()
        until_answered(cluster)
