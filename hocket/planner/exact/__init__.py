"""The optimum of small steps, proven by constraint programming: what other planners are measured against."""

from hocket.planner.exact.optimum import Optimum, check_exact, exact

__all__ = ["Optimum", "check_exact", "exact"]
