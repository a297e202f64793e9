"""The simulator's bound and forecast for the step and the network that hocket's runtime measured.

The bound is of operations that take as long as beside a network that is always busy. Where N / C is less than
1 it is busy during a part of a step only, and what no plan beats is slightly less.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hocket.graph import Plan, StepGraph
from hocket.network import MeasuredReduction, Network
from hocket.sim import simulate
from hocket.sim.bounds.lower_bound import lower_bound
from hocket.sim.lowering.slices import slice_graph

_STEPS = 50
_SLICES = 256


def simulated_s(graph: StepGraph, plan: Plan, network: Network) -> float:
    """Seconds a step that the simulator expects of ``plan``."""
    return simulate(graph, plan, network, iterations=_STEPS).row.iteration_s


def critical_cycle_s(graph: StepGraph, network: Network, *, compute_s: float, network_s: float) -> float:
    """The simulator's bound where operations take ``compute_s`` in all and all-reduces ``network_s``.

    It is of gradients in slices of 1 / 256 of all bytes, whatever the plan in force has: where nothing
    overtakes a large gradient less is possible, and what a plan forgoes is not to be its limit.

    From ``graph`` comes in which proportions operations share ``compute_s``, and what waits for what from one
    step to the next; gradients share ``network_s`` by their bytes. Taken as they are, ``graph`` and
    ``network`` were measured earlier and otherwise than what the bound is to be held against, and a machine
    that was slower then would pass for a cycle.
    """
    typical = graph.typical()
    scaled = replace(typical, durations_s=typical.durations_s * (compute_s / typical.durations_s.sum()))
    trained_bytes = int(graph.parameter_bytes[graph.produced].sum())
    slices = np.where(graph.produced, -(-_SLICES * graph.parameter_bytes // trained_bytes), 1)
    cut, _ = slice_graph(scaled, np.maximum(slices, 1))
    per_byte = network_s / trained_bytes
    reduction = MeasuredReduction(workers=network.num_workers, a_s=0.0, b_s_per_byte=per_byte)
    return lower_bound(cut, replace(network, reduction=reduction), "allreduce", "step", lockstep=True).shared
