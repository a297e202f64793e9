"""The cost of an AllReduce on this job's network: a few sizes, timed where the training will send."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator
from itertools import pairwise
from statistics import median

import torch

from hocket.network import MeasuredReduction, Network
from hocket.network.file import MeasuredPoint
from hocket.network.fit import fit_line
from hocket.runtime.transfers.gloo_group import GlooGroup, max_over_ranks
from hocket.runtime.transfers.queue import CREDIT
from hocket.runtime.transfers.training_device import device_of
from hocket.runtime.transfers.transfer_group import TransferGroup

_SIZES = (64, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20)
_ROWS = 3
_ROW_BYTES, _ROW_S = 1 << 20, 0.03
_MOST = 8  # transfers of a row
_FEWEST_POINTS = 3  # that a line is laid through
_LONG_S = 0.05  # a size that is going to take longer is left out: the line is known by then
_AGAIN_S = 0.03  # that a transfer takes at most, by which the network is to be known again


class ReductionMeasurement:
    """The measurement of AllReduces on ``group``, by all of its ranks, which talk by ``control``.

    ``like``: a tensor of the device that trains, by whose clock they are timed.
    """

    def __init__(self, group: TransferGroup, control: GlooGroup, like: torch.Tensor) -> None:
        self._group, self._control, self._like = group, control, like

    def pieces(self) -> Generator[None, None, tuple[Network, MeasuredPoint]]:
        """Measure the network, a piece each time that it is resumed, and a size to know it again by."""
        return _measure_reductions(self._group, self._control, self._like)

    def again(self, point: MeasuredPoint) -> float:
        """Seconds of an AllReduce as of ``point``, now."""
        return _point(self._group, self._control, self._like, point.size_bytes, point.seconds)[0].seconds


def _measure_reductions(
    group: TransferGroup, control: GlooGroup, like: torch.Tensor
) -> Generator[None, None, tuple[Network, MeasuredPoint]]:
    """Fit a + b d (Caramel section 4.2) to AllReduces on ``group``; all ranks get the same figures.

    Returns the network, and the largest size that takes little time, by which it is to be known again.

    In pieces of some ten milliseconds, a hundred on a slow link, so that training goes on between: it is
    resumed before each but the first.

    They are timed as training sends them: one after the other, as many on the way as it has. Links let
    through more at once when they were idle, so the first row of each size does not count; of the others
    the median. Small ones hide behind others in part, so that no line meets all sizes, and N has to be right:
    the line is nearest where most of the time goes.
    """
    points: list[MeasuredPoint] = []
    processor_s = 0.0
    for size_bytes in _SIZES:
        # At most: what a transfer costs however small it is does not grow.
        expected_s = points[-1].seconds * size_bytes / points[-1].size_bytes if len(points) > 1 else 0.0
        if len(points) >= _FEWEST_POINTS and expected_s > _LONG_S:
            break
        if len(points) > 1:
            yield
        point, busy_s = _point(group, control, like, size_bytes, expected_s)
        points.append(point)
        processor_s = processor_s or busy_s  # of the first, whose bytes cost nothing
    fit = fit_line(points, power=0.5)
    workers = group.size
    # A ring moves 2 (n - 1) / n of the bytes through each interface, each way.
    b_s_per_byte = max(fit.b_s_per_byte, 1e-15)
    network = Network(
        bandwidth_bps=8 * 2 * (workers - 1) / workers / b_s_per_byte,
        num_workers=workers,
        reduction=MeasuredReduction(
            workers=workers, a_s=fit.a_s, b_s_per_byte=b_s_per_byte, processor_s=processor_s
        ),
    )
    return network, max((p for p in points if p.seconds <= _AGAIN_S), key=_size, default=points[0])


def _size(point: MeasuredPoint) -> int:
    return point.size_bytes


def _point(
    group: TransferGroup, control: GlooGroup, like: torch.Tensor, size_bytes: int, expected_s: float
) -> tuple[MeasuredPoint, float]:
    """Seconds of an AllReduce of so many bytes, on the slowest rank, where ``expected_s`` are expected.

    And those for which processors are busy with it.
    """
    count = min(max(_ROW_BYTES // size_bytes, 1), _MOST)
    if expected_s > 0:
        count = max(1, min(count, round(_ROW_S / expected_s)))
    control.barrier()
    rows_s, busy_s = _rows_s(group, like, size_bytes, count)
    slowest, busiest = max_over_ranks([median(rows_s[1:]), busy_s], control)
    return MeasuredPoint(size_bytes=size_bytes, seconds=slowest), busiest


def _rows_s(
    group: TransferGroup, like: torch.Tensor, size_bytes: int, count: int
) -> tuple[list[float], float]:
    """Seconds of an AllReduce of so many bytes in each row of ``count``, the network never being idle.

    And those for which all threads of this process are busy, in the row where it is least.
    """
    device = device_of(like)
    tensors = [like.new_zeros(size_bytes // 4, dtype=torch.float32) for _ in range(CREDIT)]
    under_way = deque(group.reduce(tensor) for tensor in tensors[: CREDIT - 1])
    ended, busy_s = [device.mark()], [time.process_time()]
    for k in range(_ROWS * count):
        under_way.append(group.reduce(tensors[(k + CREDIT - 1) % CREDIT]))
        under_way.popleft().wait()
        if (k + 1) % count == 0:
            ended.append(device.mark())
            busy_s.append(time.process_time())
    while under_way:
        under_way.popleft().wait()
    device.wait(device.record())  # of the last ones, too: ranks go on to another group when none is under way
    least_busy_s = min(after - before for before, after in pairwise(busy_s))
    rows_s = [device.seconds_between(before, after) / count for before, after in pairwise(ended)]
    return rows_s, least_busy_s / count
