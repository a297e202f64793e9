"""A copy of the parameters in each node (HSDP): told beside a ranking of plans with one copy among all."""

from __future__ import annotations

from dataclasses import replace

from hocket.graph import StepGraph
from hocket.graph.clipped_step import clipped_for
from hocket.graph.result import ResultRow
from hocket.network import Network
from hocket.planner.named_planners import USUAL
from hocket.sim import simulate
from hocket.tuner.policies import Exchange, make_plan


def sharded_in_nodes(
    graph: StepGraph,
    network: Network,
    exchange: Exchange,
    *,
    iterations: int,
    seed: int,
) -> ResultRow | None:
    """The usual sharded policy's step with a copy in each node; None where that is no choice that is left.

    So where the exchange is another, groups were chosen, workers do not fill several nodes, or its plan
    needs more than the exchange's limit of memory.
    """
    nodes = network.nodes
    if exchange.architecture != "fsdp" or network.shards is not None or nodes is None:
        return None
    if not nodes.fills_several(network.num_workers):
        return None
    step = clipped_for(graph, "fsdp") if exchange.clip else graph
    grouped = replace(network, shards=nodes.gpus)
    planned = make_plan(graph, grouped, USUAL["fsdp"], exchange, seed=seed)
    row = simulate(step, planned.plan, grouped, iterations=iterations, seed=seed).row
    limit = exchange.memory_bytes
    return None if limit is not None and (row.memory_bytes or 0.0) > limit else row
