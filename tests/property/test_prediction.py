"""The prediction kernel against its naive twin, and the limits that any prediction must keep."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import hocket
from hocket.graph import Plan, StepGraph
from hocket.network import Network
from hocket.network.topology import Topology
from hocket.predictor import predict
from hocket.predictor.kernel_run import RunSettings, run_steps
from hocket.predictor.lowering import ExchangeRules, lower_worker_step
from hocket.sim.draws import draw_number
from tests import strategies
from tests.naive import prediction as naive
from tests.strategies import examples


@st.composite
def cases(draw: st.DrawFn, *, samples: int, servers: int) -> tuple[StepGraph, Plan, Network]:
    graph = draw(strategies.steps(samples=samples))
    plan = draw(strategies.plans(graph))
    network = Network(
        bandwidth_bps=1000.0,
        startup_s=draw(st.sampled_from([0.0, 0.0, 0.25])),
        num_workers=draw(st.integers(1, 4)),
        num_servers=draw(st.integers(1, min(servers, graph.num_parameters))),
        parse_s_per_byte=draw(st.sampled_from([0.0, 0.004])),
        parse_s=draw(st.sampled_from([0.0, 0.5])),
    )
    return graph, plan, network


@st.composite
def programs(draw: st.DrawFn) -> StepGraph:
    """A step whose file lists operations as they ran: chains that branch and join, gradients, updates."""
    num_parameters, num_operations = draw(st.integers(1, 5)), draw(st.integers(2, 14))
    names = [f"p{i}" for i in range(num_parameters)]
    parameters = [strategies.parameter(name, 125 * draw(st.integers(1, 6))) for name in names]
    operations = []
    for i in range(num_operations):
        from_last = i > 0 and draw(st.integers(0, 3)) > 0
        others = draw(st.lists(st.integers(0, i - 1), unique=True, max_size=2)) if i else []
        operations.append(
            strategies.operation(
                f"o{i}",
                [float(draw(st.integers(0, 5))) for _ in range(2)],
                inputs=[f"o{j}" for j in sorted({*others, *([i - 1] if from_last else [])})],
                reads=draw(st.lists(st.sampled_from(names), unique=True, max_size=1)),
                phase="backward" if 2 * i > num_operations else "forward",
            )
        )
    for name in names:
        maker = draw(st.sampled_from(operations[:num_operations]))
        maker.produces.append(name)
        for k in range(draw(st.integers(0, 2))):
            before = [f"update {name} {k - 1}"] if k else [maker.name]
            operations.append(
                strategies.operation(
                    f"update {name} {k}",
                    [1.0, 2.0],
                    inputs=before,
                    reads=draw(st.sampled_from([[name], [name], []])),
                    phase="update",
                )
            )
    return strategies.step(parameters, operations)


def jittered(graph: StepGraph, seed: int) -> StepGraph:
    """No two durations alike, so that no two things happen at one instant by chance."""
    noise = np.random.default_rng(seed).uniform(0.9, 1.1, graph.durations_s.shape)
    return dataclasses.replace(graph, durations_s=graph.durations_s * noise + 0.01 * noise)


def links_of(topology: Topology) -> tuple[Any, dict[int, float]]:
    routes, servers = topology.routes(), len(topology.server_bps)
    pairs = len(topology.worker_bps) * servers

    def links(kind: str, w: int, s: int) -> list[int]:
        row = routes[w * servers + s + pairs * (kind == "push")]
        return [int(link) for link in row if link >= 0]

    return links, dict(enumerate(topology.capacity_bps().tolist()))


def both(
    graph: StepGraph,
    plan: Plan,
    network: Network,
    *,
    steps: int,
    seed: int,
    topology: Topology | None = None,
    window_bits: float = 0.0,
    speeds: tuple[float, ...] | None = None,
    start_s: tuple[float, ...] | None = None,
    needed: int = 0,
    commits: bool = False,
    joined: bool = True,
) -> tuple[list[float], list[float]]:
    topology = topology or Topology.flat(network)
    step = lower_worker_step(
        graph,
        plan,
        network,
        ExchangeRules(synchronous=needed > 0, window_bits=window_bits, commits=commits),
        joined=joined,
    )
    num_ends = steps if needed else steps * network.num_workers
    ends, _ = run_steps(
        step,
        topology,
        num_ends,
        RunSettings(
            window_bits=window_bits,
            startup_s=network.startup_s,
            speeds=speeds,
            start_s=start_s,
            needed=needed,
            seed=seed,
        ),
    )
    links, capacity = links_of(topology)
    expected = naive.predict(
        naive.Job(graph, plan, network, commits),
        network.num_workers,
        num_ends,
        lambda worker, k: int(draw_number(seed, worker, k)) % graph.num_samples,
        links=links,
        capacity=capacity,
        window_bits=window_bits,
        speeds=list(speeds) if speeds else None,
        start_s=list(start_s) if start_s else None,
        needed=needed,
    )
    return ends.tolist(), expected


@given(cases(samples=1, servers=1), st.sampled_from([0.0, 1500.0]), st.booleans())
@examples(100)
def test_one_sample_is_algorithm_3_1_exactly(
    case: tuple[StepGraph, Plan, Network], window_bits: float, joined: bool
) -> None:
    graph, plan, network = case
    ends, expected = both(
        jittered(graph, 0), plan, network, steps=3, seed=0, window_bits=window_bits, joined=joined
    )
    assert ends == pytest.approx(expected, rel=1e-9)


@given(cases(samples=3, servers=3), st.sampled_from([0.0, 1500.0]), st.integers(0, 9), st.booleans())
@examples(100)
def test_many_samples_and_servers_are_algorithm_3_1(
    case: tuple[StepGraph, Plan, Network], window_bits: float, seed: int, joined: bool
) -> None:
    graph, plan, network = case
    ends, expected = both(
        jittered(graph, seed), plan, network, steps=3, seed=seed, window_bits=window_bits, joined=joined
    )
    assert ends == pytest.approx(expected, rel=1e-9)


@given(cases(samples=2, servers=2), st.integers(0, 9), st.data())
@examples(100)
def test_synchronous_steps_with_backup_workers_are_the_naive_twins(
    case: tuple[StepGraph, Plan, Network], seed: int, data: st.DataObject
) -> None:
    graph, plan, network = case
    needed = data.draw(st.integers(1, network.num_workers))
    # No multiples: two steps of one worker and one of another would end at one instant, in either order.
    speeds = tuple(data.draw(st.sampled_from([1.0, 0.53, 1.71])) for _ in range(network.num_workers))
    ends, expected = both(
        jittered(graph, seed), plan, network, steps=4, seed=seed, speeds=speeds, needed=needed
    )
    assert ends == pytest.approx(expected, rel=1e-9)


@st.composite
def trained(draw: st.DrawFn) -> tuple[StepGraph, Plan, Network]:
    """Programs whose servers have updates to run, some of them long."""
    graph = draw(programs())
    longer = draw(st.sampled_from([1.0, 4.0]))
    updates = np.array([name.startswith("update") for name in graph.operation_names])
    graph = dataclasses.replace(
        graph, durations_s=np.where(updates[:, None], longer, 1.0) * graph.durations_s
    )
    network = Network(
        bandwidth_bps=1000.0,
        num_workers=draw(st.integers(1, 4)),
        num_servers=draw(st.integers(1, min(3, graph.num_parameters))),
        parse_s=draw(st.sampled_from([0.0, 0.5])),
    )
    return graph, draw(strategies.plans(graph)), network


@given(trained(), st.booleans(), st.data())
@examples(100)
def test_updates_that_wait_for_commits_are_the_naive_twins(
    case: tuple[StepGraph, Plan, Network], synchronous: bool, data: st.DataObject
) -> None:
    graph, plan, network = case
    # Nobody alike: who comes first of those that come at one instant is nobody's business. Speeds alone leave
    # workers alike that compute nothing before their transfers, which share a link to one and the same end.
    speeds = (1.0, 0.83, 1.31, 0.57)[: network.num_workers]
    start_s = None if synchronous else (0.0, 0.37, 1.13, 2.71)[: network.num_workers]
    needed = data.draw(st.integers(1, network.num_workers)) if synchronous else 0
    ends, expected = both(
        jittered(graph, 2),
        plan,
        network,
        steps=4,
        seed=data.draw(st.integers(0, 9)),
        speeds=speeds,
        start_s=start_s,
        needed=needed,
        commits=True,
        joined=False,
    )
    assert ends == pytest.approx(expected, rel=1e-9)


@given(cases(samples=2, servers=2), st.sampled_from([0.0, 1500.0]), st.booleans(), st.data())
@examples(100)
def test_workers_that_begin_apart_are_the_naive_twins(
    case: tuple[StepGraph, Plan, Network], window_bits: float, joined: bool, data: st.DataObject
) -> None:
    graph, plan, network = case
    start = st.sampled_from([0.0, 0.0, 1.3, 7.7])
    ends, expected = both(
        jittered(graph, 0),
        plan,
        network,
        steps=3,
        seed=0,
        window_bits=window_bits,
        start_s=tuple(data.draw(start) for _ in range(network.num_workers)),
        joined=joined,
    )
    assert ends == pytest.approx(expected, rel=1e-9)


@given(cases(samples=2, servers=3), st.integers(0, 9), st.data())
@examples(100)
def test_any_topology_is_shared_as_the_naive_twin_shares_it(
    case: tuple[StepGraph, Plan, Network], seed: int, data: st.DataObject
) -> None:
    graph, plan, network = case
    bandwidth = st.sampled_from([400.0, 1000.0, 2500.0])
    workers, servers = network.num_workers, network.num_servers
    topology = Topology(
        worker_bps=tuple(data.draw(bandwidth) for _ in range(workers)),
        server_bps=tuple(data.draw(bandwidth) for _ in range(servers)),
        racks=data.draw(st.integers(1, min(3, workers + servers))),
        oversubscription=data.draw(st.sampled_from([1.0, 2.0, 5.0])),
    )
    ends, expected = both(
        jittered(graph, seed), plan, network, steps=2, seed=seed, topology=topology, window_bits=1500.0
    )
    assert ends == pytest.approx(expected, rel=1e-9)


@given(programs(), st.sampled_from([0.0, 1500.0]), st.booleans(), st.data())
@examples(150)
def test_joined_operations_change_nothing(
    graph: StepGraph, window_bits: float, synchronous: bool, data: st.DataObject
) -> None:
    graph = jittered(graph, 1)
    plan = data.draw(strategies.plans(graph))
    commits = not synchronous and data.draw(st.booleans())
    network = Network(
        bandwidth_bps=1000.0,
        num_workers=1 if commits else data.draw(st.integers(1, 3)),  # of several, updates wait for each other
        num_servers=data.draw(st.integers(1, min(2, graph.num_parameters))),
        parse_s=data.draw(st.sampled_from([0.0, 0.5])),
    )
    topology = Topology.flat(network)
    ends = []
    for joined in (False, True):
        step = lower_worker_step(
            graph,
            plan,
            network,
            ExchangeRules(synchronous=synchronous, window_bits=window_bits, commits=commits),
            joined=joined,
        )
        needed = network.num_workers if synchronous else 0
        found, _ = run_steps(step, topology, 6, RunSettings(window_bits=window_bits, needed=needed))
        ends.append(found)
        event(f"{graph.num_operations - step.nodes.num_ops - step.nodes.num_updates} joined")
    assert ends[0].tolist() == pytest.approx(ends[1].tolist(), rel=1e-9)


def test_a_chain_between_two_watched_moments_is_one_node() -> None:
    names = ["w", "v"]
    graph = strategies.step(
        [strategies.parameter(name, 125) for name in names],
        [
            strategies.operation("a", reads=["w"]),
            strategies.operation("b", inputs=["a"]),
            strategies.operation("c", inputs=["b"], reads=["v"]),
            strategies.operation("d", inputs=["c"]),
            strategies.operation("e", inputs=["d"], produces=["v"], phase="backward"),
            strategies.operation("f", inputs=["e"], phase="backward"),
            strategies.operation("g", inputs=["f"], produces=["w"], phase="backward"),
            strategies.operation("h", inputs=["g"], reads=["w"], phase="update"),
            strategies.operation("i", inputs=["h"], reads=["w"], phase="update"),
        ],
    )
    network = Network(num_workers=1)
    step = lower_worker_step(
        graph, hocket.plan(graph, network, "fifo"), network, ExchangeRules(synchronous=False)
    )
    assert step.nodes.group.tolist() == [0, 0, 1, 1, 1, 2, 2, 0, 0]


WINDOWS = st.sampled_from([0.0, 60.0, 250.0])


@given(programs(), WINDOWS, st.data())
@examples(40)
def test_one_worker_takes_what_the_simulator_says(
    graph: StepGraph, window_bytes: float, data: st.DataObject
) -> None:
    """Without parse costs a single worker's asynchronous step is a synchronous one, plan for plan."""
    plan = data.draw(strategies.plans(graph))
    network = Network(
        bandwidth_bps=1000.0, startup_s=data.draw(st.sampled_from([0.0, 0.5])), window_bytes=window_bytes
    )
    one = dataclasses.replace(graph, durations_s=graph.durations_s[:, :1])
    expected = hocket.simulate(one, plan, network, iterations=1).row.iteration_s
    for mode in ("async", "sync"):
        (row,) = predict(one, network, plan=plan, mode=mode, steps=3, skip=1)
        assert row.step_s == pytest.approx(expected, rel=1e-9)


