"""Forecasts of the variants of ``bench shard``, for the step and the network as hocket measured them."""

from __future__ import annotations

import dataclasses

import msgspec
import torch.distributed as dist

from hocket.bench.sharding.sharded_variants import AHEAD
from hocket.bench.sharding.sharding_request import ASYNCHRONOUS, HOCKET, PLAIN, TWO_AHEAD, Forecast
from hocket.graph import Plan, StepGraph
from hocket.network import MeasuredLine, MeasuredReduction, Network
from hocket.network.file import Line
from hocket.runtime.sharding.share_costs import measured_line
from hocket.sim.lowering.beside import ASYNCHRONOUS_GATHERS, BLOCKING, STARTED
from hocket.sim.sharded_evaluator import ShardedEvaluator
from hocket.tuner.shard_plans import MOST_HELD


def forecasts(graph: StepGraph, network: Network, plain: Plan, planned: Plan) -> dict[str, Forecast]:
    """A forecast of each variant that communicates; ``plain``: a unit a block, ``planned``: hocket's."""
    ahead = _listed_ahead(plain)
    variants = {
        PLAIN: (plain, BLOCKING),
        TWO_AHEAD: (ahead, BLOCKING),
        ASYNCHRONOUS: (ahead, ASYNCHRONOUS_GATHERS),
        HOCKET: (planned, STARTED),
    }
    found = {}
    for name, (plan, beside) in variants.items():
        evaluator = ShardedEvaluator(graph, network, beside)
        found[name] = Forecast(
            step_s=evaluator.seconds(plan),
            full_bytes=evaluator.full_bytes(plan),
            held_bytes=evaluator.held_bytes(plan),
        )
    return found


def with_own_scatters(network: Network, largest_bytes: int) -> Network:
    """``network`` with the cost of gloo's own reduce-scatters, which plain FSDP2 has; all ranks call this.

    As it is where other collectives were not measured either.
    """
    reduction = network.reduction
    if reduction is None or reduction.halves is None or reduction.halves.scatter is not None:
        return network
    assert dist.group.WORLD is not None
    scatter = measured_line("scatter", dist.group.WORLD, largest_bytes)
    halves = dataclasses.replace(reduction.halves, scatter=scatter)
    return dataclasses.replace(network, reduction=dataclasses.replace(reduction, halves=halves))


def measured_costs(network: Network) -> dict[str, Line]:
    """The costs of collectives that forecasts go by, by their kind; none where none were measured."""
    reduction = network.reduction
    if reduction is None:
        return {}
    lines: dict[str, MeasuredReduction | MeasuredLine | None] = {"all-reduce": reduction}
    if reduction.halves is not None:
        lines["all-gather"] = reduction.halves.gather
        lines["all-to-all"] = reduction.halves.exchange
        lines["reduce-scatter"] = reduction.halves.scatter
    return {
        kind: Line(a_s=line.a_s, b_s_per_byte=line.b_s_per_byte)
        for kind, line in lines.items()
        if line is not None
    }


def limit_of_auto(graph: StepGraph, network: Network, own: Plan) -> float:
    """Bytes beside shards that plans of "auto" may hold, which begins with ``own``."""
    return MOST_HELD * ShardedEvaluator(graph, network, STARTED).held_bytes(own)


def _listed_ahead(plain: Plan) -> Plan:
    """The plan whose lists :func:`hocket.bench.sharding.sharded_variants.set_ahead` sets."""
    last = len(plain.units)
    return msgspec.structs.replace(
        plain,
        forward_prefetch=tuple(tuple(range(k + 1, min(k + 1 + AHEAD, last))) for k in range(last)),
        backward_prefetch=tuple(tuple(range(k - 1, max(k - 1 - AHEAD, -1), -1)) for k in range(last)),
    )
