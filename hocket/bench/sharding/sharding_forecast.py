"""Forecasts of the variants of ``bench shard``, for the step and the network as hocket measured them."""

from __future__ import annotations

import msgspec

from hocket.bench.sharding.sharded_variants import AHEAD
from hocket.bench.sharding.sharding_request import ASYNCHRONOUS, HOCKET, PLAIN, TWO_AHEAD, Forecast
from hocket.graph import Plan, StepGraph
from hocket.network import Network
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
