"""Rows between simulated numbers of workers: where simulating all of them takes long, some have to do.

Interpolated is the time of a step, on a line over workers, and so is how busy everything is. That needs steps
whose time changes with the number of workers alone: machines that are alike, on one network without nodes or
racks, which are filled in part now and then.
"""

from __future__ import annotations

from collections.abc import Sequence

from hocket.predictor.prepared import Prepared
from hocket.predictor.run_outcome import Outcome, throughput_of
from hocket.predictor.size_check import run_s
from hocket.predictor.usage import Usage

_LONG_S = 60.0  # of one core, about: what simulating all numbers may take
_ALL, _TIMES = 8, 2 ** (1 / 4)
"""All numbers up to the first are simulated, and from there on so many times the one before."""


def bracketed(prepared: Sequence[Prepared], repeats: int) -> dict[int, tuple[int, int]]:
    """The rows to interpolate: of each the simulated ones with fewer and with more workers, as indices."""
    if repeats * sum(map(run_s, prepared)) <= _LONG_S:
        return {}
    found: dict[int, tuple[int, int]] = {}
    curves: dict[int, list[int]] = {}
    for k, each in enumerate(prepared):
        if is_smooth(each):
            curves.setdefault(each.network.num_servers, []).append(k)
    for rows in curves.values():
        rows.sort(key=lambda k: prepared[k].network.num_workers)
        below, between = rows[0], list[int]()
        for k in rows[1:]:
            workers, least = prepared[k].network.num_workers, _TIMES * prepared[below].network.num_workers
            if k != rows[-1] and workers > _ALL and workers < least:
                between.append(k)
                continue
            found |= dict.fromkeys(between, (below, k))
            below, between = k, []
    return found


def is_smooth(prepared: Prepared) -> bool:
    """Tell whether all that differs between numbers of workers is how many there are."""
    network, machines = prepared.network, prepared.request.machines
    of_one_kind = len(machines.speeds) == 1 and len(machines.worker_bps or (1.0,)) == 1
    return of_one_kind and network.nodes is None and network.shards is None and machines.racks == 1


def interpolated(prepared: Prepared, fewer: Prepared, more: Prepared, of: tuple[Outcome, Outcome]) -> Outcome:
    """The outcome of a run between those with fewer and with more workers, ``of`` which each is."""
    low, high = of
    first, last = fewer.network.num_workers, more.network.num_workers
    share = (prepared.network.num_workers - first) / (last - first)
    step_s = _between(low.step_s, high.step_s, share)
    halves = (low.steady, high.steady)
    return Outcome(
        step_s=step_s,
        throughput=throughput_of(prepared, step_s),
        steps=max(low.steps, high.steps),
        steady=None if None in halves else all(halves),
        events=0,
        wall_s=0.0,
        usage=Usage(
            _all_between(low.usage.busy, high.usage.busy, share),
            _all_between(low.usage.opposite, high.usage.opposite, share),
        ),
        between=(first, last),
    )


def _between(low: float, high: float, share: float) -> float:
    return low + share * (high - low)


def _all_between(low: dict[str, float], high: dict[str, float], share: float) -> dict[str, float]:
    return {name: _between(value, high[name], share) for name, value in low.items()}
