"""Planners: a step and a network in, a plan out; one published algorithm a file."""

from hocket.planner.registry import POLICIES, plan

__all__ = ["POLICIES", "plan"]
