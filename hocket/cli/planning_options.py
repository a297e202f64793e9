"""Options for how a step is planned: by which policy, for which exchange of gradients, for how long."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from hocket.cli.name_options import complete_policy, lowercase
from hocket.cli.panels import PLANNING, option
from hocket.errors import HocketError
from hocket.network import parse_bytes, parse_duration

if TYPE_CHECKING:
    from hocket.graph import Plan

_POLICY = {"panel": PLANNING, "metavar": "NAME", "callback": lowercase, "autocompletion": complete_policy}
PlanFile = Annotated[
    Path | None,
    option("--plan", panel=PLANNING, metavar="FILE", help="A hocket.plan/1 file instead of a policy."),
]
Budget = Annotated[
    str,
    option(
        "--budget",
        panel=PLANNING,
        rare=True,
        metavar="TIME",
        help="For how long search, or the exact planner, may go on.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class ExchangeOptions:
    """Options for how gradients are exchanged."""

    architecture: Annotated[
        Literal["ps", "allreduce", "fsdp"] | None,
        option(
            "--architecture",
            panel=PLANNING,
            help="The exchange of gradients; fsdp: fully sharded (FSDP2).",
            show_default="the policy's; ps if an option is for servers; else allreduce",
        ),
    ] = None
    barrier: Annotated[
        Literal["step", "parameter"] | None,
        option(
            "--barrier",
            panel=PLANNING,
            rare=True,
            help="Parameter servers: what a worker waits for.",
            show_default="the policy's",
        ),
    ] = None

    clip: Annotated[
        bool,
        option(
            "--clip", panel=PLANNING, help="The step clips its gradients by their norm (not with servers)."
        ),
    ] = False

    memory: Annotated[
        str | None,
        option(
            "--memory",
            panel=PLANNING,
            rare=True,
            metavar="SIZE",
            help="Fully sharded: the memory of a worker's device, 40GB, which plans keep to.",
            show_default="no limit",
        ),
    ] = None
    shards: Annotated[
        int | None,
        option(
            "--shards",
            panel=PLANNING,
            rare=True,
            metavar="N",
            help="Fully sharded: workers that share one copy (HSDP); all-reduces between such groups.",
            show_default="all workers",
        ),
    ] = None

    def memory_bytes(self) -> float | None:
        """The memory that ``--memory`` gives; None without."""
        if self.memory is None:
            return None
        size = parse_bytes(self.memory)
        if size <= 0:
            raise HocketError(f"memory '{self.memory}' holds nothing; give e.g. 40GB")
        return size

    def check_sharded(self, architecture: str) -> None:
        """Refuse what only fully sharded training has, and would be passed over."""
        if architecture == "fsdp":
            return
        for option_name, value in (("memory", self.memory), ("shards", self.shards)):
            if value is not None:
                raise HocketError(
                    f"--{option_name} {value} is for fully sharded plans; give --architecture fsdp too, or"
                    " leave it out"
                )

    def check_beside(self, schedule: Plan, path: Path) -> None:
        """Refuse what the plan of a file decides."""
        asked = self.architecture
        if asked not in (None, schedule.architecture):
            raise HocketError(f"{path} is for '{schedule.architecture}', not '{asked}'; leave it out")
        if self.barrier is not None:
            raise HocketError(f"barrier '{self.barrier}': {path} has its own; change it there")


@dataclass(frozen=True, kw_only=True)
class PlannerOptions:
    """Options for planners: what they may put together, and how long they may take."""

    fusion: Annotated[
        str,
        option(
            "--fusion",
            panel=PLANNING,
            rare=True,
            metavar="SIZE",
            help="Horovod's buffer: 64MB; 0B fuses nothing.",
        ),
    ] = "0B"
    budget: Budget = "10s"

    def fusion_bytes(self) -> int:
        """The buffer that ``--fusion`` asks for, in whole bytes."""
        return int(parse_bytes(self.fusion))

    def budget_s(self) -> float:
        """The time that ``--budget`` gives."""
        return parse_duration(self.budget)


@dataclass(frozen=True, kw_only=True)
class PlanningOptions(PlannerOptions, ExchangeOptions):
    """Options for plans by any policy."""


@dataclass(frozen=True, kw_only=True)
class _OnePolicy:
    policy: Annotated[
        str | None,
        option(
            "--policy",
            help="Plan by this policy: tac, caramel; a wrong name lists all.",
            show_default="none; hocket tune ranks them",
            **_POLICY,
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class PolicyPlanningOptions(PlanningOptions, _OnePolicy):
    """Options for a plan by one policy."""


@dataclass(frozen=True, kw_only=True)
class _PolicyOrPlan:
    policy: Annotated[
        str | None,
        option(
            "--policy",
            help="Plan by this policy: tac, caramel; a wrong name lists all.",
            show_default="ddp with all-reduce, fifo with servers",
            **_POLICY,
        ),
    ] = None
    plan: PlanFile = None


@dataclass(frozen=True, kw_only=True)
class PlanOrPlanningOptions(PlanningOptions, _PolicyOrPlan):
    """Options for a plan by one policy, or that of a file."""
