"""The simulator's bound and forecast for the step and the network that hocket's runtime measured.

The bound is of operations that take as long as beside a network that is always busy. Where N / C is less than
1 it is busy during a part of a step only, and what no plan beats is slightly less.
"""

from __future__ import annotations

from dataclasses import replace

from hocket.graph import Plan, StepGraph
from hocket.network import Network
from hocket.sim import simulate

_STEPS = 50


def simulated_s(graph: StepGraph, plan: Plan, network: Network) -> float:
    """Seconds a step that the simulator expects of ``plan``."""
    return simulate(graph, plan, network, iterations=_STEPS).row.iteration_s


def critical_cycle_s(
    graph: StepGraph, plan: Plan, network: Network, *, compute_s: float, network_s: float
) -> float:
    """The simulator's bound where operations take ``compute_s`` in all and all-reduces ``network_s``.

    From ``graph`` comes in which proportions operations share ``compute_s``, and what waits for what from one
    step to the next; from ``network``, whose all-reduce was measured, how startup and bytes share
    ``network_s`` under ``plan``. Taken as they are, both were measured earlier and otherwise than what the
    bound is to be held against, and a machine that was slower then would pass for a cycle.
    """
    assert network.reduction is not None
    typical = graph.typical()
    scaled = replace(typical, durations_s=typical.durations_s * (compute_s / typical.durations_s.sum()))
    factor = network_s / simulate(graph, plan, network, iterations=1).row.communication_s
    reduction = replace(
        network.reduction,
        a_s=factor * network.reduction.a_s,
        b_s_per_byte=factor * network.reduction.b_s_per_byte,
    )
    return simulate(scaled, plan, replace(network, reduction=reduction), iterations=_STEPS).row.bound_s
