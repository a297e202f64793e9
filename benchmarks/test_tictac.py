"""TicTac's figures on derived K80 steps: 4 workers, 1 server, 10 Gbit/s (sections 6.2 and 6.3, Fig. 13).

The derived durations get lognormal noise, so that compute differs from step to step and worker to worker as
it does on hardware; without it overlap would follow from the step time alone and R^2 would be 1 by
definition. How much noise decides R^2, so it is printed for two amounts.
"""

from __future__ import annotations

import numpy as np
import pytest

from hocket import models
from hocket.graph import StepGraph
from hocket.network import Network
from hocket.planner import plan
from hocket.profiler import derive, fake
from hocket.sim import Result, simulate

NETWORK = Network(bandwidth_bps=10e9, num_workers=4, num_servers=1)
STEPS = 1_000
SEED = 0
JITTER = 0.01
MORE_JITTER = 0.05


def overlaps(result: Result) -> np.ndarray:
    """The overlap coefficient of each step, from its own compute time."""
    communication = result.row.communication_s
    shorter = np.minimum(communication, result.computes_s)
    return (communication + result.computes_s - np.array(result.row.iterations_s)) / shorter


def r_squared(result: Result) -> float:
    """Of the straight line through overlap and step time."""
    return float(np.corrcoef(overlaps(result), result.row.iterations_s)[0, 1] ** 2)


def k80(model: str, inference: bool, jitter: float) -> StepGraph:
    """The derived step at Table 1's batch size, 100 sampled steps of it."""
    with fake():
        setup = models.make(model, training=not inference)
        return derive(
            *setup, device="k80", inference=inference, name=model, samples=100, jitter=jitter, seed=SEED
        )


def run(graph: StepGraph, policy: str) -> Result:
    schedule = plan(graph, NETWORK, policy, seed=SEED)
    return simulate(graph, schedule, NETWORK, iterations=STEPS, seed=SEED, random_order=policy == "random")


@pytest.mark.parametrize("inference", [False, True], ids=["training", "inference"])
@pytest.mark.parametrize("model", ["resnet50_v1", "inception_v3", "inception_v2"])
def test_tictac(benchmark, model: str, inference: bool) -> None:  # type: ignore[no-untyped-def]
    graph = k80(model, inference, JITTER)
    benchmark.pedantic(run, args=(graph, "random"), rounds=1)
    results = {policy: run(graph, policy) for policy in ("random", "fifo", "tic", "tac")}
    drawn, tac = results["random"].row, results["tac"].row
    print(f"\n{model} {'inference' if inference else 'training'}: batch {graph.batch_size}", end="")
    print(f", {graph.num_operations} operations, C {tac.compute_s:.4f} s, rho {tac.rho:.3f}")
    for policy, result in results.items():
        row = result.row
        print(f"  {policy:7} mean {row.iteration_s:.4f} s, p95 {row.iteration_p95_s:.4f} s", end="")
        print(f", overlap {row.overlap:.3f}, straggler mean {row.straggler_fraction:.2%}", end="")
        print(f", over bound {row.iteration_s / row.bound_s - 1:.2%}", end="")
        print(f", fastest / p95 {min(row.iterations_s) / row.iteration_p95_s:.3f}")
    gain, gain_p95 = (t / tac.iteration_s - 1 for t in (drawn.iteration_s, drawn.iteration_p95_s))
    print(f"  tac over random: throughput {gain:+.1%}, over its p95 {gain_p95:+.1%}")
    noisier = run(k80(model, inference, MORE_JITTER), "random")
    print(f"  R^2 of overlap against step time over {STEPS} random orders:", end="")
    print(f" {r_squared(results['random']):.3f} at {JITTER:.0%} noise", end="")
    print(f", {r_squared(noisier):.3f} at {MORE_JITTER:.0%}")
