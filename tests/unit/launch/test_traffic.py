"""A replayed job's ring: it waits for its own, and not for ever."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from hocket.launch.lost_peers import PeerLostError
from hocket.launch.traffic import Leader, Ring
from hocket.ports import free_port
from tests.tokens import CREDENTIALS


def test_strangers_do_not_hold_up_a_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.launch.traffic._MEET_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as unused:
        here = unused.getsockname()
    ended = threading.Event()

    def knock() -> None:
        while not ended.wait(0.01):  # slowly enough for all of them to be heard
            with contextlib.suppress(OSError), socket.create_connection(here, 1.0):
                pass

    strangers = threading.Thread(target=knock)
    strangers.start()
    try:
        with pytest.raises(PeerLostError):
            Ring([Leader(f"127.0.0.1:{here[1]}", "a"), Leader("127.0.0.1:1", "b")], 0, CREDENTIALS)
    finally:
        ended.set()
        strangers.join()


@contextlib.contextmanager
def ring() -> Iterator[tuple[Ring, Ring]]:
    """Two leaders of a ring on this machine."""
    leaders = [Leader(f"127.0.0.1:{free_port('127.0.0.1')}", f"rank {k} on node{k}") for k in range(2)]
    with ThreadPoolExecutor() as threads:
        made = [threads.submit(Ring, leaders, k, CREDENTIALS) for k in range(2)]
        yield made[0].result(60), made[1].result(60)


def failure(of: Future[None]) -> str:
    with pytest.raises(PeerLostError) as raised:
        of.result(60)
    return str(raised.value)


def test_a_leader_that_loses_its_connection_says_with_whom() -> None:
    with ring() as (first, second), ThreadPoolExecutor() as threads:
        waiting = threads.submit(second.reduce, 1000)
        first._previous.shutdown(socket.SHUT_RDWR)
        first._next.shutdown(socket.SHUT_RDWR)
        assert failure(waiting) == "lost its connection to rank 0 on node0: it was closed"
        said = failure(threads.submit(first.reduce, 1000))
        assert said.startswith("lost its connection to rank 1 on node1: ")


def test_a_leader_that_can_send_no_more_does_not_wait_to_have_sent() -> None:
    with ring() as (first, _), ThreadPoolExecutor() as threads:
        first._next.shutdown(socket.SHUT_RDWR)
        assert "Broken pipe" in failure(threads.submit(first.reduce, 1000))


def test_a_leader_that_nobody_meets_says_whom_it_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.launch.traffic._MEET_S", 0.2)
    leaders = [Leader(f"127.0.0.1:{free_port('127.0.0.1')}", f"rank {k} on node{k}") for k in range(2)]
    with pytest.raises(PeerLostError, match=r"^lost rank 1 on node1: it has not come within 0.2 s$"):
        Ring(leaders, 0, CREDENTIALS)
