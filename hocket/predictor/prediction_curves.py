"""Curves of a prediction: throughput over workers, where it saturates, and which differences are chance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from hocket.predictor.prediction import Prediction


class _Bound(Protocol):
    """A row that has a bottleneck."""

    @property
    def bottleneck(self) -> str:
        """The resource that is busy longest."""


_Row = TypeVar("_Row", bound=_Bound)

SATURATED = 0.95
CHANCE = 0.01
"""The part that throughputs are taken to differ by where no interval says more."""
_CHANCE_OF_ONE = 0.05  # of asynchronous rows with one run each: a run's halves may differ by as much


def curves(rows: Iterable[Prediction]) -> list[list[Prediction]]:
    """``rows`` that differ in their workers only, by workers; curves in the order of their first rows."""
    found: dict[tuple[int, str], list[Prediction]] = {}
    for row in rows:
        found.setdefault((row.servers, row.mode), []).append(row)
    return [sorted(curve, key=lambda row: row.workers) for curve in found.values()]


def saturation(curve: Sequence[Prediction]) -> Prediction | None:
    """The fewest workers that reach :data:`SATURATED` of the curve's best; None where throughput still grows.

    Asynchronous rows with one run each reach it where chance explains the rest. Throughput still grows where
    the most workers alone reach that much, and where what is left to gain is more than half of what is left
    in workers: of a straight line's last points several are within 5% of its end.
    """
    best = max(row.throughput for row in curve)
    near = SATURATED - (_CHANCE_OF_ONE if _is_of_one_run(curve[-1]) else 0.0)
    reaching = next(row for row in curve if row.throughput >= near * best)
    if best <= 0 or reaching.workers == curve[-1].workers:
        return None
    gain, growth = best / reaching.throughput - 1, curve[-1].workers / reaching.workers - 1
    return reaching if gain <= growth / 2 else None


def fastest(curve: Sequence[Prediction]) -> Prediction | None:
    """The row that nothing tried beats, where more workers are slower or none are faster than the fewest."""
    best = max(curve, key=lambda row: row.throughput)
    if len(curve) > 1 and not is_faster(best, curve[0]):
        return curve[0]
    if curve[-1].throughput < SATURATED * best.throughput and is_faster(best, curve[-1]):
        return best
    return None


def network_bound(rows: Sequence[_Row]) -> Sequence[_Row]:
    """The last of ``rows``, by machines, of all of which the network is the bottleneck."""
    computing = [k for k, row in enumerate(rows) if row.bottleneck != "network"]
    return rows[computing[-1] + 1 if computing else 0 :]


def cheapest(rows: Iterable[Prediction]) -> Prediction | None:
    """The row with the lowest cost of an example; of those that differ by chance only, the fewest machines.

    None without prices.
    """
    priced = [row for row in rows if row.cost_per_example is not None]
    least = min(priced, key=lambda row: row.cost_per_example or 0.0, default=None)
    if least is None:
        return None
    level = [row for row in priced if is_by_chance(row.cost_per_example, least.cost_per_example, row, least)]
    return min(level, key=lambda row: row.workers + row.servers)


def is_by_chance(value: float | None, best: float | None, row: Prediction, of_best: Prediction) -> bool:
    """Tell whether two rows' values differ by no more than chance: their confidence intervals, or 1%."""
    least = _CHANCE_OF_ONE if _is_of_one_run(row) and _is_of_one_run(of_best) else CHANCE
    chance = max(least, _relative_half_width(row) + _relative_half_width(of_best))
    return abs((value or 0.0) - (best or 0.0)) <= chance * (best or 0.0)


def _is_of_one_run(row: Prediction) -> bool:
    """True if chance decides by several percent, as workers drift apart, and one run alone was drawn."""
    drifts = row.mode == "async" and not row.lockstep and row.workers > 1 and row.steady is not None
    return drifts and row.throughput_low is None


def _relative_half_width(row: Prediction) -> float:
    if row.throughput_low is None or row.throughput_high is None or row.throughput <= 0:
        return 0.0
    return (row.throughput_high - row.throughput_low) / 2 / row.throughput


def is_faster(one: Prediction, other: Prediction) -> bool:
    """Tell whether ``one`` is faster than ``other`` by more than chance."""
    return one.throughput > other.throughput and not is_by_chance(
        one.throughput, other.throughput, one, other
    )
