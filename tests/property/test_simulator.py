"""The simulator against its naive twin and against what must hold for any plan."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.graph import StepGraph
from hocket.network import Network
from hocket.network.topology import Topology
from hocket.planner import plan, policies_of
from hocket.sim import simulate
from hocket.sim.steady import step_times
from hocket.sim.step_runs import StepRuns, lower
from tests.naive.list_schedule import simulate_step
from tests.strategies import examples, networks, plans, steps, topologies

SPEEDS = st.sampled_from([0.5, 1.0, 2.0])


@given(st.data())
@examples(200)
def test_a_step_ends_when_the_naive_twin_says(data: st.DataObject) -> None:
    graph = data.draw(steps())
    network = data.draw(networks(graph, parsing=data.draw(st.booleans())))
    schedule = data.draw(plans(graph))
    run = StepRuns(lower(graph, schedule, network), seed=data.draw(st.integers(0, 3)), random_order=False)
    samples, server_sample = run.draw(0)
    (first,) = run.steps(1)
    assert first.samples.tolist() == samples.tolist()
    naive = simulate_step(graph, schedule, network, samples.tolist(), server_sample=server_sample)
    assert run.end.max() == pytest.approx(naive, abs=1e-6)


@given(st.data())
@examples(200)
def test_so_it_does_with_workers_and_links_that_differ(data: st.DataObject) -> None:
    graph = data.draw(steps())
    network = data.draw(networks(graph, parsing=data.draw(st.booleans())))
    schedule = data.draw(plans(graph))
    speeds = data.draw(st.lists(SPEEDS, min_size=network.num_workers, max_size=network.num_workers))
    topology = data.draw(topologies(network.num_workers, network.num_servers))
    run = StepRuns(lower(graph, schedule, network), seed=0, random_order=False)
    samples, server_sample = run.draw(0)
    uneven = StepRuns(lower(graph, schedule, network), 0, False, speeds=speeds, topology=topology)
    seconds, events = step_times(uneven, iterations=1)
    naive = simulate_step(
        graph,
        schedule,
        network,
        samples.tolist(),
        server_sample=server_sample,
        speeds=speeds,
        topology=topology,
    )
    assert seconds.tolist() == pytest.approx([naive], abs=1e-6)
    assert events > 0


@given(st.data())
@examples(100)
def test_step_times_are_those_of_a_simulation(data: st.DataObject) -> None:
    graph = data.draw(steps())
    network = data.draw(networks(graph, parsing=True))
    schedule = msgspec.structs.replace(
        data.draw(plans(graph)), barrier=data.draw(st.sampled_from(["step", "parameter"]))
    )
    chance = {"seed": data.draw(st.integers(0, 3)), "random_order": data.draw(st.booleans())}
    row = simulate(graph, schedule, network, iterations=5, **chance).row
    run = StepRuns(
        lower(graph, schedule, network),
        **chance,
        speeds=[1.0] * network.num_workers,
        topology=Topology.flat(network),
    )
    seconds, events = step_times(run, iterations=5)
    assert (tuple(seconds), events) == (row.iterations_s, row.events)


@given(st.data())
@examples(200)
def test_no_step_ends_before_its_bound(data: st.DataObject) -> None:
    graph = data.draw(steps())
    network = data.draw(networks(graph, parsing=data.draw(st.booleans())))
    network = replace(network, num_servers=data.draw(st.integers(1, graph.num_parameters)))
    row = simulate(
        graph, data.draw(plans(graph)), network, iterations=3, random_order=data.draw(st.booleans())
    ).row
    assert row.iteration_s >= row.bound_s - 1e-9
    assert row.bound_s >= row.compute_s - 1e-9


@given(st.data())
@examples(100)
def test_inference_on_one_worker_is_a_list_schedule(data: st.DataObject) -> None:
    graph = data.draw(steps(training=False, samples=1, max_parameters=8, max_operations=14))
    network = Network(bandwidth_bps=1000.0, startup_s=data.draw(st.sampled_from([0.0, 0.25])))
    row = simulate(graph, plan(graph, network, "fifo"), network, iterations=1).row
    assert row.iteration_s == pytest.approx(list_schedule(graph, network), abs=1e-6)


def list_schedule(graph: StepGraph, network: Network) -> float:
    """Pulls one after the other; the processor takes the first ready operation in the file."""
    arrival, end = [], 0.0
    for size in graph.parameter_bytes.tolist():
        end += network.startup_s + 8 * size / network.bandwidth_bps
        arrival.append(end)
    finished: dict[int, float] = {}
    free = 0.0
    while len(finished) < graph.num_operations:
        ready = {}
        for i in range(graph.num_operations):
            inputs = graph.inputs.row(i).tolist()
            if i not in finished and all(j in finished for j in inputs):
                ready[i] = max(
                    [0.0, *(finished[j] for j in inputs), *(arrival[p] for p in graph.reads.row(i))]
                )
        start = max(free, min(ready.values()))
        chosen = min(i for i, time in ready.items() if time <= start + 1e-9)
        free = finished[chosen] = start + graph.durations_s[chosen, 0]
    return max([free, *arrival])


@given(st.data())
@examples(50)
def test_a_seed_decides_everything(data: st.DataObject) -> None:
    graph = data.draw(steps())
    network = data.draw(networks(graph))
    schedule = data.draw(plans(graph))
    seed = data.draw(st.integers(0, 5))
    first, second = (
        simulate(graph, schedule, network, iterations=4, seed=seed, random_order=True, timeline=True)
        for _ in range(2)
    )
    assert first.row.iterations_s == second.row.iterations_s
    assert first.timeline == second.timeline


@given(st.data())
@examples(50)
def test_a_timeline_shows_every_item_once_and_no_lane_does_two_things(data: st.DataObject) -> None:
    graph = data.draw(steps())
    network = data.draw(networks(graph, parsing=data.draw(st.booleans())))
    result = simulate(graph, data.draw(plans(graph)), network, iterations=3, timeline=True)
    timeline = result.timeline
    assert timeline is not None
    on_workers = sum(span.kind in ("forward", "backward", "update") for span in timeline.spans)
    assert on_workers >= graph.num_operations
    assert timeline.end_s == pytest.approx(float(np.sort(result.row.iterations_s)[1]))
    for lane in range(len(timeline.lanes)):
        spans = sorted((s.start_s, s.end_s) for s in timeline.spans if s.lane == lane)
        assert all(end <= start + 1e-9 for (_, end), (start, _) in pairwise(spans))


@given(st.data())
@examples(100)
def test_no_policy_beats_anothers_bound_where_transfers_start_at_once(data: st.DataObject) -> None:
    graph = data.draw(steps())
    network = replace(data.draw(networks(graph)), startup_s=0.0)
    made = [plan(graph, network, policy, barrier="step") for policy in policies_of("ps") if policy != "p3"]
    # Slices are bounded as parameters of their own, which may be spread over servers more evenly.
    rows = [simulate(graph, each, network, iterations=2).row for each in [*made, data.draw(plans(graph))]]
    assert max(row.bound_s for row in rows) <= min(row.iteration_s for row in rows) + 1e-9
    assert all(row.bound_s == pytest.approx(rows[0].bound_s) for row in rows)


@given(st.data())
@examples(100)
def test_the_bound_holds_the_busiest_resource(data: st.DataObject) -> None:
    graph = data.draw(steps(training=False))
    network = data.draw(networks(graph))
    row = simulate(graph, data.draw(plans(graph)), network, iterations=2).row
    assert row.bound_s >= max(row.compute_s, row.communication_s) - 1e-9
