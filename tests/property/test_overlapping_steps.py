"""Steps that overlap, simulated, against their naive twin and against what some of them come to."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hocket.graph import Plan, Reduction, StepGraph
from hocket.graph.clipped_step import clipped
from hocket.graph.csr import Csr
from hocket.network import PATTERNS, Network
from hocket.network.collectives import reduction_s
from hocket.sim import simulate
from hocket.sim.step_runs import COOL_DOWN_STEPS, WARM_UP_STEPS, StepRuns, lower
from tests.naive.overlapping_steps import (
    busy_s,
    reduction_run,
    reduction_steps,
    server_run,
    server_steps,
    updates_of,
)
from tests.strategies import examples, networks, plans, reduction_plans, steps, topologies

MEASURED = 3


def simulated(
    graph: StepGraph, plan: Plan, network: Network, **machines: Any
) -> tuple[list[float], list[list[int]], list[int]]:
    """When each step is over, those not measured too, and which samples workers and servers repeat in it."""
    run = StepRuns(lower(graph, plan, network), seed=0, random_order=False, **machines)
    measured = [step.end_s for step in run.steps(MEASURED)]
    over = run.done_times_s().max(axis=1).tolist()
    assert measured == over[WARM_UP_STEPS:][:MEASURED]
    draws = [run.draw(k) for k in range(len(over))]
    return over, [samples.tolist() for samples, _ in draws], [sample for _, sample in draws]


@st.composite
def reducing(draw: st.DrawFn) -> Network:
    """A network on which 125 bytes take one second one way, with or without costs of starting and parsing."""
    return Network(
        bandwidth_bps=1000.0,
        startup_s=draw(st.sampled_from([0.0, 0.0, 0.5])),
        num_workers=draw(st.integers(1, 3)),
        parse_s_per_byte=draw(st.sampled_from([0.0, 0.0, 1 / 250, 1 / 125])),
        parse_s=draw(st.sampled_from([0.0, 0.0, 0.25])),
        pattern=draw(st.sampled_from([None, *PATTERNS])),
    )


@st.composite
def small_steps(draw: st.DrawFn) -> StepGraph:
    """A small step; in some of them gradients are missing, and any operation may be called an update."""
    graph = draw(steps(max_parameters=4, max_operations=6))
    if draw(st.booleans()):
        return graph
    missing = draw(st.sets(st.integers(0, graph.num_parameters - 1)))
    produces = [[p for p in graph.produces.row(i) if p not in missing] for i in range(graph.num_operations)]
    phases = [draw(st.sampled_from([int(phase), int(phase), 2])) for phase in graph.phases]
    called = replace(
        graph,
        phases=np.array(phases, dtype=np.int8),
        produces=Csr.from_rows(produces),
    )
    return called if len(updates_of(called)) < called.num_operations else graph


@given(st.data())
@examples(100)
def test_reduced_steps_end_when_the_naive_twin_says(data: st.DataObject) -> None:
    graph, network = data.draw(small_steps()), data.draw(reducing())
    plan = data.draw(reduction_plans(graph))
    over, samples, _ = simulated(graph, plan, network)
    assert over == pytest.approx(reduction_steps(graph, plan, network, samples), abs=1e-6)


@given(st.data())
@examples(150)
def test_so_do_steps_that_clip_and_reductions_in_halves(data: st.DataObject) -> None:
    graph, network = data.draw(small_steps()), data.draw(reducing())
    if data.draw(st.booleans()):
        graph = clipped(graph)
    plan = data.draw(reduction_plans(graph, halves=True))
    over, samples, _ = simulated(graph, plan, network)
    assert over == pytest.approx(reduction_steps(graph, plan, network, samples), abs=1e-6)


@given(st.data())
@examples(100)
def test_no_parameter_of_a_clipped_step_is_read_before_all_are_reduced(data: st.DataObject) -> None:
    graph, network = clipped(data.draw(small_steps())), data.draw(reducing())
    assume(graph.produced.any())
    plan = data.draw(reduction_plans(graph, halves=True))
    _, samples, _ = simulated(graph, plan, network)
    _, ran = reduction_run(graph, plan, network, samples)
    first_halves_s, reads_s = [0.0] * len(samples), [math.inf] * len(samples)
    main = [i not in updates_of(graph) for i in range(graph.num_operations)]
    reads_trained = [main[i] and graph.produced[graph.reads.row(i)].any() for i in range(len(main))]
    for item, end_s in ran:
        k = int(item.name[1])
        if item.name[0] == "reduction" and len(item.name) == 3:
            first_halves_s[k] = max(first_halves_s[k], end_s)
        elif item.name[0] == "operation" and reads_trained[int(item.name[-1])]:
            reads_s[k] = min(reads_s[k], end_s - item.work)
    assert all(done <= read + 1e-6 for done, read in zip(first_halves_s, reads_s[1:], strict=False))


@given(st.data())
@examples(100)
def test_steps_with_a_barrier_per_parameter_end_when_the_naive_twin_says(data: st.DataObject) -> None:
    graph = data.draw(small_steps())
    network = data.draw(networks(graph, parsing=data.draw(st.booleans())))
    plan = msgspec.structs.replace(data.draw(plans(graph)), barrier="parameter")
    over, samples, server_samples = simulated(graph, plan, network)
    naive = server_steps(graph, plan, network, samples, server_samples)
    assert over == pytest.approx(naive, abs=1e-6)


@given(st.data())
@examples(100)
def test_so_they_do_with_workers_and_links_that_differ(data: st.DataObject) -> None:
    graph = data.draw(small_steps())
    network = data.draw(networks(graph, parsing=data.draw(st.booleans())))
    plan = msgspec.structs.replace(data.draw(plans(graph)), barrier="parameter")
    speeds = data.draw(
        st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=network.num_workers, max_size=network.num_workers)
    )
    topology = data.draw(topologies(network.num_workers, network.num_servers))
    over, samples, server_samples = simulated(graph, plan, network, speeds=speeds, topology=topology)
    naive = server_steps(graph, plan, network, samples, server_samples, speeds, topology)
    assert over == pytest.approx(naive, abs=1e-6)


@given(st.data())
@examples(100)
def test_a_few_reduced_steps_are_as_busy_as_the_naive_twin_says(data: st.DataObject) -> None:
    graph, network = data.draw(small_steps()), data.draw(reducing())
    assume(graph.produced.any())  # else there is nothing to reduce
    if alike := data.draw(st.booleans()):
        graph = replace(graph, durations_s=graph.durations_s[:, :1])
    plan, iterations = data.draw(reduction_plans(graph, halves=True)), data.draw(st.integers(1, 5))
    row = simulate(graph, plan, network, iterations=iterations).row
    samples, _ = drawn(graph, plan, network, iterations)
    over, ran = reduction_run(graph, plan, network, samples)
    window = over[WARM_UP_STEPS - 1], over[WARM_UP_STEPS - 1 + iterations]
    computing_s = busy_s(ran, "operation", *window) / network.num_workers
    assert row.compute_s == pytest.approx(computing_s / iterations, abs=1e-6)
    assert row.communication_s == pytest.approx(busy_s(ran, "reduction", *window) / iterations, abs=1e-6)
    assert 0.0 <= row.utilization <= 1.0
    assert row.overlap <= 1.0 + 1e-9
    # Where all workers do the same, they compute or reduce at any time; else some may only wait for others.
    assert row.overlap >= -1e-9 or not alike


@given(st.data())
@examples(60)
def test_so_are_a_few_steps_with_a_barrier_per_parameter(data: st.DataObject) -> None:
    graph = data.draw(small_steps())
    network = data.draw(networks(graph, parsing=data.draw(st.booleans())))
    plan = msgspec.structs.replace(data.draw(plans(graph)), barrier="parameter")
    iterations = data.draw(st.integers(1, 5))
    row = simulate(graph, plan, network, iterations=iterations).row
    samples, server_samples = drawn(graph, plan, network, iterations)
    over, ran = server_run(graph, plan, network, samples, server_samples)
    window = over[WARM_UP_STEPS - 1], over[WARM_UP_STEPS - 1 + iterations]
    computing_s = busy_s(ran, "operation", *window) / network.num_workers
    assert row.compute_s == pytest.approx(computing_s / iterations, abs=1e-6)
    assert 0.0 <= row.utilization <= 1.0
    assert row.communication_s <= row.iteration_s
    assert row.overlap <= 1.0 + 1e-9


def drawn(
    graph: StepGraph, plan: Plan, network: Network, iterations: int
) -> tuple[list[list[int]], list[int]]:
    """Which samples workers and servers repeat where so many steps are measured, and in those around them."""
    run = StepRuns(lower(graph, plan, network), seed=0, random_order=False)
    draws = [run.draw(k) for k in range(WARM_UP_STEPS + iterations + COOL_DOWN_STEPS)]
    return [samples.tolist() for samples, _ in draws], [sample for _, sample in draws]


@given(st.data())
@examples(60)
def test_reduced_steps_take_as_long_as_the_slowest_worker(data: st.DataObject) -> None:
    graph, network = data.draw(small_steps()), data.draw(reducing())
    plan = msgspec.structs.replace(data.draw(reduction_plans(graph)), issue="listed")
    speeds = data.draw(
        st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=network.num_workers, max_size=network.num_workers)
    )
    over, samples, _ = simulated(graph, plan, network, speeds=speeds)
    assert over == pytest.approx(reduction_steps(graph, plan, network, samples, speeds), abs=1e-6)


@given(st.data())
@examples(100)
def test_without_forward_windows_and_updates_steps_follow_each_other(data: st.DataObject) -> None:
    graph = data.draw(steps(max_parameters=4, max_operations=6))
    graph = replace(graph, phases=np.minimum(graph.phases, 1).astype(np.int8))
    network = data.draw(reducing())
    drawn = data.draw(reduction_plans(graph))
    plan = msgspec.structs.replace(
        drawn,
        reductions=tuple(msgspec.structs.replace(r, window="backward") for r in drawn.reductions),
        compute_order=tuple(graph.operation_names[i] for i in graph.order),
        issue="listed",
    )
    over, samples, _ = simulated(graph, plan, network)
    assert over == pytest.approx(in_turns(graph, plan.reductions, network, samples), abs=1e-6)


def in_turns(
    graph: StepGraph, reductions: tuple[Reduction, ...], network: Network, samples: list[list[int]]
) -> list[float]:
    """A worker computes without a break, then waits for the last reduction, or for none if there is none."""
    begin = [0.0] * network.num_workers
    size = dict(zip(graph.parameter_names, graph.parameter_bytes.tolist(), strict=True))
    over, network_free = [], 0.0
    for drawn in samples:
        complete = dict.fromkeys(graph.parameter_names, 0.0)
        for worker, sample in enumerate(drawn):
            for i in graph.order:
                begin[worker] += float(graph.durations_s[i, sample])
                for p in graph.produces.row(i).tolist():
                    name = graph.parameter_names[p]
                    complete[name] = max(complete[name], begin[worker])
        over.append(max(begin))
        for reduction in reductions:
            ready = max(complete[name] for name in reduction.parameters)
            cost = reduction_s(network, sum(size[name] for name in reduction.parameters), reduction.chunks)
            network_free = max(network_free, ready) + cost
        begin = [max(time, network_free) for time in begin]
    return over
