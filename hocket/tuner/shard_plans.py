"""Plans that fully sharded training chooses from by simulation: units that are blocks or batches of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hocket.graph import Plan, StepGraph
from hocket.network import Network
from hocket.sim import simulate

MOST_HELD = 2.0
"""Times the full parameters that torch's own plan holds at once, which a plan may hold."""
_MOST_AHEAD = 3
_BATCHES = (1, 2, 3, 4, 6)
_ITERATIONS = 3
_ALIKE = 1.01

Units = tuple[tuple[str, ...], ...]


def best_plans(graph: StepGraph, network: Network, own: Plan) -> tuple[Plan, Plan]:
    """The plan that is fastest in simulation of those with the units of ``own``, and of all.

    The first unit of ``own`` is the root's and stays as it is; of the others consecutive ones are batched.
    All are freed after their forward pass as those of ``own`` are, and hold at most :data:`MOST_HELD` times
    the full parameters. Of plans that are alike to 1% the one with smaller units, and fewer ahead, is taken.

    Raises
    ------
    HocketError
        When the step cannot be simulated.
    """
    step = graph.typical()
    size = dict(zip(graph.parameter_names, graph.parameter_bytes.tolist(), strict=True))
    most = MOST_HELD * _held_bytes(_planned(own, own.units, 1), size)
    best: dict[bool, tuple[float, Plan]] = {}
    for units in dict.fromkeys(_batched(own.units, batch) for batch in _BATCHES):
        for ahead in range(1, _MOST_AHEAD + 1):
            plan = _planned(own, units, ahead)
            first = units == own.units and ahead == 1
            if not first and _held_bytes(plan, size) > most:
                continue
            seconds = simulate(step, plan, network, iterations=_ITERATIONS).row.iteration_s
            for same in {False, units == own.units}:
                if same not in best or seconds * _ALIKE < best[same][0]:
                    best[same] = seconds, plan
    return best[True][1], best[False][1]


def _batched(units: Sequence[tuple[str, ...]], batch: int) -> Units:
    root, *blocks = units
    batches = [blocks[k : k + batch] for k in range(0, len(blocks), batch)]
    return (root, *(tuple(name for unit in each for name in unit) for each in batches))


def _planned(own: Plan, units: Units, ahead: int) -> Plan:
    """A plan of these units, each gathered so far ahead in both passes."""
    last = len(units)
    return msgspec.structs.replace(
        own,
        policy=f"{last} units, {ahead} ahead",
        units=units,
        forward_prefetch=tuple(tuple(range(k + 1, min(k + 1 + ahead, last))) for k in range(last)),
        backward_prefetch=tuple(tuple(range(k - 1, max(k - 1 - ahead, -1), -1)) for k in range(last)),
        reshard_after_forward=(own.reshard_after_forward[0], *((True,) * (last - 1))),
    )


def _held_bytes(plan: Plan, size: dict[str, int]) -> int:
    """The most bytes of full parameters at once: the root's, a unit's, and those gathered ahead of it."""
    held = [sum(size.get(name, 0) for name in unit) for unit in plan.units]
    ahead = plan.forward_prefetch or ((),) * len(held)
    return held[0] + max(held[k] * (k > 0) + sum(held[t] for t in ahead[k]) for k in range(len(held)))
