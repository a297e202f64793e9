"""ByteScheduler's plans against the rules, and their order against what the next step reads."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hocket.graph import Reduction, StepGraph, check_plan
from hocket.network import MeasuredReduction, Network
from hocket.planner.bytescheduler import bytescheduler
from hocket.planner.worker_processor import step_operations
from hocket.sim import simulate
from tests.property.test_caramel import shared_steps
from tests.strategies import examples

EXAMPLES = examples(150)
# Seconds and bytes are whole numbers, and so is everything that is added up of them.
NETWORK = Network(num_workers=2, reduction=MeasuredReduction(workers=2, a_s=1.0, b_s_per_byte=1 / 125))


@given(shared_steps(), st.sampled_from([125, 250, 500, 4000]), st.booleans())
@EXAMPLES
def test_plans_keep_the_rules_and_run(graph: StepGraph, partition: int, ordered: bool) -> None:
    plan = bytescheduler(graph, NETWORK, partition, ordered=ordered)
    check_plan(plan, graph)
    assert plan.issue == "ready"
    sizes = dict(zip(graph.parameter_names, graph.parameter_bytes.tolist(), strict=True))
    for reduction in plan.reductions:
        assert reduction.window == "forward"
        share = 1.0 if reduction.slice is None else 1 / reduction.slice[2]
        assert sum(sizes[name] for name in reduction.parameters) * share <= max(1, partition)
    row = simulate(graph, plan, NETWORK, iterations=3).row
    assert row.iteration_s >= row.bound_s * (1 - 1e-9)


@given(shared_steps(), st.sampled_from([125, 250, 4000]))
@EXAMPLES
def test_what_is_read_first_is_listed_first(graph: StepGraph, partition: int) -> None:
    plan = bytescheduler(graph, NETWORK, partition)
    operations = step_operations(graph).tolist()
    names = graph.parameter_names

    def first_read(reduction: Reduction) -> int:
        wanted = {names.index(name) for name in reduction.parameters}
        reads = [k for k, i in enumerate(operations) if wanted & set(graph.reads.row(i).tolist())]
        return min(reads, default=len(operations))

    places = [first_read(reduction) for reduction in plan.reductions]
    assert places == sorted(places)
    for before, after in zip(plan.reductions, plan.reductions[1:], strict=False):
        if before.parameters == after.parameters:
            assert before.slice is not None
            assert after.slice is not None
            assert after.slice[0] == before.slice[1]
