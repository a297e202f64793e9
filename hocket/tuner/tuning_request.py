"""The request that ``tune`` serves, checked: a step, its network, and what may be done about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hocket.graph import StepGraph
from hocket.network import Network
from hocket.planner import Architecture, Barrier
from hocket.tuner.policies import can_be_exact


@dataclass(frozen=True, kw_only=True)
class TuningRequest:
    """A request to rank plans of ``graph``, which clips if ``clip``; options as in :func:`hocket.tune`."""

    graph: StepGraph
    network: Network
    architecture: Architecture
    barrier: Barrier | None
    fusion_bytes: int
    clip: bool
    memory_bytes: float | None
    iterations: int
    seed: int
    budget_s: float
    report: Callable[[str, float, float], None]

    @property
    def is_exact(self) -> bool:
        """True if ``exact`` can plan the step."""
        return can_be_exact(self.graph, self.network, self.architecture, self.barrier, self.clip)
