"""A rank's signs go on whatever happens to a turn, and end quietly with the store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore

from hocket.runtime.observe import liveness as module
from hocket.runtime.observe import store_heartbeats
from hocket.runtime.observe.liveness import LivenessWatch, Sign

LONG_S = 20.0


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_EVERY_S", 0.02)


def tcp_store(port: int = 0) -> dist.TCPStore:
    """A server on a free port, or a client of the one at ``port``."""
    timeout = timedelta(seconds=LONG_S)
    return dist.TCPStore("127.0.0.1", port, 1, is_master=port == 0, timeout=timeout, wait_for_workers=False)


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def sign_of(store: Any) -> Sign:
    return msgspec.json.decode(PrefixStore("job", store).get("sign/0"), type=Sign)


def test_an_answer_that_fails_costs_one_answer_and_no_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    server = tcp_store()
    asked: list[None] = []

    def answer() -> bytes:
        asked.append(None)
        if len(asked) == 1:
            raise RuntimeError("deque mutated during iteration")
        return b"spans"

    watch = LivenessWatch(server, "job", 0, [0, 1], answer)
    other = PrefixStore("job", server)
    other.add("asked", 1)
    until(lambda: len(asked) == 1)
    before = sign_of(server).count
    until(lambda: sign_of(server).count > before + 2)
    # Who asked has gone on without it; the next question is another one.
    assert len(asked) == 1
    other.add("asked", 1)
    until(lambda: other.check(["answer/2/0"]))
    assert other.get("answer/2/0") == b"spans"
    monkeypatch.setattr(module, "PATIENCE_S", 0.05)
    monkeypatch.setattr(
        store_heartbeats, "_outliving_signs", []
    )  # rank 1, which was never there, is not seen off
    watch.stop(finished=True)
    assert sign_of(server).finished


class Moody:
    """A store of which a call fails, or does not return."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.failures: list[Exception] = []
        self.stuck, self.free = threading.Event(), threading.Event()
        self.free.set()

    def clone(self) -> Moody:
        return self

    def set(self, key: str, value: Any) -> None:
        if self.failures:
            raise self.failures.pop()
        self._store.set(key, value)

    def add(self, key: str, amount: int) -> int:
        if not self.free.is_set():
            self.stuck.set()
            assert self.free.wait(LONG_S)
        return int(self._store.add(key, amount))


@pytest.fixture
def moody(monkeypatch: pytest.MonkeyPatch) -> Moody:
    monkeypatch.setattr(module, "PrefixStore", lambda prefix, store: store)
    return Moody(dist.HashStore())


def count(moody: Moody) -> int:
    return msgspec.json.decode(moody._store.get("sign/0"), type=Sign).count


def test_a_call_that_fails_once_is_forgotten(moody: Moody) -> None:
    watch = LivenessWatch(moody, "job", 0, [0], lambda: b"")
    moody.failures.append(dist.DistStoreError("wait timeout after 5000ms"))
    until(lambda: not moody.failures)
    before = count(moody)
    until(lambda: count(moody) > before + 2)
    watch.stop(finished=False)


def test_a_store_that_does_not_answer_holds_up_nobody_who_stops(
    moody: Moody, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.05)
    watch = LivenessWatch(moody, "job", 0, [0], lambda: b"")
    moody.free.clear()
    assert moody.stuck.wait(LONG_S)
    watch.reply_at_end()
    watch.stop(finished=True)
    assert watch._thread.is_alive()  # within a call; it ends with it
    moody.free.set()
    watch._thread.join(LONG_S)
    assert not watch._thread.is_alive()


def test_a_store_that_has_gone_ends_the_signs_and_nobody_prints_at_the_end(
    capfd: pytest.CaptureFixture[str],
) -> None:
    server = tcp_store()
    watch = LivenessWatch(tcp_store(server.port), "job", 0, [0], lambda: b"")
    assert watch._thread.is_alive()
    del server
    watch._thread.join(LONG_S)
    assert not watch._thread.is_alive()
    told = capfd.readouterr().err
    assert told.count("Broken pipe") + told.count("Connection reset") <= 1  # torch tells of each call
    watch.reply_at_end()
    watch.stop(finished=True)
    assert capfd.readouterr().err == ""
