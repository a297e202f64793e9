"""Of whom others wait for: who never comes, for sure, and who may."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest
import torch
import torch.distributed as dist

from hocket.runtime.observe import lost_ranks
from hocket.runtime.observe.lost_ranks import IdleTimes, ScriptCollective, Sign, collective_of, lost_for_good

NEEDED = 36  # half steps: eighteen steps


def behind(**said: Any) -> Sign:
    return Sign(count=9, steps=17, **said)


@pytest.mark.parametrize(
    ("sign", "why"),
    [
        (behind(), None),
        (behind(stepping=True), None),
        (behind(finished=True), "is done"),
        (behind(over="has ended its process group"), "has ended its process group"),
        (Sign(count=9, steps=18, finished=True), None),
    ],
)
def test_a_rank_is_lost_only_where_it_is_behind_and_says_so(sign: Sign, why: str | None) -> None:
    assert lost_for_good({1: sign}, NEEDED) == (None if why is None else (1, why))


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(("ahead", "ranks", "lost"), [(1, (0,), True), (0, (0,), False), (1, (1, 2), False)])
def test_a_collective_counts_where_this_rank_has_not_come_to_it(
    ahead: int, ranks: tuple[int, ...], lost: bool
) -> None:
    world: Any = dist.group.WORLD
    number = world._get_sequence_number_for_group() + ahead
    inside = ScriptCollective("barrier", world.group_name, number, ranks)
    found = lost_for_good({1: behind(inside=inside)}, NEEDED)
    assert (found is not None) is lost


@pytest.mark.usefixtures("alone")
def test_a_thread_in_a_collective_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    entered, leave = threading.Event(), threading.Event()

    class Slow:
        def wait(self) -> None:
            entered.set()
            leave.wait(20)

    world: Any = dist.group.WORLD
    before = world._get_sequence_number_for_group()
    monkeypatch.setattr(dist.ProcessGroup, "allreduce", lambda *_: Slow())
    thread = threading.Thread(target=dist.all_reduce, args=[torch.ones(1)])
    thread.start()
    try:
        assert entered.wait(20)
        assert thread.ident is not None
        assert collective_of(thread.ident) == ScriptCollective("all_reduce", world.group_name, before, (0,))
    finally:
        leave.set()
        thread.join(20)
    assert collective_of(threading.get_ident()) is None


_BESIDE_FINALIZERS = """
import faulthandler, gc, threading
from hocket.runtime.observe.lost_ranks import collective_of

class Cyclic:
    def __init__(self):
        self.itself = self

    def __del__(self):
        threading.Thread(target=int).start()

faulthandler.dump_traceback_later(60, exit=True)
for _ in range(50):
    leave, threads = threading.Event(), [threading.Thread(target=lambda: leave.wait(60)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        Cyclic()
    gc.set_threshold(20)
    collective_of(threads[0].ident)
    gc.set_threshold(700)
    leave.set()
    for thread in threads:
        thread.join()
"""

_BESIDE_FOREIGN_THREADS = """
import ctypes, threading, time
from hocket.runtime.observe.lost_ranks import collective_of

libc, kind = ctypes.CDLL(None), ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
call, end_s = kind(lambda _: None), time.monotonic() + 20

def come_and_go():
    while time.monotonic() < end_s:
        threads = [ctypes.c_ulong() for _ in range(8)]
        for thread in threads:
            libc.pthread_create(ctypes.byref(thread), None, call, None)
        for thread in threads:
            libc.pthread_join(thread, None)

for _ in range(2):
    threading.Thread(target=come_and_go).start()
while time.monotonic() < end_s:
    collective_of(threading.get_ident())
"""


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(_BESIDE_FINALIZERS, id="finalizers that start threads"),
        pytest.param(_BESIDE_FOREIGN_THREADS, id="threads that are not Python's", marks=pytest.mark.slow),
    ],
)
def test_a_thread_is_looked_at_beside(script: str) -> None:
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_idle_ranks_have_called_no_model_for_some_time() -> None:
    times = IdleTimes()
    assert times.longer_than(10.0, {1: behind(passes=17), 2: behind(passes=17)}, 0.0) == []
    assert times.longer_than(10.0, {1: behind(passes=17), 2: behind(passes=18)}, 8.0) == []
    assert times.longer_than(10.0, {1: behind(passes=17), 2: behind(passes=18)}, 12.0) == [1]
    assert times.longer_than(10.0, {1: behind(passes=17), 2: behind(passes=18)}, 18.0) == [1, 2]
    times.forget()
    assert times.longer_than(10.0, {1: behind(passes=17)}, 20.0) == []


@pytest.mark.usefixtures("alone")
def test_a_process_without_a_group_is_over() -> None:
    assert lost_ranks.end_of_training() == ""
    store = dist.HashStore()
    dist.destroy_process_group()
    try:
        assert lost_ranks.end_of_training() == "has ended its process group"
    finally:
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
