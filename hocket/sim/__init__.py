"""The simulator: a step and a plan lowered to a program, a numba event loop that runs it, and its limits."""

from hocket.sim.simulation import Result, check_iterations, simulate

__all__ = ["Result", "check_iterations", "simulate"]
