"""A replaying processor, on a clock that jumps, and what is said when nothing comes."""

from __future__ import annotations

import time

import pytest

from hocket.errors import HocketError
from hocket.graph import ParameterRow, Plan, Pull, Push, StepGraph
from hocket.launch import Rule, ServedJob
from hocket.launch.lost_peers import PeerLostError
from hocket.runtime.replay.replayed_processor import Mailbox, Processor, WallClock
from hocket.runtime.replay.servers import WorkersSide
from hocket.runtime.replay.worker import CompletedGradients, ReplayRounds, replay_with_servers
from tests import strategies
from tests.serving import served
from tests.tokens import TOKEN
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


def test_a_gradient_is_complete_with_the_last_of_its_makers_in_every_step() -> None:
    graph = strategies.step(
        [strategies.parameter("a", 4), strategies.parameter("b", 4)],
        [
            strategies.operation("first", produces=["a", "b"]),
            strategies.operation("nothing"),
            strategies.operation("second", produces=["a"]),
        ],
    )
    gradients = CompletedGradients(graph)
    for _ in range(2):
        assert [gradients.completed_by(op) for op in range(3)] == [[1], [], [0]]


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


def test_a_parameter_without_a_gradient_is_refused() -> None:
    graph = strategies.step([strategies.parameter("a", 4)], [strategies.operation("o", reads=["a"])])
    plan = Plan(policy="mine", model="toy", architecture="ps", compute_order=None)
    job = ServedJob(address="127.0.0.1:1", token=TOKEN, rule=Rule())
    with pytest.raises(HocketError, match="'a' has no gradient; servers hold what is trained"):
        replay_with_servers(graph, plan, job, ReplayRounds(steps=1), worker=0)


def test_a_sliced_parameter_has_come_with_its_last_slice() -> None:
    rows = [ParameterRow(name=name, shape=[60], dtype="float32", bytes=240) for name in ("a", "b")]
    graph = strategies.step(
        rows,
        [
            strategies.operation("f a", 0.001, reads=["a"]),
            strategies.operation("f b", 0.001, inputs=["f a"], reads=["b"]),
            strategies.operation("b b", 0.001, inputs=["f b"], produces=["b"], phase="backward"),
            strategies.operation("b a", 0.001, inputs=["b b"], produces=["a"], phase="backward"),
        ],
    )
    plan = Plan(
        policy="sliced",
        model="toy",
        architecture="ps",
        pulls=(Pull(parameters=("a",), priority=0, chunks=3), Pull(parameters=("b",), priority=1)),
        pushes=(Push(parameters=("b",), chunks=2), Push(parameters=("a",))),
        compute_order=None,
        barrier="parameter",
    )
    mailbox = Mailbox(WallClock(), 10.0)
    with (
        served(Rule(mode="async", barrier="parameter")) as job,
        WorkersSide(graph, plan, job.job, 0, mailbox, drawn_anew=False) as side,
    ):
        for _ in range(3):
            side.begin()
            came: list[int] = []
            while len(set(came)) < 2:
                came += [message for message, _ in side.take(wait=True)]
            assert sorted(came) == [0, 1]
            for parameter in (1, 0):
                side.push(parameter)
            side.end()
    assert job.statuses == [0]
    counts = job.servers[0].core.ledger.counts
    assert counts.applied == counts.received == 3 * 2


def test_what_does_not_come_is_said() -> None:
    mailbox = Mailbox(WallClock(), 0.05)
    assert mailbox.take(wait=False) == []
    with pytest.raises(HocketError, match=r"nothing arrived within 0.05 s"):
        mailbox.take(wait=True)
    assert mailbox.empty
    mailbox.deliver(4)
    assert not mailbox.empty
    ((message, moment_s),) = mailbox.take(wait=True)
    assert message == 4
    assert moment_s <= time.perf_counter()


@pytest.mark.parametrize(
    ("failure", "kind", "said"),
    [
        (
            RuntimeError("pair.cc:534] Connection closed by peer [10.77.0.1]:4711"),
            PeerLostError,
            "lost its connection to 10.77.0.1: Connection closed by peer",
        ),
        (RuntimeError("no memory"), HocketError, "nothing arrives any more: no memory"),
    ],
)
def test_where_nothing_comes_any_more_nobody_waits_for_it(
    failure: Exception, kind: type[HocketError], said: str
) -> None:
    mailbox = Mailbox(WallClock(), 3600.0)
    mailbox.deliver(4)
    mailbox.failure = lambda: failure
    assert len(mailbox.take(wait=True)) == 1
    with pytest.raises(kind) as raised:
        mailbox.take(wait=True)
    assert (type(raised.value), str(raised.value)) == (kind, said)


def test_sleeping_ends_at_the_deadline_or_at_once() -> None:
    clock = WallClock()
    begin_s = clock.now_s()
    clock.sleep_until(begin_s - 1)
    clock.sleep_until(begin_s + 0.02)
    assert clock.now_s() >= begin_s + 0.02
