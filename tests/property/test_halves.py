"""Plans for steps that clip: every planner's can run, and what they cut in halves is worth it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hocket.graph import StepGraph, check_plan
from hocket.graph.clipped_step import clipped
from hocket.network import Network
from hocket.planner import plan, policies_of
from hocket.planner.halves import choose_halves, halved_times
from hocket.planner.worker_processor import serial_times, step_operations
from hocket.sim import simulate
from hocket.tuner import tune
from tests.strategies import examples, steps


@st.composite
def clipping(draw: st.DrawFn) -> tuple[StepGraph, Network]:
    graph = clipped(draw(steps(samples=1, training=True, max_parameters=5)))
    network = Network(
        bandwidth_bps=1000.0,
        num_workers=draw(st.integers(1, 4)),
        startup_s=draw(st.sampled_from([0.0, 0.25])),
        parse_s_per_byte=draw(st.sampled_from([0.0, 0.004])),
    )
    return graph, network


@given(clipping())
@examples(60)
def test_every_policy_plans_a_clipped_step(case: tuple[StepGraph, Network]) -> None:
    graph, network = case
    for policy in policies_of("allreduce"):
        made = plan(graph, network, policy, halves=True)
        check_plan(made, graph)
        row = simulate(graph, made, network, iterations=2).row
        assert row.bound_s <= row.iteration_s * (1 + 1e-9)
        if policy not in ("caramel", "bytescheduler"):
            assert made == plan(graph, network, policy)


@given(clipping())
@examples(60)
def test_what_is_cut_in_halves_delays_a_step_no_more_than_all_whole(case: tuple[StepGraph, Network]) -> None:
    graph, network = case
    times = serial_times(graph, step_operations(graph))
    batches = [[g] for g in np.flatnonzero(graph.produced).tolist()]
    sizes = [float(graph.parameter_bytes[g]) for (g,) in batches]
    known = halved_times(graph, network, times, batches, sizes, [1] * len(batches))
    chosen = choose_halves(known)
    least_s = min(known.delay_s(np.full(len(batches), halves)) for halves in (False, True))
    assert known.delay_s(chosen) <= least_s + 0.01 * known.compute_s + 1e-9


@given(clipping())
@examples(6)
def test_a_tuned_step_is_no_slower_than_any_policy(case: tuple[StepGraph, Network]) -> None:
    graph, network = case
    found = tune(graph, network, clip=True, budget_s=0.05, iterations=3)
    check_plan(found.plan, graph)
    assert found.best.iteration_s <= min(row.iteration_s for row in found.ranked)
    assert found.unclipped is None  # the graph clips itself
    assert all(row.bound_s <= row.iteration_s * (1 + 1e-9) for row in found.ranked)
