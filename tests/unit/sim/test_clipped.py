"""Steps that clip by norm, whole and in halves, beside arithmetic by hand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from hocket.graph import Plan, Reduction, StepGraph
from hocket.graph.clipped_step import clipped, norm_operations
from hocket.network import MeasuredReduction, Network, half_costs, halves_s, number_s, reduction_s
from hocket.planner import plan
from hocket.sim import simulate
from hocket.sim.bounds.lower_bound import lower_bound
from tests.strategies import operation, parameter, step

LAYERS = 60
SECOND = 1000  # bytes that an all-reduce between two takes a second for


def network(total_s: float) -> Network:
    """A network on which all gradients of :func:`layers` take that long, and a startup nothing."""
    rate = total_s / (LAYERS * SECOND)
    return Network(num_workers=2, reduction=MeasuredReduction(workers=2, a_s=0.0, b_s_per_byte=rate))


def layers() -> StepGraph:
    """Sixty layers that compute for three seconds in all, one of them forward."""
    names = [f"layer {i}" for i in range(LAYERS)]
    rows = [operation(f"forward {name}", 1 / LAYERS, reads=[name]) for name in names]
    rows += [
        operation(f"backward {name}", 2 / LAYERS, produces=[name], phase="backward")
        for name in reversed(names)
    ]
    for before, row in pairwise(rows):
        row.inputs.append(before.name)
    return step([parameter(name, SECOND) for name in names], rows)


def halved(graph: StepGraph, whole: Sequence[int] = ()) -> Plan:
    """Every gradient alone, the first read first, and those of some layers ``whole``."""
    return Plan(
        policy="halves",
        model="toy",
        architecture="allreduce",
        reductions=tuple(
            Reduction(parameters=(name,), window="forward", halves=i not in whole)
            for i, name in enumerate(graph.parameter_names)
        ),
        compute_order=None,
        issue="ready",
    )


TIMES = [(1.5, 3.0, 3.0), (3.0, 4.0, 3.5), (6.0, 7.0, 6.0)]


@pytest.mark.parametrize(("total_s", "ddp_s", "halved_s"), TIMES)
def test_halves_move_half_of_the_bytes_into_the_forward_pass(
    total_s: float, ddp_s: float, halved_s: float
) -> None:
    # Computing C takes 3 s, transfers N: C/3 + max(2C/3, N) whole; max(2C/3, N/2) + max(C/3, N/2) in halves.
    graph, net = clipped(layers()), network(total_s)
    assert simulate(graph, plan(graph, net, "wfbp"), net).row.iteration_s == pytest.approx(ddp_s, rel=0.03)
    assert simulate(graph, halved(graph), net).row.iteration_s == pytest.approx(halved_s, rel=0.03)


def test_what_is_whole_beside_the_backward_pass_need_not_be_gathered_beside_the_forward_pass() -> None:
    # N = C: half of all bytes leave the network free for a sixth of the step beside the backward pass.
    graph, net = clipped(layers()), network(3.0)
    row = simulate(graph, halved(graph, range(0, LAYERS, 3)), net).row
    assert row.iteration_s == pytest.approx(3.0, rel=0.05)
    assert row.bound_s == pytest.approx(3.0, rel=0.02)


@pytest.mark.parametrize(("total_s", "least_s"), [(1.5, 3.0), (3.0, 4.0), (6.0, 7.0)])
def test_the_bound_of_whole_reductions_knows_the_norm(total_s: float, least_s: float) -> None:
    graph, net = clipped(layers()), network(total_s)
    bound = lower_bound(graph, net, "allreduce", "step", True)
    assert bound.shared == pytest.approx(least_s, rel=0.03)
    unclipped = lower_bound(layers(), net, "allreduce", "step", True)
    assert unclipped.shared == pytest.approx(max(3.0, total_s), rel=0.03)


def test_a_clipped_step_has_one_norm_and_is_clipped_once() -> None:
    graph = clipped(layers())
    (norm,) = norm_operations(graph).tolist()
    assert graph.operation_names[norm] == "clip by norm"
    assert graph.durations_s[norm:].sum() == 0.0
    assert clipped(graph) is graph
    assert graph.num_operations == 2 * LAYERS + 1 + LAYERS
    forward_only = step([parameter("a", 1)], [operation("f", reads=["a"])])
    assert clipped(forward_only) is forward_only


def test_updates_that_there_are_wait_for_the_norm() -> None:
    graph = clipped(
        step(
            [parameter("a", 1), parameter("b", 1)],
            [
                operation("make", produces=["a", "b"], phase="backward"),
                operation("clip by norm", inputs=["make"], reads=["a"], phase="update"),
            ],
        )
    )
    assert graph.operation_names[2:] == ("clip by norm*", "step of b")
    assert 2 in graph.inputs.row(1)


def test_halves_together_take_as_long_as_the_whole() -> None:
    net = Network(bandwidth_bps=8e6, num_workers=4, startup_s=0.5, parse_s=0.25, pattern="ring")
    assert sum(halves_s(net, 1e6)) == pytest.approx(reduction_s(net, 1e6))
    assert halves_s(net, 1e6)[0] == pytest.approx(3 * 0.75 + 0.75)
    assert number_s(net) == 1.5
    assert number_s(Network(num_workers=1, startup_s=1.0)) == 0.0
    tree = Network(bandwidth_bps=8e6, num_workers=4, pattern="tree")
    assert halves_s(tree, 1e6) == pytest.approx((0.75, 0.75))  # a ring's
    measured = Network(num_workers=4, reduction=MeasuredReduction(workers=3, a_s=2.0, b_s_per_byte=1e-6))
    assert number_s(measured) == 1.0
    assert len(half_costs(measured)) == 1
