"""Caramel on derived K80 steps in more detail than `hocket reproduce caramel`: every policy, search, DDP.

10 Gbit/s, 8 and 16 workers (sections 6.1 to 6.3, Figs. 8 to 14). Batch sizes are those of TicTac's Table 1:
the same authors, models and GPUs. What the network costs is in hocket.reproduce.caramel.systems.
"""

from __future__ import annotations

import pytest

from hocket.graph import Plan, ResultRow, StepGraph
from hocket.network import PATTERNS, Network, PatternChoice, choose_pattern, reduction_s
from hocket.planner import plan
from hocket.planner.caramel.caramel import caramel
from hocket.planner.caramel.gradient_batches import depth_of, fit_network
from hocket.reproduce.caramel import systems
from hocket.reproduce.caramel.systems import MODELS, SPLITS, fusion, reducing, sent_as_ready, stages
from hocket.reproduce.steps import derived as k80
from hocket.tuner import Exchange, make_plan

# What is simulated: every policy on a ring, as Horovod's MPI and NCCL run it, and on the cheapest pattern.
NETWORKS: tuple[tuple[PatternChoice, str], ...] = (
    ("ring", "alpha waits"),
    ("cheapest", "alpha waits"),
    ("cheapest", "alpha occupies"),
    ("ring", "50 us wait"),
    ("cheapest", "50 us wait"),
)
SEARCHED = NETWORKS[:2]
BUDGET_S = 3.0
ITERATIONS = 20
SEED = 0
KIB = 1024


def run(graph: StepGraph, made: Plan, network: Network) -> ResultRow:
    return systems.run(graph, made, network, steps=ITERATIONS, seed=SEED)


def show(label: str, row: ResultRow) -> None:
    print(f"  {label:18} T {row.iteration_s:7.4f} s  U {row.utilization:6.1%}", end="")
    print(f"  N {row.communication_s:7.4f} s  alpha {row.overlap:5.2f}", end="")
    print(f"  over bound {row.iteration_s / row.bound_s - 1:7.1%}")


