"""Caramel's stages against naive twins, and its plans against the rules of plans."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hocket.graph import Csr, Phase, StepGraph, check_plan
from hocket.network import PATTERNS, Network, reduction_s
from hocket.planner.caramel.batch_placement import BatchTimes, delay_s, place_batches
from hocket.planner.caramel.caramel import caramel
from hocket.planner.caramel.completion_order import best_order, compute_order, control_edges
from hocket.planner.caramel.gradient_batches import NetworkModel, batch_gradients
from hocket.planner.worker_processor import serial_times
from hocket.sim import simulate
from tests.naive import caramel as naive
from tests.strategies import examples, operation, parameter, step, steps

EXAMPLES = examples(150)


@st.composite
def shared_steps(draw: st.DrawFn) -> StepGraph:
    """Training steps in which several operations may complete a gradient, and parameters have two types."""
    graph = draw(steps(training=True, max_parameters=8, max_operations=16))
    makers = [i for i in range(graph.num_operations) if graph.phases[i] != Phase.UPDATE]
    rows = [set(graph.produces.row(i).tolist()) for i in range(graph.num_operations)]
    for g in range(graph.num_parameters):
        for i in draw(st.lists(st.sampled_from(makers), max_size=2)):
            rows[i].add(g)
    types = st.lists(
        st.sampled_from(["uint8", "int8"]), min_size=graph.num_parameters, max_size=graph.num_parameters
    )
    return replace(
        graph, produces=Csr.from_rows([sorted(row) for row in rows]), parameter_dtypes=tuple(draw(types))
    )


@given(shared_steps())
@EXAMPLES
def test_the_order_takes_the_cheapest_gradient_each_time(graph: StepGraph) -> None:
    assert best_order(graph) == naive.best_order(graph)


@given(shared_steps(), st.data())
@EXAMPLES
def test_with_control_edges_every_execution_completes_gradients_in_order(graph: StepGraph, data: Any) -> None:
    order = best_order(graph)
    edges = control_edges(graph, order)
    waits_for = [set(graph.inputs.row(i).tolist()) for i in range(graph.num_operations)]
    needed = set().union(*(naive.needs(graph, g) for g in order))
    for end, free in edges:
        assert end not in waits_for[free], "an edge that the graph has"
        assert {end, free} <= needed
        waits_for[free].add(end)
    assert len(set(edges)) == len(edges)

    preference = data.draw(st.permutations(range(graph.num_operations)))
    executed = naive.topological_order(waits_for, preference)
    place_of = {i: k for k, i in enumerate(executed)}
    stages = [stage for stage in naive.added(graph, order) if stage]
    for before, after in pairwise(stages):
        assert max(place_of[i] for i in before) < min(place_of[i] for i in after)

    planned = compute_order(graph, edges).tolist()
    position = {i: k for k, i in enumerate(planned)}
    assert len(position) == len(planned)
    assert {i for i in range(graph.num_operations) if graph.phases[i] != Phase.UPDATE} == set(planned)
    assert all(position[j] < position[i] for i in planned for j in waits_for[i])
    assert set(planned[: len(needed)]) == needed


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 6)), min_size=1, max_size=12),
    st.integers(1, 6),
    st.integers(1, 2),
)
@EXAMPLES
def test_batches_are_those_of_the_naive_queue(
    gradients: list[tuple[int, int]], startup: int, per_byte: int
) -> None:
    names = [f"p{i}" for i in range(len(gradients))]
    graph = step(
        [parameter(name, size) for name, (size, _) in zip(names, gradients, strict=True)],
        [operation(f"o {name}", produces=[name]) for name in names],
    )
    ready = np.cumsum([wait for _, wait in gradients]).astype(float)
    model = NetworkModel(startup_s=float(startup), s_per_byte=float(per_byte))
    sizes = [size for size, _ in gradients]
    found = batch_gradients(graph, list(range(len(names))), ready, model)
    assert found == naive.batches(sizes, ready.tolist(), float(startup), float(per_byte))


@given(
    st.lists(st.tuples(*(st.integers(0, 12).map(float),) * 2, st.integers(0, 9)), min_size=1, max_size=9),
    st.integers(0, 6).map(float),
)
@EXAMPLES
def test_windows_are_those_of_the_naive_packing(
    drawn: list[tuple[float, float, int]], still_computing: float
) -> None:
    rows = [(travel, ready, used, float(travel)) for ready, used, travel in drawn]
    compute = max(ready for _, ready, _, _ in rows) + still_computing
    size, ready, used, travel = (np.array(column) for column in zip(*rows, strict=True))
    batches = BatchTimes(sizes=size, ready_s=ready, used_s=used, travel_s=travel)
    backward, forward = place_batches(batches, compute)
    assert (set(backward), set(forward)) == naive.place(rows, compute)
    assert len(backward) + len(forward) == len(rows)
    assert [ready[k] for k in backward] == sorted(ready[backward])
    assert [used[k] for k in forward] == sorted(used[forward])
    masks = (np.isin(np.arange(len(rows)), window) for window in (backward, forward))
    assert delay_s(batches, compute, *masks) == naive.delay(rows, compute, set(backward), set(forward))


@st.composite
def networks(draw: st.DrawFn) -> Network:
    return Network(
        bandwidth_bps=1000.0,
        num_workers=draw(st.integers(1, 16)),
        startup_s=draw(st.sampled_from([0.0, 0.25, 4.0])),
        parse_s=draw(st.sampled_from([0.0, 0.125])),
        parse_s_per_byte=draw(st.sampled_from([0.0, 0.001])),
        pattern=draw(st.sampled_from([None, *PATTERNS])),
    )


@given(shared_steps(), networks())
@examples(60)
def test_every_combination_of_stages_is_a_plan(graph: StepGraph, network: Network) -> None:
    trained = {name for i, name in enumerate(graph.parameter_names) if graph.produced[i]}
    types = dict(zip(graph.parameter_names, graph.parameter_dtypes, strict=True))
    for order, batching, windows, depth in product((False, True), repeat=4):
        plan = caramel(graph, network, order=order, batching=batching, windows=windows, depth=depth)
        check_plan(plan, graph)
        travels = [name for r in plan.reductions for name in r.parameters]
        assert sorted(travels) == sorted(trained)
        assert (plan.compute_order is not None) == order
        assert all(len({types[name] for name in r.parameters}) == 1 for r in plan.reductions)
        assert batching or all(len(r.parameters) == 1 for r in plan.reductions)
        assert depth or all(r.chunks == 1 for r in plan.reductions)
        assert all(1 <= r.chunks <= 8 for r in plan.reductions)
        passes = [r.window for r in plan.reductions]
        assert passes == sorted(passes)
        assert windows or "forward" not in passes


@given(steps(training=True, max_parameters=8, max_operations=16, samples=1), networks())
@examples(100)
def test_a_simulated_step_takes_no_longer_than_planned(graph: StepGraph, network: Network) -> None:
    plan = caramel(graph, network)
    assert plan.compute_order is not None
    index = {name: i for i, name in enumerate(graph.operation_names)}
    times = serial_times(graph, np.array([index[name] for name in plan.compute_order]))
    parameters = {name: i for i, name in enumerate(graph.parameter_names)}
    batches = [[parameters[name] for name in r.parameters] for r in plan.reductions]
    sizes = np.array([graph.parameter_bytes[batch].sum() for batch in batches])
    batches = BatchTimes(
        sizes=sizes,
        ready_s=np.array([times.ready_s[batch].max() for batch in batches]),
        used_s=np.array([times.used_s[batch].min() for batch in batches]),
        travel_s=np.array(
            [reduction_s(network, size, r.chunks) for size, r in zip(sizes, plan.reductions, strict=True)]
        ),
    )
    forward = np.array([r.window == "forward" for r in plan.reductions])
    planned_s = graph.oracle_s.sum() + delay_s(batches, times.total_s, ~forward, forward)
    assert simulate(graph, plan, network, iterations=3).row.iteration_s <= planned_s + 1e-9


@given(steps(training=False))
@examples(30)
def test_a_step_without_gradients_reduces_nothing(graph: StepGraph) -> None:
    plan = caramel(graph, Network(num_workers=4))
    check_plan(plan, graph)
    assert plan.reductions == ()
