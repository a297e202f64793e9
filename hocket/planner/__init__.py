"""Planners, one algorithm a file."""

from hocket.planner.registry import POLICIES, Architecture, Barrier, Policy, plan, policies_of

__all__ = ["POLICIES", "Architecture", "Barrier", "Policy", "plan", "policies_of"]
