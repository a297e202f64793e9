"""A step without the clipping that it was planned with, to stand beside it."""

from __future__ import annotations

from hocket.graph import ResultRow, StepGraph
from hocket.network import Network
from hocket.planner import Architecture, policies_of
from hocket.planner.named_planners import USUAL
from hocket.sim import simulate
from hocket.tuner.policies import Exchange, make_plan


def best_unclipped(
    graph: StepGraph, network: Network, architecture: Architecture, *, iterations: int, seed: int = 0
) -> ResultRow:
    """The row of the shortest step of ``graph``, which does not clip, among policies of all-reduce.

    Fully sharded, of the usual policy's: updates wait for all gradients there anyway.
    """
    policies = [USUAL["fsdp"]] if architecture == "fsdp" else policies_of(architecture)
    rows = []
    for policy in policies:
        made = make_plan(graph, network, policy, Exchange(architecture=architecture), seed=seed)
        result = simulate(
            graph, made.plan, network, iterations=iterations, seed=seed, random_order=made.drawn_anew
        )
        rows.append(made.with_bounds(result.row))
    return min(rows, key=lambda row: row.iteration_s)
