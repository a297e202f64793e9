"""Planners, one algorithm a file."""

from hocket.planner.named_planners import POLICIES, Architecture, Barrier, NamedPlanner, plan, policies_of

__all__ = ["POLICIES", "Architecture", "Barrier", "NamedPlanner", "plan", "policies_of"]
