"""What travels in a replay, in which order, and what is said when it does not come."""

from __future__ import annotations

import time

import pytest

from hocket.errors import HocketError
from hocket.graph import Plan, Pull, Push, StepGraph
from hocket.runtime.replay.messages import Traffic, traffic_of
from hocket.runtime.replay.processor import Mailbox, Processor, WallClock
from hocket.runtime.replay.servers import Outbox
from hocket.runtime.replay.worker import Pushes
from tests import strategies
from tests.unit.runtime.jumping_clock import JumpingClock, Timetable

SIZES = {"a": 100, "b": 300, "c": 200}


def graph_of(durations_s: float = 1.0) -> StepGraph:
    """Forward a, b, c; backward c, b, a."""
    names, before, operations = list(SIZES), "", []
    for name in names:
        inputs = [before] if before else []
        operations.append(strategies.operation(f"f {name}", durations_s, inputs=inputs, reads=[name]))
        before = f"f {name}"
    for name in reversed(names):
        operations.append(
            strategies.operation(
                f"b {name}", durations_s, inputs=[before], reads=[name], produces=[name], phase="backward"
            )
        )
        before = f"b {name}"
    return strategies.step([strategies.parameter(*each) for each in SIZES.items()], operations)


def plan_of(*pulls: tuple[str, ...], **changes: object) -> Plan:
    return Plan(
        policy="mine",
        model="toy",
        architecture="ps",
        pulls=tuple(Pull(parameters=names, priority=k) for k, names in enumerate(pulls)),
        pushes=(Push(parameters=("c", "b")), Push(parameters=("a",))),
        compute_order=None,
        **changes,  # type: ignore[arg-type]
    )


def traffic(servers: int = 1, drawn_anew: bool = False) -> Traffic:
    return traffic_of(plan_of(("a", "b"), ("c",)), graph_of(), servers, drawn_anew=drawn_anew, seed=3)


def test_transfers_are_cut_by_where_parameters_live() -> None:
    # a to server 0, b to 1, c to 0, which has fewer bytes.
    found = traffic(servers=2)
    assert [(m.place, m.server, m.parameters, m.size_bytes) for m in found.pulls] == [
        (0, 0, (0,), 100),
        (0, 1, (1,), 300),
        (1, 0, (2,), 200),
    ]
    assert [(m.place, m.server, m.parameters, m.size_bytes) for m in found.pushes] == [
        (0, 0, (2,), 200),
        (0, 1, (1,), 300),
        (1, 0, (0,), 100),
    ]


def test_a_drawn_order_keeps_parts_of_a_transfer_together_and_changes() -> None:
    assert traffic(servers=2).pull_order(1, 5) == [0, 1, 2]
    drawn = traffic(servers=2, drawn_anew=True)
    orders = {tuple(drawn.pull_order(worker, step)) for worker in range(3) for step in range(20)}
    assert orders == {(0, 1, 2), (2, 0, 1)}
    assert drawn.pull_order(2, 7) == traffic(servers=2, drawn_anew=True).pull_order(2, 7)


def test_slices_and_barriers_per_parameter_are_refused() -> None:
    sliced = Plan(
        policy="p3",
        model="toy",
        architecture="ps",
        pulls=(Pull(parameters=("a",), priority=0, chunks=2),),
        compute_order=None,
    )
    for plan in (sliced, plan_of(("a", "b", "c"), barrier="parameter")):
        with pytest.raises(HocketError, match="slices or a barrier per parameter, which are not replayed"):
            traffic_of(plan, graph_of(), 1, drawn_anew=False, seed=0)


def test_a_push_is_ready_with_the_last_gradient_of_its_transfer() -> None:
    pushes = Pushes(graph_of(), traffic(servers=2))
    for _ in range(2):
        pushes.begin()
        assert [pushes.complete(op) for op in range(6)] == [[], [], [], [], [0, 1], [2]]


def test_what_leaves_next() -> None:
    found = traffic(servers=2)
    ready, listed = (
        Outbox(Traffic(pulls=found.pulls, pushes=found.pushes, listed=listed, drawn_anew=False, seed=0), 0)
        for listed in (False, True)
    )
    for outbox in (ready, listed):
        outbox.begin()
        outbox.put(2)
    assert ready.take() == 2
    for outbox in (ready, listed):
        outbox.put(0)
    assert ready.take() == 0
    assert [listed.take(), listed.take()] == [0, 2]
    for outbox in (ready, listed):
        outbox.close()
        assert outbox.take() is None


def test_a_processor_waits_for_what_it_reads_and_catches_up() -> None:
    graph, clock = graph_of(), JumpingClock()
    ends: dict[int, float] = {}
    processor = Processor(
        graph,
        clock,
        rank=graph.order,
        strict=False,
        needs=[[0], [1], [2], [2], [1], [0]],
        num_messages=4,
    )
    # b's parameter comes while nothing else could run; nobody needs the last message, which ends the step.
    timetable = Timetable(clock, [(0, 0.5), (1, 3.0), (2, 3.5), (3, 20.0)])
    end_s = processor.run(
        graph.durations_s[:, 0], 0.25, timetable, lambda op: ends.setdefault(op, clock.now_s())
    )
    assert ends == {3: 6.0, 4: 7.0, 5: 8.0}
    assert (end_s, clock.now_s()) == (8.0, 20.0)


def test_what_does_not_come_or_failed_is_said() -> None:
    mailbox = Mailbox(WallClock(), 0.05)
    assert mailbox.take(wait=False) == []
    with pytest.raises(HocketError, match=r"nothing arrived within 0.05 s"):
        mailbox.take(wait=True)
    mailbox.came(4)
    ((message, moment_s),) = mailbox.take(wait=True)
    assert message == 4
    assert moment_s <= time.perf_counter()
    mailbox.fail(RuntimeError("closed"))
    with pytest.raises(HocketError, match="a transfer failed: closed"):
        mailbox.take(wait=False)


def test_sleeping_ends_at_the_deadline_or_at_once() -> None:
    clock = WallClock()
    begin_s = clock.now_s()
    clock.sleep_until(begin_s - 1)
    clock.sleep_until(begin_s + 0.02)
    assert clock.now_s() >= begin_s + 0.02
