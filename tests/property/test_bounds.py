"""No plan, however drawn, beats the bounds where steps overlap; the bounds hold the obvious ones."""

from __future__ import annotations

import math
from itertools import product
from statistics import fmean

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.graph import Plan, Pull, Reduction
from hocket.graph.clipped_step import clipped
from hocket.network import PATTERNS, MeasuredReduction, Network
from hocket.sim import simulate
from hocket.sim.bounds.lower_bound import lower_bound
from tests.strategies import (
    examples,
    networks,
    operation,
    parameter,
    partitions,
    plans,
    reduction_plans,
    step,
    steps,
)


@given(st.data())
@examples(200)
def test_no_plan_beats_the_period_with_a_barrier_per_parameter(data: st.DataObject) -> None:
    graph = data.draw(steps(samples=1))
    network = data.draw(networks(graph, parsing=data.draw(st.booleans())))
    plan = msgspec.structs.replace(data.draw(plans(graph)), barrier="parameter")
    row = simulate(graph, plan, network, iterations=36).row
    # The row's own bound is capped by what was simulated; this one is not. The first steps can be shorter.
    bound = lower_bound(graph, network, "ps", "parameter", lockstep=True)
    assert bound.shared <= fmean(row.iterations_s[12:]) + 1e-9
    assert row.bound_s >= row.compute_s - 1e-9


@given(st.data())
@examples(200)
def test_no_plan_beats_the_period_of_an_allreduce_step(data: st.DataObject) -> None:
    graph = data.draw(steps(samples=1, training=True))
    network = Network(
        bandwidth_bps=1000.0,
        num_workers=data.draw(st.integers(1, 4)),
        startup_s=data.draw(st.sampled_from([0.0, 0.5])),
        parse_s=data.draw(st.sampled_from([0.0, 0.25])),
        parse_s_per_byte=data.draw(st.sampled_from([0.0, 0.004])),
    )
    row = simulate(graph, data.draw(reduction_plans(graph)), network, iterations=12).row
    bound = lower_bound(graph, network, "allreduce", "step", lockstep=True)
    assert bound.shared <= row.iteration_s + 1e-9
    assert row.bound_s >= max(row.compute_s, row.communication_s) - 1e-9


@given(st.data())
@examples(300)
def test_no_plan_beats_the_period_of_a_clipped_step(data: st.DataObject) -> None:
    graph = data.draw(steps(samples=1, training=True))
    if data.draw(st.booleans()):
        graph = clipped(graph)
    network = Network(
        bandwidth_bps=1000.0,
        num_workers=data.draw(st.integers(1, 4)),
        startup_s=data.draw(st.sampled_from([0.0, 0.5])),
        parse_s=data.draw(st.sampled_from([0.0, 0.25])),
        parse_s_per_byte=data.draw(st.sampled_from([0.0, 0.004])),
        pattern=data.draw(st.sampled_from([None, *PATTERNS])),
    )
    halves = data.draw(st.booleans())
    plan = data.draw(reduction_plans(graph, halves=halves))
    row = simulate(graph, plan, network, iterations=12).row
    bound = lower_bound(graph, network, "allreduce", "step", lockstep=True, halves=halves)
    assert bound.shared <= row.iteration_s + 1e-9
    assert bound.shared >= lower_bound(graph, network, "allreduce", "step", True, True).shared - 1e-9


@given(st.data())
@examples(12)
def test_no_plan_there_is_for_a_tiny_clipped_step_beats_it(data: st.DataObject) -> None:
    graph = clipped(data.draw(steps(samples=1, training=True, max_parameters=3, max_operations=5)))
    network = Network(bandwidth_bps=1000.0, startup_s=data.draw(st.sampled_from([0.0, 0.25])), num_workers=2)
    trained = tuple(name for i, name in enumerate(graph.parameter_names) if graph.produced[i])
    least_s = {False: math.inf, True: math.inf}
    for batches in partitions(trained):
        for halves in product((False, True), repeat=len(batches)):
            for window in ("forward", "backward"):
                plan = Plan(
                    policy="drawn",
                    model="toy",
                    architecture="allreduce",
                    reductions=tuple(
                        Reduction(parameters=batch, window=window, halves=half)
                        for batch, half in zip(batches, halves, strict=True)
                    ),
                    compute_order=None,
                    issue="ready",
                )
                step_s = simulate(graph, plan, network, iterations=4).row.iteration_s
                least_s[any(halves)] = min(least_s[any(halves)], step_s)
    for may, found_s in least_s.items():
        bound = lower_bound(graph, network, "allreduce", "step", lockstep=True, halves=may)
        assert bound.shared <= found_s + 1e-9


@given(st.data())
@examples(150)
def test_nor_do_orders_that_every_worker_draws_for_itself(data: st.DataObject) -> None:
    graph = data.draw(steps(samples=1))
    network = data.draw(networks(graph, parsing=data.draw(st.booleans())))
    plan = msgspec.structs.replace(data.draw(plans(graph)), barrier="parameter")
    row = simulate(graph, plan, network, iterations=60, random_order=True).row
    bound = lower_bound(graph, network, "ps", "parameter", lockstep=False)
    # A limit of long runs: the edges of this one are worth a step at most.
    assert bound.shared * 59 / 60 <= row.iteration_s + 1e-9


def test_the_first_steps_can_be_shorter_than_the_period() -> None:
    graph = step(
        [parameter("p0", 375), parameter("p1", 500), parameter("p2", 375)],
        [operation("o0", 0.0), operation("o1", 2.0, reads=["p1"]), operation("o2", 0.0)],
    )
    network = Network(bandwidth_bps=1000.0, num_workers=3, num_servers=2, parse_s_per_byte=0.004)
    pulls = (Pull(parameters=("p0",), priority=0), Pull(parameters=("p1", "p2"), priority=1))
    plan = Plan(
        policy="drawn",
        model="toy",
        architecture="ps",
        pulls=pulls,
        compute_order=None,
        barrier="parameter",
    )
    lasted_s = simulate(graph, plan, network, iterations=12).row.iterations_s
    bound_s = lower_bound(graph, network, "ps", "parameter", lockstep=True).shared
    assert min(lasted_s) < bound_s == pytest.approx(18.0)
    assert lasted_s[2:] == pytest.approx([bound_s] * 10)


def test_a_long_operation_does_not_hide_where_forward_turns_into_backward() -> None:
    # The head's gradient is on its way for 12 s, from the end of its backward pass to its next forward pass.
    graph = step(
        [parameter("head", 1200)],
        [
            operation("forward stem", 0.1),
            operation("forward head", 1.0, reads=["head"], inputs=["forward stem"]),
            operation("backward head", 1.0, inputs=["forward head"], produces=["head"], phase="backward"),
            operation("backward stem", 10.0, inputs=["backward head"], phase="backward"),
        ],
    )
    network = Network(num_workers=2, reduction=MeasuredReduction(workers=2, a_s=0.0, b_s_per_byte=0.01))
    assert lower_bound(graph, network, "allreduce", "step", lockstep=True).shared == pytest.approx(14.0)
