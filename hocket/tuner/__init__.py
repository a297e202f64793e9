"""The tuner: planners that ask the simulator, and the ranking of all of them on one step and network."""

from hocket.tuner.policies import Exchange, PlannedPolicy, make_plan, plan, policy_names
from hocket.tuner.ranking import Tuning, tune

__all__ = ["Exchange", "PlannedPolicy", "Tuning", "make_plan", "plan", "policy_names", "tune"]
