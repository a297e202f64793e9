"""Comparisons of a ranking's rows: the best, the usual one, gains as drawn and if all steps were alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hocket.graph.result import ResultRow, is_level
from hocket.planner.named_planners import BEST_BUCKETS, USUAL

LITTLE = 0.03
"""Of a step, up to which another way of training is hardly worth it."""
_MADE_UP = 1.5  # times the gain that is left where every step is the mean one


def usual_row(rows: Sequence[ResultRow]) -> ResultRow | None:
    """The row among ``rows``, of one architecture, that others are compared with; None if it is missing."""
    return next((row for row in rows if row.policy == USUAL.get(row.architecture)), None)


def best_row(rows: Sequence[ResultRow]) -> ResultRow:
    """The first of ``rows``, as they are ranked, that none beats."""
    least_s = min(row.iteration_s for row in rows)
    return next(row for row in rows if is_level(row.iteration_s, least_s))


def best_buckets_row(rows: Sequence[ResultRow]) -> ResultRow | None:
    """The row among ``rows`` of DDP's plan with its best bucket; None if it is missing."""
    return next((row for row in rows if row.policy == BEST_BUCKETS), None)


def gains(rows: Sequence[ResultRow], alike_s: Mapping[str, float] | None = None) -> bool:
    """Tell whether the fastest of ``rows`` gains more than little over the usual policy; yes without that."""
    return usual_row(rows) is None or gained(rows, alike_s) > LITTLE


def gained(rows: Sequence[ResultRow], alike_s: Mapping[str, float] | None = None) -> float:
    """The part of the usual policy's step that the fastest of ``rows`` saves; 0 where they are level.

    ``alike_s``: as :class:`hocket.tuner.Tuning` has it: a gain that is smaller if all steps were alike counts
    as that.
    """
    usual, best, alike = usual_row(rows), best_row(rows), alike_s or {}
    if usual is None or is_level(usual.iteration_s, best.iteration_s):
        return 0.0
    gain = 1 - best.iteration_s / usual.iteration_s
    if best.policy in alike and usual.policy in alike:
        gain = min(gain, 1 - alike[best.policy] / alike[usual.policy])
    return max(gain, 0.0)


def any_made_up(row: ResultRow, others: Sequence[ResultRow], alike_s: Mapping[str, float]) -> bool:
    """Tell whether much of the gain over one of ``others`` comes from steps that differ."""
    return any(
        (alike := apart_alike(row, other, alike_s)) is not None
        and _MADE_UP * alike > _apart(row.iteration_s, other.iteration_s)
        for other in others
        if other is not row and other.iteration_s
    )


def apart_alike(row: ResultRow, other: ResultRow, alike_s: Mapping[str, float]) -> float | None:
    """The share that the steps of two rows are apart if all were alike; None where that is unknown."""
    ours_s, theirs_s = alike_s.get(row.policy), alike_s.get(other.policy)
    return _apart(ours_s, theirs_s) if ours_s is not None and theirs_s else None


def _apart(ours_s: float, theirs_s: float) -> float:
    """The share of ``theirs_s`` that ``ours_s`` is longer by, below 0 for a gain; 0 where they are level."""
    return 0.0 if is_level(ours_s, theirs_s) else ours_s / theirs_s - 1
