"""Overlapping steps to be worked out by hand; one second is 125 bytes or one unit of duration."""

from __future__ import annotations

import msgspec
import pytest

from hocket.graph import Plan, Pull, Push, Reduction, StepGraph
from hocket.network import Network
from hocket.sim import simulate
from tests.naive.overlapping_steps import reduction_steps, server_steps
from tests.strategies import operation, parameter, step

# Two layers one after the other: forward a, b, then backward b, a, one second each.
CHAIN = [
    operation("fa", 1.0, reads=["a"]),
    operation("fb", 1.0, reads=["b"], inputs=["fa"]),
    operation("bb", 1.0, inputs=["fb"], produces=["b"], phase="backward"),
    operation("ba", 1.0, inputs=["bb"], produces=["a"], phase="backward"),
]


def reducing(*reductions: Reduction, compute_order: tuple[str, ...] | None = None) -> Plan:
    return Plan(
        policy="drawn",
        model="toy",
        architecture="allreduce",
        reductions=reductions,
        compute_order=compute_order,
    )


def serving(batches: list[tuple[str, ...]]) -> Plan:
    """Pulls the batches in order, and pushes what has a gradient as it becomes ready."""
    return Plan(
        policy="drawn",
        model="toy",
        architecture="ps",
        pulls=tuple(Pull(parameters=batch, priority=k) for k, batch in enumerate(batches)),
        pushes=tuple(Push(parameters=batch) for batch in batches),
        compute_order=None,
        barrier="parameter",
    )


def period(graph: StepGraph, plan: Plan, network: Network) -> float:
    """The steady time per step, as simulated and as the naive twin has it."""
    rows, steps = simulate(graph, plan, network, iterations=4).row, 12
    samples = [[0] * network.num_workers] * steps
    if plan.architecture == "ps":
        over = server_steps(graph, plan, network, samples, [0] * steps)
    else:
        over = reduction_steps(graph, plan, network, samples)
    assert rows.iterations_s == pytest.approx([over[-2] - over[-3]] * 4)
    return rows.iteration_s


# A ring of two workers sends every byte once: a takes 1 s, b 4 s.
PAIR = Network(bandwidth_bps=1000.0, num_workers=2)
LAYERS = step([parameter("a", 125), parameter("b", 500)], CHAIN)


def test_backward_windows_end_before_the_next_step_begins() -> None:
    # Operations 0-4; b is complete at 3 and reduced 3-7, a 7-8. The next step begins at 8.
    plan = reducing(Reduction(parameters=("b",)), Reduction(parameters=("a",)))
    assert period(LAYERS, plan, PAIR) == pytest.approx(8.0)
    # In one batch: complete at 4, reduced 4-9.
    assert period(LAYERS, reducing(Reduction(parameters=("b", "a"))), PAIR) == pytest.approx(9.0)


def test_the_barrier_waits_for_the_slower_of_listed_reductions() -> None:
    # Strictly a first: complete at 4 and reduced 4-5; b, complete at 3, has to wait and is reduced 5-9.
    plan = reducing(Reduction(parameters=("a",)), Reduction(parameters=("b",)))
    assert period(LAYERS, plan, PAIR) == pytest.approx(9.0)


def test_a_forward_window_reaches_into_the_next_step() -> None:
    # a (backward) is reduced 4-5, b (forward) 5-9. The next step begins at 5: fa 5-6, and fb waits for b
    # until 9, so fb 9-10, bb 10-11, ba 11-12. Then a 12-13, b 13-17, fb at 17: every 8 s, not 9 s as above.
    plan = reducing(Reduction(parameters=("a",)), Reduction(parameters=("b",), window="forward"))
    assert period(LAYERS, plan, PAIR) == pytest.approx(8.0)


def test_without_a_barrier_only_the_readers_wait() -> None:
    # b (forward) is reduced 3-5, a (forward) 5-6, while ba runs 3-4. fa of the next step waits for a until 6:
    # fa 6-7, fb 7-8, bb 8-9, b reduced 9-11, a 11-12: every 6 s.
    small = step([parameter("a", 125), parameter("b", 250)], CHAIN)
    forward = [Reduction(parameters=(name,), window="forward") for name in ("b", "a")]
    assert period(small, reducing(*forward), PAIR) == pytest.approx(6.0)
    # Where ba need not wait for bb, it can run first: fa 0-1, fb 1-2, ba 2-3, bb 3-4; a reduced 3-4, b 4-6.
    # Next fa 4-5 (a is there), fb 6-7, ba 7-8, bb 8-9; a reduced 8-9, b 9-11; fa 9-10, fb 11-12: every 5 s.
    free = step(
        [parameter("a", 125), parameter("b", 250)],
        [*CHAIN[:3], operation("ba", 1.0, inputs=["fb"], produces=["a"], phase="backward")],
    )
    plan = reducing(*reversed(forward), compute_order=("fa", "fb", "ba", "bb"))
    assert period(free, plan, PAIR) == pytest.approx(5.0)


