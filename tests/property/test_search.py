"""The search beside the simulator that judges for it, and beside what it starts from."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.graph import Plan, check_plan
from hocket.graph.clipped_step import clipped
from hocket.graph.flat_plan import flatten, plan_of
from hocket.network import Network
from hocket.planner.search import Mutations, SearchEnd, climb
from hocket.planner.search_starts import starts
from hocket.sim import simulate
from hocket.sim.evaluator import STEPS, PlanEvaluator
from hocket.sim.lowering.slices import slice_step
from hocket.sim.step_runs import StepRuns, lower
from tests.strategies import examples, networks, plans, reduction_plans, steps

pytestmark = pytest.mark.slow


@st.composite
def cases(draw: st.DrawFn) -> tuple[object, Network, Plan]:
    """A step whose workers all repeat one measurement, a network, and a plan with a free compute order."""
    graph = draw(steps(samples=1))
    network = draw(networks(graph, parsing=draw(st.booleans())))
    if draw(st.booleans()):
        network = replace(network, window_bytes=None)  # which reductions have none of
        graph = clipped(graph) if draw(st.booleans()) else graph
        plan = draw(reduction_plans(graph, halves=True))
    else:
        plan = draw(plans(graph))
        plan = msgspec.structs.replace(plan, barrier=draw(st.sampled_from(["step", "parameter"])))
    return graph, network, msgspec.structs.replace(plan, compute_order=None)


@given(cases())
@examples(150)
def test_the_judge_says_what_the_simulator_says(case) -> None:  # type: ignore[no-untyped-def]
    graph, network, plan = case
    judge = PlanEvaluator(graph, network, plan.architecture, plan.barrier)
    flat = flatten(plan, graph)
    num_steps = STEPS[plan.barrier if plan.architecture == "ps" else "allreduce"][True]
    # The same steps from a start at rest: what has not settled in them is the same in both.
    run = StepRuns(lower(graph, plan, network), seed=0, random_order=False)
    run._simulate(0, num_steps)
    if plan.barrier == "step" and plan.architecture == "ps":
        expected_s = run.end.max(initial=0.0)
    else:
        done_s = run.done_times_s().max(axis=1)[: num_steps - 1 if plan.architecture == "ps" else num_steps]
        half = len(done_s) // 2
        expected_s = (done_s[-1] - done_s[-1 - half]) / half
    assert judge.seconds(flat, steady=True) == pytest.approx(expected_s, abs=1e-9)


@given(cases())
@examples(200)
def test_a_plan_becomes_arrays_and_a_plan_again(case) -> None:  # type: ignore[no-untyped-def]
    graph, _, plan = case
    again = plan_of(flatten(plan, graph), graph, plan.policy)
    if plan.architecture == "ps":
        assert [p.parameters for p in again.pulls] == [p.parameters for p in plan.pulls]
        assert again.pushes == plan.pushes
        assert (again.issue == "listed") == (plan.issue == "listed")
    else:
        assert again.reductions == plan.reductions
        assert (again.issue == "ready") == (plan.issue == "ready")
    assert again.barrier == plan.barrier
    check_plan(again, graph)


@given(st.data())
@examples(150)
def test_every_neighbour_is_a_plan_that_runs(data: st.DataObject) -> None:
    graph, network, plan = data.draw(cases())
    chunks = np.ones(graph.num_parameters, np.int64)
    if plan.barrier == "parameter":
        chunks = np.array([data.draw(st.integers(1, max(1, min(3, size)))) for size in graph.parameter_bytes])
    judge = PlanEvaluator(graph, network, plan.architecture, plan.barrier, chunks, data.draw(st.booleans()))
    flat = starts(graph, network, [plan], chunks)[0]
    mutate = Mutations(graph, network, judge, flat, np.random.default_rng(data.draw(st.integers(0, 9))))
    for _ in range(12):
        flat = mutate(flat)
        check_plan(plan_of(flat, graph, "neighbour"), graph)
    assert sorted(flat.rank.tolist()) == list(range(graph.num_operations))
    found = judge.plan(flat, "neighbour")
    check_plan(found, graph)
    if plan.architecture == "ps":
        cut, cut_plan = slice_step(graph, found)
        check_plan(cut_plan, cut)


@given(st.data())
@examples(60)
def test_a_search_keeps_the_best_start_or_betters_it_and_a_seed_decides(data: st.DataObject) -> None:
    graph, network, plan = data.draw(cases())
    judge = PlanEvaluator(graph, network, plan.architecture, plan.barrier)
    first = starts(graph, network, [plan], judge.chunks)
    seed = data.draw(st.integers(0, 3))
    end = SearchEnd(max_evaluations=len(first) + 200)
    one, two = (climb(graph, network, judge, first, end, seed=seed) for _ in range(2))
    assert one.plan == two.plan
    assert one.iteration_s <= min(judge.seconds(flat, steady=True) for flat in first)
    check_plan(one.plan, graph)
    # A strict order does not say when messages are parsed between its operations.
    parses = network.parse_s > 0 or network.parse_s_per_byte > 0
    if plan.architecture == "ps" and plan.barrier == "step" and not parses:
        row = simulate(graph, one.plan, network, iterations=1).row
        assert row.iteration_s <= one.iteration_s * (1 + 1e-9)
