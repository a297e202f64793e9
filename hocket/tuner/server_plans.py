"""Plans for training with parameter servers: which policies need a profile, and what they make of it."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from hocket.errors import HocketError
from hocket.graph import Plan, StepGraph
from hocket.network import Network
from hocket.planner import Barrier
from hocket.planner import plan as plan_by_policy
from hocket.tuner.plan_argument import PlanArgument, resolve_argument
from hocket.tuner.policies import Exchange, make_plan

_UNPROFILED = ("fifo", "random", "reverse", "default")
_BEST = "tac"


@dataclass(frozen=True)
class ServingPlanner:
    """Plans by ``policy``, "auto" being TAC; until the profile is there, in the order of the model.

    ``barrier``: the one that servers keep, whatever is the policy's own.
    """

    policy: str
    seed: int
    barrier: Barrier = "step"

    @property
    def drawn_anew(self) -> bool:
        """True if pulls go in an order that is drawn for each step."""
        return self.policy == "random"

    def first_plan(self, graph: StepGraph) -> Plan:
        """The plan of a policy that needs no profile, else fifo."""
        policy = self.policy if self.policy in _UNPROFILED else "fifo"
        plan = plan_by_policy(graph, Network(), policy, barrier=self.barrier)
        # Gradients come in about the reverse order of what a model is made of.
        return msgspec.structs.replace(plan, pushes=plan.pushes[::-1])

    def measured_plan(self, graph: StepGraph, network: Network) -> Plan | None:
        """The plan of a policy that needs a profile."""
        if self.policy in _UNPROFILED:
            return None
        policy = _BEST if self.policy == "auto" else self.policy
        exchange = Exchange(architecture="ps", barrier=self.barrier)
        return make_plan(graph, network, policy, exchange, seed=self.seed).plan


def resolve_server_plan(argument: PlanArgument) -> tuple[Plan | None, str]:
    """The plan that is given, or that a file holds, and else the policy that is to make one.

    Raises
    ------
    FormatError, HocketError
        When it is neither, or a plan that is not for parameter servers.
    """
    given, policy = resolve_argument(argument, "ps")
    if given is not None and given.architecture != "ps":
        raise HocketError(
            f"plan '{given.policy}' is for '{given.architecture}'; with servers training takes one for 'ps'"
        )
    return given, policy
