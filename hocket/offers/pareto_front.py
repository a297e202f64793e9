"""The Pareto front of time and cost, and its two ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hocket.offers.rental import RentalRow


def front_of(points: Sequence[tuple[float, float]]) -> set[int]:
    """The places of the points that no other is at most as large as in both numbers, and smaller in one.

    Of equal points the first is on the front.
    """
    found: set[int] = set()
    least = float("inf")
    for k in sorted(range(len(points)), key=lambda k: (*points[k], k)):
        if points[k][1] < least:
            least = points[k][1]
            found.add(k)
    return found


def cheapest_of(rows: Sequence[RentalRow]) -> RentalRow | None:
    """The row of the lowest cost, of such the fastest, of such the one of the fewest cards; None of none."""
    return min(rows, key=lambda row: (row.cost, row.hours, row.gpus), default=None)


def fastest_of(rows: Sequence[RentalRow]) -> RentalRow | None:
    """The row of the shortest time, of such the cheapest, of such the one with the fewest cards."""
    return min(rows, key=lambda row: (row.hours, row.cost, row.gpus), default=None)
