"""Policies by name: the one list that the command line, the simulator's sweeps and the tuner use."""

from __future__ import annotations

from collections.abc import Callable

from hocket.errors import UnknownNameError
from hocket.graph import Plan, StepGraph
from hocket.network import Network
from hocket.planner import baselines
from hocket.planner.tac import tac
from hocket.planner.tic import tic

POLICIES: dict[str, Callable[[StepGraph, Network], Plan]] = {
    "fifo": baselines.fifo,
    "random": baselines.random,
    "reverse": baselines.reverse,
    "layerwise": baselines.layerwise,
    "tic": tic,
    "tac": tac,
}


def plan(graph: StepGraph, network: Network, policy: str, *, seed: int = 0) -> Plan:
    """Plan one step of ``graph`` on ``network`` by ``policy``; ``seed`` matters to random policies alone.

    Raises
    ------
    UnknownNameError
        When no policy has that name; lists those there are.
    """
    if policy not in POLICIES:
        raise UnknownNameError("policy", policy, list(POLICIES))
    if policy == "random":
        return baselines.random(graph, network, seed)
    return POLICIES[policy](graph, network)
