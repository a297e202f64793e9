"""Updates that need no gradient, such as a moment's decay: part of the optimizer's step all the same."""

from __future__ import annotations

from typing import Literal

import pytest

from hocket.graph import OperationRow, Plan, Reduction, StepGraph
from hocket.graph.flat_plan import flatten
from hocket.network import MeasuredReduction, Network
from hocket.sim import simulate
from hocket.sim.evaluator import PlanEvaluator
from tests.strategies import operation, parameter, step

# Every gradient travels for 4 seconds.
NETWORK = Network(num_workers=2, reduction=MeasuredReduction(workers=2, a_s=0.0, b_s_per_byte=1.0))


def decayed(*more: OperationRow) -> StepGraph:
    """Two layers, of a second forward and backward each; updates decay for 2 seconds and add for 1."""
    rows = [
        operation("forward a", reads=["a"]),
        operation("forward b", inputs=["forward a"], reads=["b"]),
        operation("backward b", inputs=["forward b"], produces=["b"], phase="backward"),
        operation("backward a", inputs=["backward b"], produces=["a"], phase="backward"),
    ]
    for name in "ab":
        rows += [
            operation(f"decay {name}", 2.0, phase="update"),
            operation(
                f"apply {name}", inputs=[f"backward {name}", f"decay {name}"], reads=[name], phase="update"
            ),
        ]
    return step([parameter(name, 4) for name in "ab"], [*rows, *more])


def plan(window: Literal["backward", "forward"], *batches: tuple[str, ...]) -> Plan:
    return Plan(
        policy="by hand",
        model="toy",
        architecture="allreduce",
        reductions=tuple(Reduction(parameters=batch, window=window) for batch in batches),
        compute_order=None,
    )


@pytest.mark.parametrize(
    ("schedule", "more", "seconds"),
    [
        # DDP: the last of 8 seconds of transfers ends at 11, then 6 seconds of updates.
        (plan("backward", ("b",), ("a",)), [], 17.0),
        # So it is for what no update needs either, such as a count of steps.
        (plan("backward", ("b",), ("a",)), [operation("count", phase="update")], 18.0),
        # A bucket of its own: b's updates run in the 4 seconds in which a's gradient travels, a's after it.
        (plan("forward", ("b",), ("a",)), [], 14.0),
    ],
)
def test_no_update_of_a_parameter_runs_before_its_gradient_has_arrived(
    schedule: Plan, more: list[OperationRow], seconds: float
) -> None:
    graph = decayed(*more)
    assert simulate(graph, schedule, NETWORK, iterations=5).row.iteration_s == pytest.approx(seconds)
    evaluated_s = PlanEvaluator(graph, NETWORK, "allreduce").seconds(flatten(schedule, graph), steady=True)
    assert evaluated_s == pytest.approx(seconds)
