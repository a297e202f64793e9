"""Events of sharded steps: what computes when, and that none is kept for ever."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from hocket.runtime.sharding.computing_pieces import pieces_of
from hocket.runtime.sharding.shard_events import Cut, ShardEvents, StepEvents, Wait
from hocket.runtime.sharding.shard_report import _limits


class Work:
    """A collective that has ended."""

    def get_future(self) -> Future[None]:
        future: Future[None] = Future()
        future.set_result(None)
        return future


def test_what_ends_no_step_is_not_kept_for_ever() -> None:
    events = ShardEvents(clock=lambda: 0.0)
    work: Any = Work()
    for _ in range(50_001):
        events.started("gather", 0, 4, work)
    events.end_step()
    events.started("gather", 0, 4, work)
    events.end_step()
    (last,) = events.last
    assert len(last.transfers) == 1
    assert last.transfers[0].end_s == 0.0


def test_waits_are_in_no_piece_of_computing_and_each_piece_is_of_its_unit() -> None:
    cuts = [
        Cut("gathered", 0, 1.0, False),
        Cut("enter", 0, 1.0, False),
        Cut("enter", 1, 3.0, False),
        Cut("leave", 1, 4.0, False),
        Cut("leave", 0, 5.0, False),
        Cut("gathered", 1, 7.0, True),
        Cut("computed", 1, 9.0, True),
        Cut("computed", 0, 10.0, True),
        Cut("update", None, 11.0, False),
        Cut("updated", None, 12.0, False),
    ]
    waits = [Wait("gather", 0, 0.0, 1.0), Wait("gather", 1, 6.0, 7.0), Wait("reduce", 0, 10.0, 10.5)]
    pieces = pieces_of(StepEvents(0.0, 12.0, cuts, waits))
    told = [(p.phase, p.unit, p.completes, p.seconds) for p in pieces if p.seconds]
    assert told == [
        ("forward", 0, False, 2.0),
        ("forward", 1, False, 1.0),
        ("forward", 0, False, 1.0),
        ("backward", None, False, 1.0),
        ("backward", 1, True, 2.0),
        ("backward", 0, True, 1.0),
        ("update", None, False, 0.5),
        ("update", None, False, 1.0),
    ]


def test_a_kept_plan_that_was_made_for_another_step_is_said_to_be_so() -> None:
    events = ShardEvents(clock=iter(map(float, range(100))).__next__)
    for _ in range(3):
        events.cut("updated", None)
        events.end_step()
    assert len(_limits(events, None)) == len(_limits(events, 1.2)) == 1
    assert _limits(events, 30.0)[1].startswith(
        "the plan was made for a step that computes 3e+04 ms: HOCKET_FO"
    )
