"""The exchange of a step in a sentence: what is sent, and rho, its time over that of computing."""

from __future__ import annotations

from typing import Any

from hocket.graph import StepGraph
from hocket.network import Network
from hocket.planner.named_planners import USUAL
from hocket.predictor.prediction import Prediction
from hocket.predictor.prediction_request import Request
from hocket.predictor.prepared import Prepared, prepare
from hocket.sim.lowering.sharded_step import ShardedStep
from hocket.text import counted, rho_text, scaled_text

_SLOW_PLANNERS = ("search", "exact")  # which plan for as long as they may


def exchange_line(graph: StepGraph, network: Network, asked: dict[str, Any], row: Prediction) -> str:
    """A sentence on the bytes of a step and on rho, with as many workers as ``row``; "" for one alone.

    ``asked``: what :func:`hocket.predict` was asked beside workers and servers. Where a planner takes its
    time, the usual plan's transfers count.
    """
    if row.workers == 1 and not row.servers:
        return ""
    if asked.get("policy") in _SLOW_PLANNERS:
        asked = {**asked, "policy": USUAL[row.architecture]}
    prepared = prepare(Request(graph=graph, network=network, **asked), row.workers, row.servers or 1)
    lowered = prepared.lowered if prepared.plan.architecture == "ps" else prepared.lowered_for_one
    computing_s = float(lowered.durations_s.sum(axis=1).mean()) / min(prepared.speeds)
    if computing_s <= 0:
        return f"each step {_sent(prepared)}"
    rho = rho_text(lowered.communication_s / computing_s)
    return (
        f"each step {_sent(prepared)}; with {row.machines} these transfers, by {prepared.plan.policy}, take"
        f" {rho} times as long as computing does (rho {rho})"
    )


def _sent(prepared: Prepared) -> str:
    """The bytes that a step exchanges, in words."""
    graph = prepared.request.graph
    gradients = scaled_text(float(graph.parameter_bytes[graph.produced].sum()), "B")
    if prepared.plan.architecture == "allreduce":
        return f"sums up {gradients} of gradients over all workers"
    if prepared.plan.architecture == "ps":
        demand = prepared.step_on_servers.demand
        pulled, pushed = (
            scaled_text(float(bits.sum()) / 8, "B") for bits in (demand.pull_bits, demand.push_bits)
        )
        return f"pulls {pulled} to each worker and pushes {pushed} from it"
    collectives = ShardedStep.of(graph, prepared.network).schedule(prepared.plan).collectives
    gathered = [each.size_bytes for each in collectives if each.kind == "gather"]
    size, number = scaled_text(float(sum(gathered)), "B"), counted(len(gathered), "transfer")
    return f"gathers {size} of parameters in {number} and sums up {gradients} of gradients"
