"""The parts of both constraint models: whole ticks, operations, serial channels, a solve.

Sources: disjunctive resources as intervals without overlap, and their propagation, are Baptiste, Le Pape and
Nuijten, *Constraint-Based Scheduling* (2001); the solver is OR-tools' CP-SAT.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import floor, log10
from typing import Literal

import numpy as np
from ortools.sat.python import cp_model

from hocket.graph import Plan, StepGraph
from hocket.graph.update_operations import awaited_gradients, early_updates, is_update

# A horizon of this many ticks: a rounded time is off by 2e-12 of it at most, and sums stay far below 2^63.
_HORIZON_TICKS = 2.0**38

Item = tuple[cp_model.IntVar, int]  # a start and how many ticks it takes
KeepApart = Callable[[cp_model.CpModel, Sequence[Item]], None]


@dataclass(frozen=True, kw_only=True)
class TickScale:
    """Times as whole ticks of ``tick_s`` seconds.

    ``horizon``: the ticks of all of them one after the other; ``error_s``: what rounding can change of that,
    and of any part of it.
    """

    counts: list[int]
    tick_s: float
    horizon: int
    error_s: float


def in_ticks(times_s: Sequence[float], occurrences: Sequence[int]) -> TickScale:
    """Round ``times_s``, each of which a schedule holds as often as ``occurrences`` says.

    A tick is a decimal fraction of a second; where all times are multiples of a coarser one, it is that: the
    solver is quicker with small numbers.
    """
    often = np.array(occurrences, dtype=np.int64)
    horizon_s = float((np.array(times_s) * often).sum())
    per_s = 10.0 ** floor(log10(_HORIZON_TICKS / horizon_s)) if horizon_s > 0 else 1.0
    counts = np.rint(np.array(times_s) * per_s).astype(np.int64)
    common = max(1, int(np.gcd.reduce(counts)))
    counts //= common
    return TickScale(
        counts=counts.tolist(),
        tick_s=common / per_s,
        horizon=int((counts * often).sum()),
        error_s=0.5 * float(often.sum()) / per_s,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelledStep:
    """A step as the models need it; operations and parameters by index.

    ``main``: forward and backward in topological order, and what they need; ``updates``: the others.
    ``makers`` (p rows): operations that produce each gradient. ``awaited``: the gradients that each
    update waits for: those it reads, and those of inputs that complete any, as in the simulator.
    """

    graph: StepGraph
    main: list[int]
    updates: list[int]
    makers: list[list[int]]
    awaited: dict[int, set[int]]

    @property
    def trained(self) -> list[int]:
        """Parameters with a gradient."""
        return [p for p, makers in enumerate(self.makers) if makers]


def work_of(graph: StepGraph, *, with_early: bool = False) -> ModelledStep:
    """Sort out which operations are updates and what they wait for.

    ``with_early``: also what those wait for that need no gradient, as workers' own do.
    """
    update = is_update(graph)
    updates = graph.order[update[graph.order]].tolist()
    makers = graph.produces.transpose(graph.num_parameters)
    awaited: dict[int, set[int]] = {i: set() for i in updates}
    parameters, waiting, _ = awaited_gradients(graph, update)
    for parameter, i in zip(parameters.tolist(), waiting.tolist(), strict=True):
        awaited[i].add(parameter)
    if with_early:
        also, early, _ = early_updates(graph, update, parameters, waiting)
        for parameter, i in zip(also.tolist(), early.tolist(), strict=True):
            awaited[i].add(parameter)
    return ModelledStep(
        graph=graph,
        main=graph.order[~update[graph.order]].tolist(),
        updates=updates,
        makers=[makers.row(p).tolist() for p in range(graph.num_parameters)],
        awaited=awaited,
    )


def apart_by_intervals(model: cp_model.CpModel, items: Sequence[Item]) -> None:
    """One item at a time, as a disjunctive resource."""
    model.add_no_overlap([model.new_fixed_size_interval_var(start, ticks, "") for start, ticks in items])


def apart_by_pairs(model: cp_model.CpModel, items: Sequence[Item]) -> None:
    """One item at a time, as a choice for each pair: where times depend on themselves, a step later.

    A disjunctive resource raises the bounds of such times bit by bit, round after round, where the solver
    sees at once that a cycle of choices cannot be.
    """
    for one, other in combinations(items, 2):
        choose_first(model, one, other)


def choose_first(model: cp_model.CpModel, one: Item, other: Item) -> None:
    """One of two items is over when the other starts."""
    first = model.new_bool_var("")
    model.add(one[0] + one[1] <= other[0]).only_enforce_if(first)
    model.add(other[0] + other[1] <= one[0]).only_enforce_if(~first)


@dataclass(frozen=True, eq=False, kw_only=True)
class SerialChannel:
    """A machine that moves parameters one batch after the other.

    ``leave`` and ``arrive``: when each parameter's batch starts and ends.
    """

    leave: dict[int, cp_model.IntVar]
    arrive: dict[int, cp_model.IntVar]

    def batches(self, solver: cp_model.CpSolver) -> list[tuple[int, list[int]]]:
        """The batches in the order in which they travel, each with its start."""
        found: dict[tuple[int, int], list[int]] = {}
        for p, leave in self.leave.items():
            found.setdefault((solver.value(leave), solver.value(self.arrive[p])), []).append(p)
        return [(key[0], found[key]) for key in sorted(found)]


def channel_alone(
    model: cp_model.CpModel, ticks: Mapping[int, int], horizon: int, keep_apart: KeepApart
) -> SerialChannel:
    """A channel on which each parameter travels alone, for ``ticks`` each.

    That is all there is to choose where a transfer costs nothing to start: cut up and sent in the same place,
    a batch's parameters leave no later and arrive no later than together.
    """
    leave = {p: model.new_int_var(0, horizon, "") for p in ticks}
    arrive = {p: model.new_int_var(0, horizon, "") for p in ticks}
    for p in ticks:
        model.add(arrive[p] == leave[p] + ticks[p])
    keep_apart(model, [(leave[p], ticks[p]) for p in ticks])
    return SerialChannel(leave=leave, arrive=arrive)


def channel_in_batches(
    model: cp_model.CpModel, costs: Sequence[tuple[int, Mapping[int, int]]], horizon: int
) -> SerialChannel:
    """A channel on which parameters travel in batches: any two together, or one before the other.

    ``costs``: ways to move a batch, of which each takes one: ticks for the batch and for each of its
    parameters.
    """
    parameters = list(costs[0][1])
    leave = {p: model.new_int_var(0, horizon, "") for p in parameters}
    arrive = {p: model.new_int_var(0, horizon, "") for p in parameters}
    together = {(p, p): model.new_constant(1) for p in parameters}
    for p, q in combinations(parameters, 2):
        same, before, after = (model.new_bool_var("") for _ in range(3))
        together[p, q] = together[q, p] = same
        model.add_exactly_one(same, before, after)
        model.add(leave[p] == leave[q]).only_enforce_if(same)
        model.add(arrive[p] == arrive[q]).only_enforce_if(same)
        model.add(arrive[p] <= leave[q]).only_enforce_if(before)
        model.add(arrive[q] <= leave[p]).only_enforce_if(after)
    for p in parameters:
        ways = [model.new_bool_var("") for _ in costs]
        model.add_exactly_one(ways)
        for way, (batch_ticks, ticks) in zip(ways, costs, strict=True):
            moved = sum(ticks[q] * together[p, q] for q in parameters)
            model.add(arrive[p] == leave[p] + batch_ticks + moved).only_enforce_if(way)
    return SerialChannel(leave=leave, arrive=arrive)


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelSolution:
    """A plan that a model gave; see :class:`hocket.planner.exact.Optimum`."""

    plan: Plan
    status: Literal["optimal", "feasible"]
    objective_s: float
    bound_s: float


def solver_for(time_limit_s: float, seed: int) -> cp_model.CpSolver:
    """A solver that finds the same every time, unless the time limit stops it: it runs on one thread."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.linearization_level = 0  # orders decide; linear relaxations only cost time
    solver.parameters.random_seed = seed % 2**31  # which is what the field holds
    solver.parameters.max_time_in_seconds = time_limit_s
    return solver
