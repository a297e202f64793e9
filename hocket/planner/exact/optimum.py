"""The optimum of a step: the best schedule, and a proof of how good any can be."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Literal

from hocket.errors import HocketError
from hocket.graph import Plan, StepGraph
from hocket.network import Network, reduction_s, window_cuts

MOST_OPERATIONS = 200
MOST_PARAMETERS = 40


@dataclass(frozen=True, kw_only=True)
class Optimum:
    """The best plan found, and what no plan can beat.

    ``status``: "optimal" when ``objective_s`` is proven to be the least, but for rounding; "feasible" when it
    may not be. ``bound_s``: proven, rounding taken off. ``wall_s``: what the search took.
    """

    plan: Plan
    status: Literal["optimal", "feasible"]
    objective_s: float
    bound_s: float
    wall_s: float


def exact(
    graph: StepGraph,
    network: Network,
    *,
    architecture: Literal["ps", "allreduce"],
    evaluate: Callable[[Plan], float],
    time_limit_s: float = 60.0,
    seed: int = 0,
    halves: bool = False,
) -> Optimum:
    """Find the best plan for ``graph`` on ``network`` by constraint programming.

    Operations take the mean of their samples, and all workers do the same at the same time. With parameter
    servers (a barrier per step) the optimum ranges over orders of pulls, operations and pushes, and, where a
    startup makes them worth it, over batches of what one server holds. With AllReduce it is the shortest
    steady-state period over orders of operations and reductions, and batches. Nothing is sliced or cut into
    chunks. ``evaluate`` simulates a plan, in seconds; ``time_limit_s`` and ``seed`` are the solver's, which
    runs on one thread and finds the same every time unless the limit stops it.

    ``halves``: of a step that clips by norm, each gradient whole or in halves, with AllReduce.

    Raises
    ------
    HocketError
        When the step is too large, OR-tools is missing, the network is one the models do not cover, or no
        schedule is found in time.
    """
    started = time.perf_counter()
    if not 0 < time_limit_s <= 1e9:
        raise HocketError(f"a time limit of {time_limit_s} s is not between 0 and 1e9; give e.g. 60")
    check_exact(graph, network, architecture, halves)
    from hocket.planner.exact.allreduce_model import shortest_period
    from hocket.planner.exact.server_model import shortest_step

    find = shortest_step if architecture == "ps" else partial(shortest_period, halves=halves)
    found = find(graph, network, evaluate=evaluate, time_limit_s=time_limit_s, seed=seed)
    return Optimum(
        plan=found.plan,
        status=found.status,
        objective_s=found.objective_s,
        bound_s=found.bound_s,
        wall_s=time.perf_counter() - started,
    )


def check_exact(
    graph: StepGraph, network: Network, architecture: Literal["ps", "allreduce"], halves: bool = False
) -> None:
    """Refuse what the models do not cover.

    Raises
    ------
    HocketError
        Naming the value, the rule and the fix.
    """
    for count, most, what in (
        (graph.num_operations, MOST_OPERATIONS, "operations"),
        (graph.num_parameters, MOST_PARAMETERS, "parameters"),
    ):
        if count > most:
            raise HocketError(
                f"{count} {what} are too many for the exact planner, which takes up to {most}; "
                "search takes steps of any size"
            )
    if architecture == "allreduce" and network.parse_s_per_byte > 0:
        raise HocketError(
            f"a parse cost of {network.parse_s_per_byte} s/byte makes chunks matter, which the exact planner "
            "does not choose; leave it out, or use search"
        )
    if halves and reduction_s(network, 0.0) > 0:
        raise HocketError(
            f"clip: a startup of {reduction_s(network, 0.0):g} s a reduction makes batches of halves matter,"
            " which the exact planner does not choose; leave it out, or use search"
        )
    if architecture == "ps" and (network.parse_s_per_byte > 0 or network.parse_s > 0):
        raise HocketError(
            "the exact planner does not know what parsing messages costs a parameter server and its workers; "
            "leave parse costs out, or use search"
        )
    if architecture == "ps" and window_cuts(graph.parameter_bytes.tolist(), network):
        raise HocketError(
            f"a window of {network.window_bytes:.0f} B may cut a transfer in two, which the exact planner is "
            "not made for; leave it out, make it larger than the model, or use search"
        )
    if architecture == "ps" and network.num_servers > network.num_workers:
        raise HocketError(
            f"{network.num_servers} servers for {network.num_workers} workers: channels change their speed, "
            "and the exact planner counts on a constant one; use no more servers than workers"
        )
    if find_spec("ortools") is None:
        raise HocketError("the exact planner needs OR-tools; pip install '.[optimal]' in a clone of Hocket")
    if architecture == "ps":
        from hocket.planner.exact.server_model import check_updates

        check_updates(graph, network)