def test_an_update_holds_up_the_reader_of_its_parameter() -> None:
    # The forward window above, with an update of b for 2 s: b arrives at 9, update 9-11, next fb 11-12,
    # bb 12-13, ba 13-14; a 14-15, b 15-19, update 19-21: every 10 s.
    graph = step(
        [parameter("a", 125), parameter("b", 500)],
        [*CHAIN, operation("ub", 2.0, inputs=["bb"], reads=["b"], phase="update")],
    )
    plan = reducing(Reduction(parameters=("a",)), Reduction(parameters=("b",), window="forward"))
    assert period(graph, plan, PAIR) == pytest.approx(10.0)


def test_a_gradients_buffer_is_free_when_its_reduction_is_over() -> None:
    # One operation of 1 s that produces the gradient of a (4 s on the wire) and reads nothing: its second run
    # has to wait for the first reduction, so 1-5 is reduced, 5-6 computed, 6-10 reduced: every 5 s.
    graph = step([parameter("a", 500)], [operation("ba", 1.0, produces=["a"], phase="backward")])
    plan = reducing(Reduction(parameters=("a",), window="forward"))
    assert period(graph, plan, PAIR) == pytest.approx(5.0)


# One worker, one server. Pull and push of a take 1 s, of b 2 s.
ALONE = Network(bandwidth_bps=1000.0)
SMALL = step([parameter("a", 125), parameter("b", 250)], CHAIN)


def test_with_a_barrier_per_parameter_what_is_updated_is_pulled_again() -> None:
    # Pull a 0-1, b 1-3; fa 1-2, fb 3-4, bb 4-5, ba 5-6; push b 5-7, a 7-8; pull b 7-9 beside the push of a,
    # then a 9-10. Next fa 10-11, fb 11-12, bb 12-13, ba 13-14: over at 6, 14, ..., every 8 s.
    assert period(SMALL, serving([("a",), ("b",)]), ALONE) == pytest.approx(8.0)
    # Together nothing overlaps: pull 0-3, compute 3-7, push 7-10: every 10 s.
    assert period(SMALL, serving([("a", "b")]), ALONE) == pytest.approx(10.0)


def test_with_a_barrier_per_parameter_the_first_listed_pull_overtakes() -> None:
    # Let bc end at 0. bb 0-1, ba 1-2; push c 0-4, a and b 4-6; pull c 4-8. At 8 both others are
    # updated. With a first: pull a 8-9, b 9-10; fa 9-10, fb 10-11, fc 11-12, bc 12-13: every 13 s. With b
    # first, though it is read later: pull b 8-9, a 9-10, fa 10-11, and all else a second later too.
    graph = step(
        [parameter("a", 125), parameter("b", 125), parameter("c", 500)],
        [
            operation("fa", 1.0, reads=["a"]),
            operation("fb", 1.0, reads=["b"], inputs=["fa"]),
            operation("fc", 1.0, reads=["c"], inputs=["fb"]),
            operation("bc", 1.0, inputs=["fc"], produces=["c"], phase="backward"),
            operation("bb", 1.0, inputs=["bc"], produces=["b"], phase="backward"),
            operation("ba", 1.0, inputs=["bb"], produces=["a"], phase="backward"),
        ],
    )
    assert period(graph, serving([("a",), ("b",), ("c",)]), ALONE) == pytest.approx(13.0)
    assert period(graph, serving([("b",), ("a",), ("c",)]), ALONE) == pytest.approx(14.0)


def test_what_the_next_step_pulls_goes_after_what_this_one_pulls() -> None:
    # Nobody reads a and nobody changes it, so the next step's pull of a can go at any time, but b (4 s) is of
    # the earlier step: pull a 0-1, b 1-5. Then o 5-6 and beside it the next a 5-6; the next step begins at 6,
    # with b 6-10 (o has read the old one), o 10-11 beside the next a: over at 6, 11, ..., every 5 s.
    graph = step([parameter("a", 125), parameter("b", 500)], [operation("o", 1.0, reads=["b"])])
    plan = msgspec.structs.replace(serving([("a",), ("b",)]), pushes=())
    assert period(graph, plan, ALONE) == pytest.approx(5.0)


def test_an_update_goes_before_the_next_steps_operations_however_many_there_are() -> None:
    # One parameter and many operations that need nothing: the update that is ready at 3 runs at 3.
    loads = [operation(f"load {i}", 0.25) for i in range(20)]
    graph = step(
        [parameter("w", 125)],
        [
            *loads,
            operation("forward", 1.0, reads=["w"], inputs=[row.name for row in loads]),
            operation("backward", 1.0, inputs=["forward"], produces=["w"], phase="backward"),
            operation("update", 1.0, inputs=["backward"], reads=["w"], phase="update"),
        ],
    )
    plan = Plan(
        policy="toy",
        model="toy",
        architecture="allreduce",
        reductions=(Reduction(parameters=("w",), window="forward"),),
        compute_order=None,
    )
    result = simulate(graph, plan, Network(num_workers=2), iterations=1, timeline=True)
    assert result.timeline is not None
    first = [span for span in result.timeline.spans if span.lane == 0][:2]
    # The step is shown from the end of the one before: a reduction of no length, then its update.
    assert [span.name for span in first] == ["update", "load 0"] or first[0].name == "load 0"
    update = next(span for span in result.timeline.spans if span.name == "update")
    assert update.start_s < 0.26
