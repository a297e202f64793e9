"""The paper's testbed as one worker sees it: nodes that share 8 blades, servers that hold slices.

The paper does not say how fast its nodes are, and nothing is chosen to meet its figures. From its testbed:
nodes are virtual machines on 8 blades with 10 Gbit/s each, so that W nodes get 8 / W of that, at most 10
Gbit/s. The startup is that of the contention paper, half of a = 6.69e-4 s.

Servers hold equal slices of every parameter, as BigDL's do. All nodes then do the same at the same time: a
worker moves its bytes at its own bandwidth, and one worker and one server stand for all. Updates are slices
too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import msgspec
import numpy as np

from hocket.graph import Csr, Phase, Plan, ResultRow, StepGraph
from hocket.network import Network
from hocket.planner import plan
from hocket.sim import simulate

POLICIES = ("default", "layerwise", "ibatch-greedy", "ibatch")
BLADES = 8
STARTUP_S = 6.69e-4 / 2

Pushes = Literal["together", "own", "free"]
"""All in one batch after backward, as in Fig. 5; the policy's own; or none, as gradients so sparse that they
cost nothing (Fig. 6)."""


def one_of(nodes: int, startup_s: float = STARTUP_S, bandwidth_bps: float | None = None) -> Network:
    """The network as one of ``nodes`` nodes sees it."""
    return Network(bandwidth_bps=bandwidth_bps or 10e9 * min(1.0, BLADES / nodes), startup_s=startup_s)


def on_sliced_servers(graph: StepGraph, nodes: int) -> StepGraph:
    """Each server updates its slice of every parameter."""
    part = np.where(graph.phases == Phase.UPDATE, 1 / nodes, 1.0)
    return replace(graph, durations_s=graph.durations_s * part[:, None])


def without_gradients(graph: StepGraph) -> StepGraph:
    """All operations, and nothing to push."""
    return replace(graph, produces=Csr.from_rows([[] for _ in range(graph.num_operations)]))


def rows_of(graph: StepGraph, network: Network, nodes: int, pushes: Pushes) -> dict[str, ResultRow]:
    """Every policy's step."""
    sliced = on_sliced_servers(graph, nodes)
    together = plan(sliced, network, "default").pushes
    change: dict[str, Callable[[Plan], Plan]] = {
        "together": lambda made: msgspec.structs.replace(made, pushes=together),
        "own": lambda made: made,
        "free": lambda made: msgspec.structs.replace(made, pushes=()),
    }
    step = without_gradients(sliced) if pushes == "free" else sliced
    made = {policy: change[pushes](plan(sliced, network, policy)) for policy in POLICIES}
    return {policy: simulate(step, made[policy], network, iterations=1).row for policy in POLICIES}


def speedup(graph: StepGraph, row: ResultRow, nodes: int) -> float:
    """Over one node that computes and updates without a network."""
    return nodes * float(graph.oracle_s.sum()) / row.iteration_s


def matching_default(graph: StepGraph, nodes: int, speedup: float, startup_s: float) -> Network:
    """The network on which ``default`` comes to that speedup, pushes in one batch."""
    step_s = nodes * float(graph.oracle_s.sum()) / speedup
    sliced = on_sliced_servers(graph, nodes)
    moving_s = (step_s - float(sliced.oracle_s.sum())) / 2 - startup_s
    return one_of(nodes, startup_s, 8 * float(graph.parameter_bytes.sum()) / moving_s)
