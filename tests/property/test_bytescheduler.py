"""ByteScheduler's static order against a naive simulation of its queue, and its plans against the rules."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hocket.graph import Reduction, StepGraph, check_plan
from hocket.network import MeasuredReduction, Network
from hocket.planner import bytescheduler as planner
from hocket.planner.bytescheduler import bytescheduler
from hocket.planner.processor import step_operations
from hocket.sim import simulate
from tests.naive import bytescheduler as naive
from tests.property.test_caramel import shared_steps
from tests.strategies import examples

EXAMPLES = examples(150)
# Seconds and bytes are whole numbers, and so is everything that is added up of them.
NETWORK = Network(num_workers=2, reduction=MeasuredReduction(workers=2, a_s=1.0, b_s_per_byte=1 / 125))


@given(shared_steps(), st.sampled_from([125, 250, 500, 4000]))
@EXAMPLES
def test_the_order_is_the_queues(graph: StepGraph, partition: int) -> None:
    operations = step_operations(graph)
    pieces = planner._pieces(graph, NETWORK, operations, partition)
    alike = [(set(piece.gradients), piece.cost_s) for piece in pieces]
    expected = naive.order(graph, operations.tolist(), alike, planner._update_seconds(graph))
    rhythm = planner._rhythm(graph, operations.tolist(), pieces)
    assert [(each.piece, each.ready_s, each.start_s) for each in rhythm] == expected
    lanes = planner._lanes(rhythm)
    assert list(lanes) == [k for k, _, _ in expected]
    for place, (k, ready_s, start_s) in enumerate(expected):
        overtakes = any(other < ready_s for _, other, _ in expected[place + 1 :])
        prompt = start_s - ready_s < 0.05 * (expected[-1][2] - expected[0][2])
        assert lanes[k] == int(overtakes and prompt)


@given(shared_steps(), st.sampled_from([125, 250, 1000]), st.sampled_from([0, 500, 4000]), st.booleans())
@EXAMPLES
def test_plans_keep_the_rules_and_run(graph: StepGraph, partition: int, most: int, ordered: bool) -> None:
    plan = bytescheduler(graph, NETWORK, partition, most_bytes=most, ordered=ordered)
    check_plan(plan, graph)
    sizes = dict(zip(graph.parameter_names, graph.parameter_bytes.tolist(), strict=True))
    for reduction in plan.reductions:
        share = _share(reduction)
        assert sum(sizes[name] for name in reduction.parameters) * share <= max(1, partition, most)
    row = simulate(graph, plan, NETWORK, iterations=3).row
    assert row.iteration_s >= row.bound_s * (1 - 1e-9)


def _share(reduction: Reduction) -> float:
    """How much of its parameters a reduction is."""
    if reduction.slice is None:
        return 1.0
    first, end, count = reduction.slice
    return (end - first) / count


@given(shared_steps(), st.sampled_from([125, 250]), st.sampled_from([300, 4000]))
@EXAMPLES
def test_slices_together_keep_their_order(graph: StepGraph, partition: int, most: int) -> None:
    apart = bytescheduler(graph, NETWORK, partition)
    together = bytescheduler(graph, NETWORK, partition, most_bytes=most)
    assert len(together.reductions) <= len(apart.reductions)
    counts = {r.parameters: r.slice[2] for r in apart.reductions if r.slice is not None}
    taken = [
        (reduction.parameters, k)
        for reduction in together.reductions
        for k in range(*(reduction.slice or (0, counts.get(reduction.parameters, 1), 0))[:2])
    ]
    assert taken == [(r.parameters, 0 if r.slice is None else r.slice[0]) for r in apart.reductions]