@given(programs(), st.integers(2, 4), WINDOWS, st.data())
@examples(40)
def test_a_barrier_per_step_is_the_simulators(
    graph: StepGraph, workers: int, window_bytes: float, data: st.DataObject
) -> None:
    """One measured step leaves nothing to chance: both event loops say the same."""
    plan = data.draw(strategies.plans(graph))
    one = dataclasses.replace(graph, durations_s=graph.durations_s[:, :1])
    servers = data.draw(st.integers(1, min(3, graph.num_parameters)))
    network = Network(
        bandwidth_bps=1000.0,
        startup_s=data.draw(st.sampled_from([0.0, 0.25])),
        num_workers=workers,
        num_servers=servers,
        parse_s_per_byte=data.draw(st.sampled_from([0.0, 0.004])),
        parse_s=data.draw(st.sampled_from([0.0, 0.5])),
        window_bytes=window_bytes,
    )
    expected = hocket.simulate(one, plan, network, iterations=1).row.iteration_s
    (row,) = predict(one, network, workers=[workers], plan=plan, mode="sync", steps=3, skip=1)
    assert row.step_s == pytest.approx(expected, rel=1e-9)


@given(programs(), st.sampled_from(["fifo", "reverse", "tac", "ibatch"]), st.sampled_from([0, 200]))
@examples(40)
def test_many_workers_converge_to_the_bandwidth_limit(
    graph: StepGraph, policy: str, window_bytes: float
) -> None:
    """A server's link carries so many steps a second; enough workers that drift apart reach just that."""
    transfer_s = 8.0 * graph.parameter_bytes.sum() / 1000.0
    draw_number = np.random.default_rng(4).exponential(1.0, (graph.num_operations, 20))
    durations_s = draw_number * 4 * transfer_s / draw_number.sum(axis=0).mean()
    (row,) = predict(
        dataclasses.replace(graph, durations_s=durations_s),
        Network(bandwidth_bps=1000.0),
        workers=[48],
        policy=policy,
        window_bytes=window_bytes,
        steps=320,
        skip=30,
    )
    # What was under way when the count began was partly sent before: at most a step's worth a worker. At its
    # end the first workers have done their steps and leave the link to the others, so runs are long.
    assert row.throughput <= (1 + 1 / 290) / transfer_s
    assert row.throughput >= 0.9 / transfer_s
    assert row.bottleneck in ("downlink", "uplink")


@given(programs(), st.integers(1, 4), st.sampled_from(["async", "sync"]), st.data())
@examples(40)
def test_a_faster_network_never_lowers_throughput_of_chains(
    graph: StepGraph, workers: int, mode: Any, data: st.DataObject
) -> None:
    """Where one thing follows another; with a choice, list scheduling has anomalies (Graham 1969)."""
    order = tuple(graph.operation_names)
    plan = msgspec.structs.replace(data.draw(strategies.plans(graph)), compute_order=order, issue="listed")
    one = dataclasses.replace(graph, durations_s=graph.durations_s[:, :1])
    rates = []
    for bandwidth_bps in (300.0, 1000.0, 1700.0, 1e9):
        network = Network(bandwidth_bps=bandwidth_bps)
        (row,) = predict(
            one, network, workers=[workers], plan=plan, mode=mode, window_bytes=0, steps=3, skip=1
        )
        rates.append(row.throughput)
    assert all(slow <= fast * (1 + 1e-9) for slow, fast in itertools.pairwise(rates))
