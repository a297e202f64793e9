"""The network of a step that clips by norm: each gradient alone, whole or in halves, nothing costs to start.

All reductions and reduce-scatters of a step end before the norm, and the all-gathers follow it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from ortools.sat.python import cp_model


@dataclass(frozen=True, kw_only=True)
class HalvedTicks:
    """Ticks of each gradient (parameter index): reduced whole, scattered, gathered."""

    whole: Mapping[int, int]
    scatter: Mapping[int, int]
    gather: Mapping[int, int]


@dataclass(frozen=True, eq=False, kw_only=True)
class HalvedChannel:
    """Gradients on the network, by parameter index.

    ``leave``: when a gradient's reduction or reduce-scatter starts; ``seen``: when that ends; ``arrive``:
    when it is reduced, as an all-gather is over; ``halves``: whether it has one.
    """

    leave: dict[int, cp_model.IntVar]
    seen: dict[int, cp_model.IntVar]
    arrive: dict[int, cp_model.IntVar]
    halves: dict[int, cp_model.IntVar]

    def in_order(self, solver: cp_model.CpSolver) -> list[tuple[int, bool]]:
        """Each parameter, and whether it goes in halves, as their gathers end, whole ones last."""
        halved = {p: bool(solver.value(half)) for p, half in self.halves.items()}
        return sorted(halved.items(), key=lambda item: (not item[1], solver.value(self.arrive[item[0]])))


def channel_in_halves(model: cp_model.CpModel, ticks: HalvedTicks, horizon: int) -> HalvedChannel:
    """A channel on which each gradient travels alone, whole or in halves."""
    parameters = list(ticks.whole)
    leave, seen, gather, arrive = (
        {p: model.new_int_var(0, horizon, "") for p in parameters} for _ in range(4)
    )
    halves = {p: model.new_bool_var("") for p in parameters}
    for p in parameters:
        first = ticks.whole[p] + (ticks.scatter[p] - ticks.whole[p]) * halves[p]
        model.add(seen[p] == leave[p] + first)
        model.add(arrive[p] == seen[p]).only_enforce_if(~halves[p])
        model.add(arrive[p] == gather[p] + ticks.gather[p]).only_enforce_if(halves[p])
        for q in parameters:
            model.add(gather[p] >= seen[q]).only_enforce_if(halves[p])
    for p, q in combinations(parameters, 2):
        before = model.new_bool_var("")
        model.add(seen[p] <= leave[q]).only_enforce_if(before)
        model.add(seen[q] <= leave[p]).only_enforce_if(~before)
        before = model.new_bool_var("")
        model.add(arrive[p] <= gather[q]).only_enforce_if(before, halves[p], halves[q])
        model.add(arrive[q] <= gather[p]).only_enforce_if(~before, halves[p], halves[q])
    return HalvedChannel(leave=leave, seen=seen, arrive=arrive, halves=halves)
