"""ByteScheduler's static order against a naive simulation of its queue, and its plans against the rules."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hocket.graph import StepGraph, check_plan
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
    assert planner._rhythm(graph, operations.tolist(), pieces) == expected


@given(shared_steps(), st.sampled_from([125, 250, 1000]), st.booleans(), st.data())
@EXAMPLES
def test_plans_keep_the_rules_and_run(graph: StepGraph, partition: int, ordered: bool, data: Any) -> None:
    plan = bytescheduler(graph, NETWORK, partition, ordered=ordered)
    check_plan(plan, graph)
    sizes = dict(zip(graph.parameter_names, graph.parameter_bytes.tolist(), strict=True))
    for reduction in plan.reductions:
        count = 1 if reduction.slice is None else reduction.slice[1]
        assert sum(sizes[name] for name in reduction.parameters) / count <= max(1, partition)
    row = simulate(graph, plan, NETWORK, iterations=3).row
    assert row.iteration_s >= row.bound_s * (1 - 1e-9)
