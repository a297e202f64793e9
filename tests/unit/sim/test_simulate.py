"""Steps small enough to be worked out by hand; one second is 125 bytes or one unit of duration."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import msgspec
import pytest

from hocket.errors import HocketError
from hocket.graph import Plan, StepGraph
from hocket.network import Network
from hocket.network.topology import Topology
from hocket.planner import plan
from hocket.sim import Result, simulate
from hocket.sim.steady import step_times
from hocket.sim.step_runs import StepRuns, lower
from tests.strategies import operation, parameter, step


def network(workers: int = 1, servers: int = 1, startup_s: float = 0.0) -> Network:
    return Network(bandwidth_bps=1000.0, startup_s=startup_s, num_workers=workers, num_servers=servers)


def run(graph: StepGraph, net: Network, schedule: Plan | None = None, **options: object) -> Result:
    return simulate(graph, schedule or plan(graph, net, "fifo"), net, **{"iterations": 1, **options})  # type: ignore[arg-type]


def steps_of(
    net: Network, *, speeds: Sequence[float] | None = None, topology: Topology | None = None
) -> StepRuns:
    lowered = lower(TRAINING, plan(TRAINING, net, "fifo"), net)
    return StepRuns(lowered, 0, False, speeds=speeds, topology=topology)


TRAINING = step(
    [parameter("a", 125), parameter("b", 250)],
    [
        operation("fa", 1.0, reads=["a"]),
        operation("fb", 1.0, reads=["b"], inputs=["fa"]),
        operation("bb", 2.0, inputs=["fb"], produces=["b"], phase="backward"),
        operation("ba", 2.0, inputs=["bb"], produces=["a"], phase="backward"),
        operation("ub", 0.5, inputs=["bb"], reads=["b"], phase="update"),
        operation("ua", 0.5, inputs=["ba"], reads=["a"], phase="update"),
    ],
    batch_size=10,
)


def test_a_training_step_on_one_worker() -> None:
    # Pull a 0-1, b 1-3; fa 1-2, fb 3-4; bb 4-6, push b 6-8, ub 8-8.5; ba 6-8, push a 8-9, ua 9-9.5.
    row = run(TRAINING, network()).row
    assert row.iteration_s == pytest.approx(9.5)
    assert row.compute_s == 6.0
    assert row.communication_s == pytest.approx(6.0)
    assert row.overlap == pytest.approx(2.5 / 6)
    assert row.utilization == pytest.approx(6 / 9.5)
    assert row.throughput == pytest.approx(10 / 9.5)
    assert row.straggler_fraction == 0.0
    assert row.bound_s == pytest.approx(9.5)


def test_workers_share_the_server_and_updates_wait_for_all_of_them() -> None:
    # Pulls take twice as long: a 0-2, b 2-6; fb 6-7, bb 7-9, ba 9-11; push b 9-13, a 13-15; ua 15-15.5.
    row = run(TRAINING, network(workers=2)).row
    assert row.iteration_s == pytest.approx(15.5)
    assert row.communication_s == pytest.approx(12.0)
    assert row.throughput == pytest.approx(20 / 15.5)


def test_two_servers_send_at_once() -> None:
    # a (server 0) and b (server 1) share the worker's interface: a has 1 s of bytes, done at 2; b at 3.
    row = run(TRAINING, network(servers=2)).row
    # fa 2-3, fb 3-4, bb 4-6, ba 6-8; push b 6-8 alone, push a 8-9; ua 9-9.5.
    assert row.iteration_s == pytest.approx(9.5)


def test_startup_delays_each_transfer_but_leaves_the_interface_free() -> None:
    graph = step([parameter("a", 125), parameter("b", 125)], [operation("o", 1.0, reads=["a", "b"])])
    assert run(graph, network(startup_s=0.5)).row.iteration_s == pytest.approx(4.0)
    # With two workers every second of bytes takes two, every startup still half a second.
    assert run(graph, network(workers=2, startup_s=0.5)).row.iteration_s == pytest.approx(6.0)


def test_a_batch_arrives_as_a_whole() -> None:
    graph = step(
        [parameter("a", 125), parameter("b", 125)],
        [operation("oa", 1.0, reads=["a"]), operation("ob", 1.0, reads=["b"])],
    )
    batched = msgspec.json.decode(
        b'{"format":"hocket.plan/1","policy":"one","model":"toy","architecture":"ps","pushes":[],'
        b'"pulls":[{"parameters":["a","b"],"priority":0}],"compute_order":null}',
        type=Plan,
    )
    assert run(graph, network(), batched).row.iteration_s == pytest.approx(4.0)
    assert run(graph, network()).row.iteration_s == pytest.approx(3.0)


def test_a_strict_compute_order_waits_where_any_ready_does_not() -> None:
    graph = step(
        [parameter("late", 250), parameter("soon", 125)],
        [operation("first", 1.0, reads=["late"]), operation("second", 1.0, reads=["soon"])],
    )
    free = plan(graph, network(), "reverse")  # soon 0-1, late 1-3
    strict = msgspec.structs.replace(free, compute_order=("first", "second"))
    assert run(graph, network(), free).row.iteration_s == pytest.approx(4.0)
    assert run(graph, network(), strict).row.iteration_s == pytest.approx(5.0)


def test_different_measured_steps_make_stragglers() -> None:
    graph = step([parameter("a", 125)], [operation("o", [1.0, 3.0], reads=["a"])])
    row = run(graph, network(workers=2), iterations=400, seed=3).row
    # Pull 0-2, then 1 or 3 s: 3 in all only when both are quick, 5 otherwise; half the steps wait 2 of 5.
    assert row.iteration_s == pytest.approx(0.25 * 3 + 0.75 * 5, abs=0.15)
    assert row.iteration_p95_s == 5.0
    assert row.straggler_fraction == pytest.approx(0.5 * 2 / 5, abs=0.04)
    assert set(row.iterations_s) == {3.0, 5.0}


def test_random_orders_are_drawn_anew_for_each_step() -> None:
    graph = step(
        [parameter(name, 125) for name in "abcd"],
        [
            operation(name, 2.0, reads=[name], inputs=inputs)
            for name, inputs in zip("abcd", ("", "a", "b", "c"), strict=True)
        ],
    )
    net = network()
    schedule = plan(graph, net, "random")
    assert len(set(run(graph, net, schedule, iterations=50).row.iterations_s)) == 1
    drawn = run(graph, net, schedule, iterations=50, random_order=True).row
    assert set(drawn.iterations_s) == {9.0, 10.0, 11.0, 12.0}


@pytest.mark.parametrize(
    ("sizes", "workers", "startup_s", "seed"),
    [
        ([1000, 1000, 1000, 960], 5, 0.01, 80),
        ([50, 0, 0, 1, 50, 50, 50], 4, 0.01, 135),
        ([1000, 706, 50, 1, 1000], 6, 0.1, 210),
    ],
)
def test_a_worker_that_has_its_pulls_before_others_pushes_beside_theirs(
    sizes: list[int], workers: int, startup_s: float, seed: int
) -> None:
    # All pulls and then all pushes one after the other are no bound then.
    names = [f"p{i}" for i in range(len(sizes))]
    graph = step(
        [parameter(name, size) for name, size in zip(names, sizes, strict=True)],
        [
            operation("f", 0.0, reads=names),
            operation("b", 0.0, inputs=["f"], produces=names, phase="backward"),
        ],
    )
    net = Network(bandwidth_bps=8000.0, startup_s=startup_s, num_workers=workers)
    schedule = plan(graph, net, "random", seed=seed)
    row = run(graph, net, schedule, iterations=3, random_order=True, seed=seed).row
    assert row.bound_s <= row.iteration_s
    assert row.bound_s >= (workers + 1) * sum(sizes) / 1000
    together = run(graph, net, schedule, iterations=3, seed=seed).row
    assert together.bound_s >= 2 * workers * sum(sizes) / 1000


def test_an_update_that_the_step_waits_for_stays_on_the_worker() -> None:
    graph = step(
        [parameter("a", 125)],
        [
            operation("scale", 1.0, phase="update"),
            operation("f", 1.0, reads=["a"], inputs=["scale"]),
        ],
    )
    row = run(graph, network(workers=2)).row
    assert row.compute_s == 2.0
    assert row.iteration_s == pytest.approx(3.0)


@pytest.mark.parametrize("duration_s", [0.0, 1.0])
def test_a_step_whose_parameters_have_no_byte_is_refused(duration_s: float) -> None:
    with pytest.raises(HocketError, match="have no byte, so nothing is sent"):
        run(step([parameter("p", 0)], [operation("o", duration_s, reads=["p"])]), network())


def test_messages_are_parsed_by_workers_before_their_first_reader_and_by_servers() -> None:
    # 1 s a message and 1 s for each 125 bytes, so a costs 2 s and b 3 s to parse.
    net = dataclasses.replace(network(), parse_s=1.0, parse_s_per_byte=1 / 125)
    result = run(TRAINING, net, timeline=True)
    assert result.timeline is not None
    lanes = [lane.name for lane in result.timeline.lanes]
    when = {
        (lanes[span.lane], span.kind, span.name): (span.start_s, span.end_s) for span in result.timeline.spans
    }
    # Pull a 0-1, parse 1-3, fa 3-4; pull b 1-3, parse 4-7; fb 7-8, bb 8-10, ba 10-12.
    assert when["compute", "parse", "a"] == (1, 3)
    assert when["compute", "forward", "fa"] == (3, 4)
    assert when["compute", "parse", "b"] == (4, 7)
    assert when["compute", "backward", "ba"] == (10, 12)
    # Push b 10-12, parsed 12-15; push a 12-13, parsed 15-17; ua 17-17.5.
    assert when["parse at server", "parse", "b"] == (12, 15)
    assert when["parse at server", "parse", "a"] == (15, 17)
    assert result.row.iteration_s == 17.5
    assert result.row.compute_s == 6.0
    assert result.row.communication_s == 6.0
    assert result.row.events == 6 + 4 + 4
    by_bytes = run(TRAINING, dataclasses.replace(net, parse_s=0.0)).row
    assert by_bytes.bound_s == pytest.approx(by_bytes.iteration_s)


def test_a_message_that_nobody_reads_is_parsed_when_nothing_else_waits() -> None:
    graph = step(
        [parameter("unread", 0), parameter("a", 125)],
        [operation("first", 3.0), operation("second", 1.0, reads=["a"], inputs=["first"])],
    )
    net = dataclasses.replace(network(), parse_s=1.0)
    # first 0-3, a 0-1 in the meantime, parsed 3-4; second 4-5; unread 5-6.
    assert run(graph, net).row.iteration_s == 6.0
    strict = msgspec.structs.replace(plan(graph, net, "fifo"), compute_order=("first", "second"))
    assert run(graph, net, strict).row.iteration_s == 6.0


def test_workers_do_not_wait_for_each_others_parsing_at_a_server() -> None:
    graph = step(
        [parameter("a", 1)],
        [
            operation("f", 1.0, reads=["a"]),
            operation("b", 1.0, inputs=["f"], produces=["a"], phase="backward"),
        ],
    )
    for workers in (1, 4):
        net = dataclasses.replace(network(workers=workers), parse_s=2.0)
        # Parsed 0-2, f 2-3, b 3-4, parsed at the server 4-6; a byte travels for 8 ms a worker, each way.
        assert run(graph, net).row.iteration_s == pytest.approx(6.0 + 2 * 0.008 * workers)


def test_a_slow_worker_and_a_slow_interface() -> None:
    net = network(workers=2)
    # One worker at half speed: pulls until 6; fb 6-8, bb 8-12, ba 12-16; push a 16-17; ua 17-17.5.
    seconds, events = step_times(steps_of(net, speeds=[1.0, 0.5]), 2)
    assert seconds.tolist() == [17.5, 17.5]
    assert events == 2 * (2 * 4 + 2 + 2 * 4)
    # A server interface twice as fast: pull a 0-1, b 1-3, as if alone; then as one worker, but for two.
    fast = Topology(worker_bps=(1000.0, 1000.0), server_bps=(2000.0,))
    assert step_times(steps_of(net, topology=fast), 1)[0].tolist() == [9.5]
    # One worker's interface at half speed, which leaves what it cannot take: b ends at 3 and at 6.
    uneven = Topology(worker_bps=(1000.0, 500.0), server_bps=(2000.0,))
    # fb 6-7, bb 7-9, ba 9-11; push b 9-13, a 13-15; ua 15-15.5.
    assert step_times(steps_of(net, topology=uneven), 1)[0].tolist() == [15.5]


def test_step_times_of_machines_that_do_not_fit() -> None:
    with pytest.raises(HocketError, match="0 iterations are no run"):
        step_times(steps_of(network()), 0)
    for machines, message in (
        ({"speeds": [1.0]}, "1 speeds for 2 workers"),
        ({"speeds": [1.0, 0.0]}, "speed 0.0 is not positive"),
        ({"topology": Topology.flat(network())}, "a topology of 1 workers and 1 servers for 2 and 1"),
    ):
        with pytest.raises(HocketError, match=message):
            steps_of(network(workers=2), **machines)  # type: ignore[arg-type]


def test_what_cannot_be_simulated() -> None:
    with pytest.raises(HocketError, match="0 iterations cannot be averaged"):
        run(TRAINING, network(), iterations=0)
    with pytest.raises(HocketError, match="3 servers cannot share 2 parameters"):
        run(TRAINING, network(servers=3), plan(TRAINING, network(), "fifo"))
    reducing = Plan(policy="ddp", model="toy", architecture="allreduce", compute_order=None)
    with pytest.raises(HocketError, match="missing"):
        run(TRAINING, network(), reducing)


def test_what_only_the_other_architecture_has_is_refused() -> None:
    reducing = plan(TRAINING, network(workers=2), "ddp")
    cut = dataclasses.replace(network(workers=2), window_bytes=100.0)
    with pytest.raises(HocketError, match="a window of 100 B is for transfers of parameter servers"):
        run(TRAINING, cut, reducing)
    off = dataclasses.replace(cut, window_bytes=0.0)
    assert run(TRAINING, off, reducing).row.iteration_s == run(TRAINING, network(2), reducing).row.iteration_s
    ring = dataclasses.replace(network(), pattern="ring")
    with pytest.raises(HocketError, match="pattern 'ring' is one of all-reduce"):
        run(TRAINING, ring, plan(TRAINING, network(), "fifo"))


def test_lanes_are_named_after_who_and_what() -> None:
    result = run(TRAINING, network(workers=2, servers=2), timeline=True)
    assert result.timeline is not None
    lanes = [f"{lane.process}/{lane.name}" for lane in result.timeline.lanes]
    assert lanes[:5] == [
        "worker 0/compute",
        "worker 0/pull, server 0",
        "worker 0/pull, server 1",
        "worker 0/push, server 0",
        "worker 0/push, server 1",
    ]
    assert lanes[-2:] == ["server 0/compute", "server 1/compute"]
    assert {span.kind for span in result.timeline.spans} == {"forward", "backward", "update", "pull", "push"}


LARGE_FIRST = step(
    [parameter("large", 500), parameter("small", 125)],
    [operation("fs", 1.0, reads=["small"]), operation("fl", 1.0, reads=["large"], inputs=["fs"])],
)


@pytest.mark.parametrize(
    ("window_bytes", "startup_s", "seconds"),
    [
        # Whole: large 0-4, small 4-5, fs 5-6, fl 6-7.
        (None, 0.0, 7.0),
        (0.0, 0.0, 7.0),
        (500.0, 0.0, 7.0),
        # Two seconds each: large 0-2, small 2-3, large 3-5; fs 3-4, fl 5-6.
        (250.0, 0.0, 6.0),
        # One startup each: large 0.5-2.5, small 3-4, large 4-6; fs 4-5, fl 6-7.
        (250.0, 0.5, 7.0),
    ],
)
def test_a_window_lets_others_in_once(window_bytes: float | None, startup_s: float, seconds: float) -> None:
    net = dataclasses.replace(network(startup_s=startup_s), window_bytes=window_bytes)
    assert run(LARGE_FIRST, net).row.iteration_s == pytest.approx(seconds)


def test_a_timeline_shows_both_turns_of_a_transfer() -> None:
    shown = run(LARGE_FIRST, dataclasses.replace(network(), window_bytes=250.0), timeline=True).timeline
    assert shown is not None
    pulls = [(span.name, span.start_s, span.end_s) for span in shown.spans if span.kind == "pull"]
    assert pulls == [("large", 0.0, 2.0), ("small", 2.0, 3.0), ("large", 3.0, 5.0)]


def test_a_window_takes_first_what_came_first() -> None:
    # Pull a 0-1, b 1-3; fa 1-2, fb 3-4, bb 4-6, ba 6-8. The plan has a's push first, b's is there first:
    # without a window b goes 6-8 and a 8-9; so they do with one, and where b is cut at 7, a is not there yet.
    # Where ba takes half a second, a comes at 6.5 and goes at 7 in the midst of b.
    made = plan(TRAINING, network(), "fifo")
    made = msgspec.structs.replace(made, pushes=made.pushes[::-1], issue="ready")
    quick = dataclasses.replace(
        TRAINING, durations_s=TRAINING.durations_s * [[1.0], [1.0], [1.0], [0.25], [1.0], [1.0]]
    )
    cut = dataclasses.replace(network(), window_bytes=125.0)
    shown = run(quick, cut, made, timeline=True).timeline
    assert shown is not None
    pushes = [(span.name, span.start_s, span.end_s) for span in shown.spans if span.kind == "push"]
    assert pushes == [("b", 6.0, 7.0), ("a", 7.0, 8.0), ("b", 8.0, 9.0)]
    assert run(TRAINING, cut, made).row.iteration_s == run(TRAINING, network(), made).row.iteration_s
