"""Of whom others wait for: who never comes, for sure, and who may."""

from __future__ import annotations

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
