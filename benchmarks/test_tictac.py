"""TicTac in more detail than `hocket reproduce tictac`: every policy beside the bound, R^2 by noise.

4 workers, 1 server, 10 Gbit/s (sections 6.2 and 6.3, Fig. 13).
"""

from __future__ import annotations

import numpy as np
import pytest

from hocket.graph import StepGraph
from hocket.reproduce.tictac.tictac_measurements import JITTER, NETWORK, noisy_step, overlaps, ran
from hocket.sim import Result

STEPS = 1_000
SEED = 0
MORE_JITTER = 0.05


def r_squared(result: Result) -> float:
    """Of the straight line through overlap and step time."""
    return float(np.corrcoef(overlaps(result), result.row.iterations_s)[0, 1] ** 2)


def run(graph: StepGraph, policy: str) -> Result:
    return ran(graph, policy, NETWORK, STEPS, SEED)


@pytest.mark.parametrize("inference", [False, True], ids=["training", "inference"])
@pytest.mark.parametrize("model", ["resnet50_v1", "inception_v3", "inception_v2"])
def test_tictac(benchmark, model: str, inference: bool) -> None:  # type: ignore[no-untyped-def]
    graph = noisy_step(model, inference, JITTER)
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
    noisier = run(noisy_step(model, inference, MORE_JITTER), "random")
    print(f"  R^2 of overlap against step time over {STEPS} random orders:", end="")
    print(f" {r_squared(results['random']):.3f} at {JITTER:.0%} noise", end="")
    print(f", {r_squared(noisier):.3f} at {MORE_JITTER:.0%}")