@pytest.mark.parametrize("workers", [8, 16])
@pytest.mark.parametrize("model", MODELS)
def test_beside_other_systems(benchmark, model: str, workers: int) -> None:  # type: ignore[no-untyped-def]
    """Iteration time and utilization (Figs. 8, 9), network time and overlap (Fig. 10)."""
    graph = k80(model)
    rows: dict[tuple[PatternChoice, str, str], ResultRow] = {}
    for pattern, split in NETWORKS:
        network = reducing(pattern, split, workers)
        plans = {name: plan(graph, network, name) for name in ("wfbp", "horovod", "ddp", "caramel")}
        plans["horovod, 64 MiB"] = plan(graph, network, "horovod", fusion_bytes=fusion(graph))
        if (pattern, split) in SEARCHED:
            plans["search"] = make_plan(
                graph, network, "search", Exchange(architecture="allreduce"), seed=SEED, budget_s=BUDGET_S
            ).plan
        print(f"\n{model}, batch {graph.batch_size}, {workers} workers, {pattern} pattern, {split}")
        for name, made in plans.items():
            rows[pattern, split, name] = run(graph, made, network)
            show(name, rows[pattern, split, name])
    for split in ("alpha waits", "50 us wait"):
        print(f"{model}, {workers} workers, parameter servers, {split}")
        for servers in (workers, workers // 2):
            network = Network(startup_s=SPLITS[split][0], num_workers=workers, num_servers=servers)
            for name in ("random", "tac"):
                row = run(graph, plan(graph, network, name, seed=SEED), network)
                show(f"{name}, {servers} servers", row)
    mpi = rows["ring", "alpha waits", "wfbp"]
    for pattern, split in NETWORKS[:3]:
        ours = rows[pattern, split, "caramel"]
        print(f"caramel ({pattern} pattern, {split}) over unfused Horovod on a ring:", end="")
        print(f" {mpi.iteration_s / ours.iteration_s:.2f}x, network time", end="")
        print(f" {ours.communication_s / mpi.communication_s - 1:+.0%}", end="")
        print(f", overlap {ours.overlap - mpi.overlap:+.2f}")
        # The best that a framework does without Caramel, on the same pattern.
        theirs = min(rows[pattern, split, n].iteration_s for n in ("ddp", "horovod", "horovod, 64 MiB"))
        print(f"  over the best of ddp and horovod on that network: {theirs / ours.iteration_s:.2f}x")
    benchmark.pedantic(caramel, args=(graph, reducing("cheapest", "alpha waits", workers)), rounds=3)


@pytest.mark.parametrize(("pattern", "split"), NETWORKS[:3])
def test_contributions(benchmark, pattern: PatternChoice, split: str) -> None:  # type: ignore[no-untyped-def]
    """Each stage on top of those before (Figs. 11, 12), from Horovod unfused on a ring.

    Horovod runs any ready operation first, Caramel without its order stage the program's: a line apart.
    The last line sends, of the whole plan's reductions, the first listed of those that are ready.
    """
    for model, workers in [*((model, 8) for model in MODELS), ("vgg16", 16)]:
        graph = k80(model)
        network, mpi = reducing(pattern, split, workers), reducing("ring", "alpha waits", workers)
        print(f"\n{model}, {workers} workers, {pattern} pattern, {split}")
        show("horovod on a ring", run(graph, plan(graph, mpi, "wfbp"), mpi))
        show("  program order", run(graph, plan(graph, mpi, "horovod"), mpi))
        for label, made in stages(graph, network).items():
            show(f"+ {label}", run(graph, made, network))
        show("  sent as ready", run(graph, sent_as_ready(made), network))
    benchmark.pedantic(caramel, args=(k80("inception_v3"), network), rounds=3)


def test_depth(benchmark) -> None:  # type: ignore[no-untyped-def]
    """Milliseconds of a reduction by size and number of chunks (Fig. 13): shuffle, 8 workers."""
    for split in ("alpha waits", "alpha occupies", "5 : 2"):
        network = reducing("shuffle", split, 8)
        model = fit_network(network)
        print(f"\n{split}: threshold {model.threshold_bytes / 1e6:.2f} MB")
        print(f"  {'bytes':>9} {1:>9} {2:>9} {4:>9} {8:>9}  adaptive  over one chunk")
        for size in (10**3, 10**4, 10**5, 10**6, 10**7, 10**8):
            fixed = [reduction_s(network, size, chunks) for chunks in (1, 2, 4, 8)]
            chosen = depth_of(size, network, model)
            adaptive = reduction_s(network, size, chosen)
            print(f"  {size:9d}" + "".join(f" {s * 1e3:9.3f}" for s in fixed), end="")
            print(f"  {adaptive * 1e3:.3f} ({chosen} chunks) {adaptive / fixed[0] - 1:+.1%}")
    benchmark.pedantic(fit_network, args=(reducing("cheapest", "alpha waits", 8),), rounds=3)


def test_patterns(benchmark) -> None:  # type: ignore[no-untyped-def]
    """Milliseconds of a reduction by pattern and number of workers, small and large (Fig. 14)."""
    for split in ("alpha waits", "alpha occupies", "5 : 2"):
        for size in (4 * KIB, 100 * KIB * KIB):
            print(f"\n{split}, {size} B")
            print(" workers" + "".join(f" {pattern:>16}" for pattern in PATTERNS) + "  cheapest")
            for workers in (2, 4, 8, 16, 32, 64):
                print(f" {workers:7d}", end="")
                for pattern in PATTERNS:
                    print(f" {reduction_s(reducing(pattern, split, workers), size) * 1e3:16.3f}", end="")
                print(f"  {choose_pattern(reducing('cheapest', split, workers), size)}")
    benchmark.pedantic(reduction_s, args=(reducing("cheapest", "5 : 2", 8), 4 * KIB), rounds=3)
