"""The costs of the collectives of sharded training, timed where the training sends: a line for each kind.

The line through times of all-reduces does not tell them. An all-reduce goes in pieces, of which few are on
the way at once; an all-gather hands over all bytes of a unit, and over TCP a long one can take far more than
half of an all-reduce, also where nothing else is sent.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import Literal

import torch
import torch.distributed as dist

from hocket.network import MeasuredHalves, MeasuredLine
from hocket.network.file import MeasuredPoint
from hocket.network.fit import fit_line
from hocket.runtime.sharding.share_sums import of_torch

Kind = Literal["gather", "scatter", "exchange"]
_AT_ONCE: dict[Kind, int] = {"gather": 1, "scatter": 1, "exchange": 2}
"""Collectives that the training has under way: all-gathers come one by one, exchanges two at a time, and then
a link can take less for each than for one alone."""

_FIRST_BYTES, _SECOND_BYTES, _TIMES = 64, 64 << 10, 4
_ROWS = 3
_ROW_S, _MOST = 0.03, 8  # seconds and collectives of a row
_FEWEST_POINTS = 3  # that a line is laid through
_LONG_S = 0.5  # a size that is going to take longer is left out: the line is known by then
_POWER = 0.5  # a line is to be nearest where most of the time goes


def measured_halves(group: dist.ProcessGroup, largest_bytes: int) -> MeasuredHalves:
    """The costs of all-gathers and of exchanges of shares on ``group``; all ranks get the same figures.

    ``largest_bytes``: the largest unit's. Nothing else may be under way.
    """
    return MeasuredHalves(
        gather=measured_line("gather", group, largest_bytes),
        exchange=measured_line("exchange", group, largest_bytes),
    )


def measured_line(kind: Kind, group: dist.ProcessGroup, largest_bytes: int) -> MeasuredLine:
    """The cost of one kind of collective, of sizes up to ``largest_bytes``, those of all shares together."""
    points: list[MeasuredPoint] = []
    for size_bytes in _sizes(largest_bytes):
        # At most: what a collective costs however small it is does not grow.
        expected_s = points[-1].seconds * size_bytes / points[-1].size_bytes if len(points) > 1 else 0.0
        if len(points) >= _FEWEST_POINTS and expected_s > _LONG_S:
            break
        points.append(_point(kind, group, size_bytes, expected_s))
    fit = fit_line(points, power=_POWER)
    return MeasuredLine(a_s=fit.a_s, b_s_per_byte=fit.b_s_per_byte)


def _sizes(largest_bytes: int) -> list[int]:
    sizes = [_FIRST_BYTES, _SECOND_BYTES]
    while sizes[-1] * _TIMES < largest_bytes:
        sizes.append(sizes[-1] * _TIMES)
    return [*sizes, max(largest_bytes, sizes[-1] * _TIMES)]


def _point(kind: Kind, group: dist.ProcessGroup, size_bytes: int, expected_s: float) -> MeasuredPoint:
    """Seconds of a collective of about so many bytes in a row of them, on the slowest rank.

    A link that was idle lets through more at once, so the first row does not count; of the others the median.
    """
    share = max(1, size_bytes // 4 // group.size())
    # Two sets of buffers: a collective that is under way keeps its own.
    starts = [_starting(kind, group, share) for _ in range(_AT_ONCE[kind])]
    count = _MOST if expected_s <= 0 else max(1, min(_MOST, round(_ROW_S / expected_s)))
    dist.barrier(group)
    under_way = deque(start() for start in starts[1:])
    ended_s = [time.perf_counter()]
    for k in range((1 + _ROWS) * count):
        under_way.append(starts[k % len(starts)]())
        under_way.popleft().wait()
        if (k + 1) % count == 0:
            ended_s.append(time.perf_counter())
    while under_way:
        under_way.popleft().wait()
    ended_s.pop(0)
    rows_s = [(after - before) / count for before, after in pairwise(ended_s)]
    slowest = torch.tensor([median(rows_s)], dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX, group=group)
    return MeasuredPoint(size_bytes=4 * share * group.size(), seconds=float(slowest))


def _starting(kind: Kind, group: dist.ProcessGroup, share: int) -> Callable[[], dist.Work]:
    """A function that starts a collective of ``share`` numbers of each rank."""
    own, whole = torch.zeros(share), torch.zeros(share * group.size())
    if kind == "gather":
        gather = of_torch("all_gather_single", "all_gather_into_tensor")
        return lambda: gather(whole, own, group=group, async_op=True)
    if kind == "scatter":
        scatter = of_torch("reduce_scatter_single", "reduce_scatter_tensor")
        return lambda: scatter(own, whole, group=group, async_op=True)
    received = torch.zeros_like(whole)
    return lambda: dist.all_to_all_single(received, whole, group=group, async_op=True)
