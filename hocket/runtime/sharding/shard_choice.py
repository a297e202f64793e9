"""The choice of a plan for sharded training: what is in force, why, and what the next run begins with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hocket.graph import Plan, StepGraph
from hocket.network import Network


def _say_nothing(_: str) -> None:
    """Say nothing, as all ranks but the first."""


@dataclass
class ShardChoice:
    """The way to a plan.

    ``plan``: in force; ``next_plan``: what is kept for the next run, where units would have to change;
    ``phase``: what the present steps are for, "settled" where the plan stays, for the reason ``why``;
    ``graph``: the step as it was profiled; ``planned_compute_s``: what the step computes for which a kept
    plan was made, None for others; ``network``: as it was given or measured; ``remarks``: what was said on
    the way.
    """

    plan: Plan
    ranks: int
    phase: str = "learning"
    why: str = ""
    next_plan: Plan | None = None
    graph: StepGraph | None = None
    planned_compute_s: float | None = None
    network: Network | None = None
    network_given: bool = False
    remarks: list[str] = field(default_factory=list)
    report: Callable[[str], None] = _say_nothing

    @property
    def settled(self) -> bool:
        """True if the plan in force stays in this run."""
        return self.phase == "settled"

    def settle(self, why: str) -> None:
        """Have the plan in force stay, for this reason."""
        self.phase, self.why = "settled", why
        self.report(f"plan '{self.plan.policy}' stays: {why}")

    def remark(self, text: str) -> None:
        """Say ``text`` now, and in explain()."""
        self.remarks.append(text)
        self.report(text)
