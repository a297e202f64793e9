"""iBatch's greedy algorithms, layer by layer and one batch, each over the exact program's end.

Ends are those of forward with its pulls and of backward with its pushes, as the planner counts them, on
derived K80 training steps and on random chains.
"""

from __future__ import annotations

import time

import numpy as np
import pytest

from hocket import models
from hocket.graph.step import Seconds
from hocket.network import Network
from hocket.planner.ibatch import batches_end, ibatch, optimal_batches
from hocket.planner.ibatch_greedy import algorithm_1, algorithm_2, greedy_batches, ibatch_greedy
from hocket.planner.layer_chain import Layers, backward_layers, forward_layers
from hocket.reproduce.steps import derived as k80

NETWORKS = [
    Network(bandwidth_bps=gbps * 1e9, startup_s=startup_s, num_workers=workers)
    for gbps, workers, startup_s in [
        (25, 4, 50e-6),
        (10, 4, 50e-6),
        (10, 4, 1e-3),
        (10, 16, 1e-3),
        (1, 4, 5e-3),
    ]
]
CHAINS = 2_000
SEED = 0


def one_batch(transfer_s: Seconds, compute_s: Seconds, startup_s: float) -> list[int]:
    return [len(transfer_s)]


def layer_by_layer(transfer_s: Seconds, compute_s: Seconds, startup_s: float) -> list[int]:
    return list(range(1, len(transfer_s) + 1))


OTHERS = (greedy_batches, algorithm_1, algorithm_2, layer_by_layer, one_batch)
Chain = tuple[Seconds, Seconds, float]


def excess(chain: Chain) -> list[float]:
    """Each of OTHERS' end over the optimal one, less 1."""
    best = batches_end(optimal_batches(*chain), *chain)
    return [batches_end(choose(*chain), *chain) / best - 1 for choose in OTHERS]


def show(label: str, chains: list[Chain]) -> None:
    found = np.array([excess(chain) for chain in chains])
    print(f"{label:34}", end="")
    for mean, worst in zip(found.mean(axis=0), found.max(axis=0), strict=True):
        print(f" {mean:8.2%} {worst:8.2%}", end="")
    print()


def header() -> None:
    print("\nend over the optimal end, mean and worst")
    print(" " * 34 + "".join(f" {choose.__name__:>17}" for choose in OTHERS))


def chain_of(layers: Layers, startup_s: float, mirror: bool) -> Chain:
    """``mirror`` for a backward chain: reversed, its end is that of pushes (see ``mirrored``)."""
    direction = -1 if mirror else 1
    return layers.transfer_s[::direction], layers.compute_s[::direction], startup_s


def test_greedy_over_exact_on_the_zoo(benchmark) -> None:  # type: ignore[no-untyped-def]
    graphs = [k80(model) for model in models.names()]
    ibatch(graphs[0], NETWORKS[0])
    planning = {}
    for graph in graphs:
        started = time.perf_counter()
        ibatch(graph, NETWORKS[2])
        exact_s = time.perf_counter() - started
        ibatch_greedy(graph, NETWORKS[2])
        planning[graph.model] = (exact_s, time.perf_counter() - started - exact_s)
    pulls = {
        (graph.model, network): chain_of(forward_layers(graph, network), network.startup_s, mirror=False)
        for graph in graphs
        for network in NETWORKS
    }
    pushes = {
        (graph.model, network): chain_of(backward_layers(graph, network), network.startup_s, mirror=True)
        for graph in graphs
        for network in NETWORKS
    }
    for way, chains in (("pulls", pulls), ("pushes", pushes)):
        header()
        for network in NETWORKS:
            label = f"{way}, {network.bandwidth_bps / 1e9:g} Gbit/s, {network.num_workers} workers"
            label += f", {network.startup_s * 1e3:g} ms"
            show(label, [chain for (_, other), chain in chains.items() if other == network])
        show(f"{way}, all", list(chains.values()))
    header()
    for graph in graphs:
        show(graph.model, [way[graph.model, network] for way in (pulls, pushes) for network in NETWORKS])
    for graph in graphs:
        exact_s, greedy_s = planning[graph.model]
        print(f"{graph.model:14} {len(pulls[graph.model, NETWORKS[0]][0])} layers, planned in", end="")
        print(f" {exact_s * 1e3:.1f} ms, greedily in {greedy_s * 1e3:.1f} ms")
    benchmark.pedantic(ibatch, args=(graphs[-1], NETWORKS[2]), rounds=5)


def test_greedy_over_exact_on_random_chains(benchmark) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(SEED)
    header()
    for num_layers in (10, 30, 100):
        for startup_s in (0.1, 1.0):
            uniform = [(rng.random(num_layers), rng.random(num_layers), startup_s) for _ in range(CHAINS)]
            show(f"uniform, {num_layers} layers, startup {startup_s}", uniform)
            skewed = [
                (rng.lognormal(-1, 1, num_layers), rng.lognormal(-1, 1, num_layers), startup_s)
                for _ in range(CHAINS)
            ]
            show(f"lognormal, {num_layers} layers, startup {startup_s}", skewed)
    benchmark.pedantic(optimal_batches, args=(rng.random(30), rng.random(30), 0.1), rounds=50)


@pytest.mark.parametrize("num_layers", [100, 400, 1_000])
@pytest.mark.parametrize("choose", [optimal_batches, greedy_batches])
def test_planning(benchmark, choose, num_layers: int) -> None:  # type: ignore[no-untyped-def]
    """Without a startup, where no number of batches is too many: the slowest case of the exact program."""
    rng = np.random.default_rng(SEED)
    chain = (rng.random(num_layers), rng.random(num_layers), 0.0)
    choose(*chain)
    benchmark.pedantic(choose, args=chain, rounds=7)
