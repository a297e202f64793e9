"""Batch sizes at which communication and computation are in a given proportion."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise

from hocket.errors import HocketError

MOST = 4096
_FIRST = (2, 8)


def choose_batch_sizes(
    network_s: float, rhos: Sequence[float], compute_s: Callable[[int], float]
) -> list[int]:
    """The batch size for each of ``rhos``, where N / C comes nearest to it; from 1 to :data:`MOST`.

    ``network_s`` is N; ``compute_s`` measures C, in seconds, at a batch size. It is called at two small
    sizes, and at the largest one that these call for where that is far from them. Between them C is taken as
    linear: a step's fixed part makes it affine rather than proportional. Where the line leads far from them C
    is measured again, and the size corrected by as much as it was off.

    Raises
    ------
    HocketError
        When C does not grow with the batch.
    """
    points = {size: compute_s(size) for size in _FIRST}
    largest = _size_at(network_s / min(rhos), points)
    if largest > 2 * _FIRST[-1]:
        points[largest] = compute_s(largest)
    sizes = []
    for rho in rhos:
        size = _size_at(network_s / rho, points)
        if size > 2 * _FIRST[-1]:
            measured_s = points[size] if size in points else compute_s(size)
            size = _possible(size * network_s / rho / measured_s)
        sizes.append(size)
    return sizes


def _size_at(wanted_s: float, points: dict[int, float]) -> int:
    sizes = sorted(points)
    for smaller, larger in pairwise(sizes):
        if points[larger] <= points[smaller]:
            raise HocketError(
                f"a step takes {points[smaller]:.4g} s at batch size {smaller} and {points[larger]:.4g} s at"
                f" {larger}: no batch size has a given N / C; give --batch-size"
            )
    # The segment that the time falls on; beyond the first and the last they are prolonged.
    end = min(max(bisect_left(sizes, wanted_s, key=points.__getitem__), 1), len(sizes) - 1)
    left, right = sizes[end - 1], sizes[end]
    slope = (points[right] - points[left]) / (right - left)
    return _possible(left + (wanted_s - points[left]) / slope)


def _possible(size: float) -> int:
    return min(max(round(size), 1), MOST)
