"""A prediction's request, whatever the numbers of workers and servers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hocket.errors import HocketError
from hocket.graph import Plan, StepGraph
from hocket.network import Network, check_window
from hocket.planner import Architecture, Barrier
from hocket.predictor.machines import ALIKE, Machines

Mode = Literal["async", "sync"]
Updates = Literal["arrival", "commit"]
_MOST_STEPS = 10**9
_TIMES_STEPS = 16  # how many times its steps a run that is not steady may go on, unless told


@dataclass(frozen=True, kw_only=True)
class Request:
    """A prediction that is asked for; :func:`hocket.predict` documents the fields.

    ``served``: there are numbers of servers to predict for.
    """

    graph: StepGraph
    network: Network
    machines: Machines = ALIKE
    mode: Mode | None = None
    architecture: Architecture | None = None
    served: bool = False
    barrier: Barrier | None = None
    policy: str | None = None
    plan: Plan | None = None
    updates: Updates = "arrival"
    window_bytes: float | None = None
    steps: int = 1000
    skip: int = 50
    max_steps: int | None = None
    seed: int = 0
    fusion_bytes: int = 0
    budget_s: float = 10.0
    clip: bool = False
    memory_bytes: float | None = None

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise HocketError(f"{self.steps} steps are no run; simulate at least 1")
        if self.steps > _MOST_STEPS:
            raise HocketError(f"{self.steps} steps are more than {_MOST_STEPS}; simulate fewer")
        if not 0 <= self.skip < self.steps:
            raise HocketError(f"skip {self.skip} is not from 0 to below the {self.steps} steps; skip fewer")
        if self.max_steps is not None and not self.steps <= self.max_steps <= _MOST_STEPS:
            raise HocketError(
                f"max steps {self.max_steps} are not from the {self.steps} steps to {_MOST_STEPS}; give more"
            )
        check_window(self.window_bytes)
        if self.plan is not None:
            fusion = f"{self.fusion_bytes} B" if self.fusion_bytes else None
            for what, value in (("policy", self.policy), ("barrier", self.barrier), ("fusion", fusion)):
                if value is not None:
                    raise HocketError(f"{what} '{value}' beside a plan, which has its own; leave it out")
            if self.architecture not in (None, self.plan.architecture):
                raise HocketError(f"the plan is for '{self.plan.architecture}', not '{self.architecture}'")

    @property
    def needs_servers(self) -> bool:
        """Tell whether anything is asked for that only parameter servers have."""
        machines = self.machines
        of_steps = self.mode == "async" or self.barrier is not None or self.updates == "commit"
        of_machines = machines.server_bps is not None or machines.spread or machines.backup > 0
        of_streams = self.window_bytes is not None or self.network.window_bits > 0
        return self.served or of_streams or of_steps or of_machines

    @property
    def most_steps(self) -> int:
        """The most steps of each worker that are simulated."""
        return min(_TIMES_STEPS * self.steps, _MOST_STEPS) if self.max_steps is None else self.max_steps
