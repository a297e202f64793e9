"""Policies by name: the one list that the command line, the demo and the tuner use."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import msgspec

from hocket.errors import HocketError, UnknownNameError
from hocket.graph import Plan, StepGraph
from hocket.network import Network
from hocket.planner import allreduce_baselines, baselines
from hocket.planner.bytescheduler import bytescheduler
from hocket.planner.caramel.caramel import caramel
from hocket.planner.p3 import p3
from hocket.planner.sharded import unit_baselines

Architecture = Literal["ps", "allreduce", "fsdp"]
Barrier = Literal["step", "parameter"]


@dataclass(frozen=True)
class NamedPlanner:
    """A planner and the architecture it plans for.

    ``drawn_anew``: a plan holds one of the orders that chance may take; a simulation draws them anew for
    every worker and step.
    """

    make: Callable[[StepGraph, Network], Plan]
    architecture: Architecture = "ps"
    drawn_anew: bool = False


def _loaded_late(name: str) -> Callable[[StepGraph, Network], Plan]:
    """The planner of that name, in the module of that name, whose kernels load when it first plans."""

    def make(graph: StepGraph, network: Network) -> Plan:
        made: Plan = getattr(importlib.import_module(f"hocket.planner.{name}"), name)(graph, network)
        return made

    return make


POLICIES: dict[str, NamedPlanner] = {
    "fifo": NamedPlanner(baselines.fifo),
    "random": NamedPlanner(baselines.random, drawn_anew=True),
    "reverse": NamedPlanner(baselines.reverse),
    "default": NamedPlanner(baselines.default),
    "layerwise": NamedPlanner(baselines.layerwise),
    "poseidon": NamedPlanner(baselines.poseidon),
    "tic": NamedPlanner(_loaded_late("tic")),
    "tac": NamedPlanner(_loaded_late("tac")),
    "ibatch-greedy": NamedPlanner(_loaded_late("ibatch_greedy")),
    "ibatch": NamedPlanner(_loaded_late("ibatch")),
    "p3": NamedPlanner(p3),
    "wfbp": NamedPlanner(allreduce_baselines.wfbp, "allreduce", drawn_anew=True),
    "ddp": NamedPlanner(allreduce_baselines.ddp, "allreduce"),
    "horovod": NamedPlanner(allreduce_baselines.horovod, "allreduce"),
    "caramel": NamedPlanner(caramel, "allreduce"),
    "bytescheduler": NamedPlanner(bytescheduler, "allreduce"),
    "fsdp": NamedPlanner(unit_baselines.fsdp, "fsdp"),
    "fsdp-zero2": NamedPlanner(unit_baselines.zero2, "fsdp"),
    "fsdp-tic": NamedPlanner(unit_baselines.fsdp_tic, "fsdp"),
    "fsdp-tac": NamedPlanner(unit_baselines.fsdp_tac, "fsdp"),
}

BUILT_IN = dict(POLICIES)
"""Those that every process has; a script may add others, or its own in their place."""

_IN_HALVES: dict[str, Callable[..., Plan]] = {"caramel": caramel, "bytescheduler": bytescheduler}

USUAL: dict[str, str] = {"allreduce": "ddp", "ps": "fifo", "fsdp": "fsdp"}
"""The policy of each architecture that others are compared with: DDP's buckets, parameters in file order, and
FSDP2's default."""

UNDER_MEMORY = ("fsdp-ibatch", "simplefsdp")
"""Fully sharded policies of the tuner's that keep to a limit of memory: a simulation says what they need."""

BEST_BUCKETS = "ddp-best"
"""DDP with its best bucket size: a policy of the tuner's, since a simulation decides which one that is."""


SEARCH = "search"
"""What changes the plans of policies, as long as it has time, and keeps what makes the step shorter."""


def policies_of(architecture: Architecture) -> list[str]:
    """The names of the policies for ``architecture``."""
    return [name for name, policy in POLICIES.items() if policy.architecture == architecture]


def plan(
    graph: StepGraph,
    network: Network,
    policy: str,
    *,
    seed: int = 0,
    fusion_bytes: int = 0,
    barrier: Barrier | None = None,
    halves: bool = False,
) -> Plan:
    """Plan one step of ``graph`` on ``network`` by ``policy``.

    ``seed`` matters to ``random`` alone, ``fusion_bytes`` to ``horovod``; ``barrier`` replaces the policy's
    own (parameter servers); ``halves``: of a step that clips, policies that can may cut reductions in halves.

    Raises
    ------
    UnknownNameError
        When no policy has that name; lists those there are.
    HocketError
        When an option does not apply to the policy, or a fusion buffer is smaller than a parameter.
    """
    if policy not in POLICIES:
        raise UnknownNameError("policy", policy, list(POLICIES))
    if fusion_bytes and policy != "horovod":
        raise HocketError(f"fusion {fusion_bytes} B: policy '{policy}' fuses nothing; only horovod does")
    if barrier is not None and POLICIES[policy].architecture != "ps":
        raise HocketError(
            f"barrier '{barrier}': policy '{policy}' is for all-reduce, which has none to choose"
        )
    if policy == "random":
        made = baselines.random(graph, network, seed)
    elif policy == "horovod":
        made = allreduce_baselines.horovod(graph, network, fusion_bytes)
    elif halves and policy in _IN_HALVES:
        made = _IN_HALVES[policy](graph, network, halves=True)
    else:
        made = POLICIES[policy].make(graph, network)
    return made if barrier is None else msgspec.structs.replace(made, barrier=barrier)
