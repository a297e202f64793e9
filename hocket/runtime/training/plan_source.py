"""The source of a training's plans: a plan that is given, or a planner, and the network to plan for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from hocket.graph import Plan
from hocket.network import Network
from hocket.runtime.training.choice_folder import ChoiceFolder

P = TypeVar("P")


@dataclass(frozen=True, kw_only=True)
class PlanSource(Generic[P]):
    """The source of a training's plans.

    Attributes
    ----------
    planner : the planner that is asked where no plan is given.
    plan : the plan that is given; None: the planner's.
    network : the network to plan for; None: it is measured.
    network_grade : how far that network is off what was timed, where plans by it may be as far off; else "".
    choices : the folder of the choices of earlier runs; None: nothing is kept.
    """

    planner: P
    plan: Plan | None = None
    network: Network | None = None
    network_grade: str = ""
    choices: ChoiceFolder | None = None
