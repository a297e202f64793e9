"""The cost of an AllReduce on this job's network: a few sizes, timed where the training will send."""

from __future__ import annotations

import time
from collections import deque
from itertools import pairwise
from statistics import median

import torch

from hocket.network import MeasuredReduction, Network
from hocket.network.file import MeasuredPoint
from hocket.network.fit import fit_line
from hocket.runtime.transfers.gloo_group import GlooGroup, max_over_ranks
from hocket.runtime.transfers.queue import CREDIT
from hocket.runtime.transfers.transfer_group import StartedCollective, TransferGroup

_SIZES = (64, 16 << 10, 256 << 10, 1 << 20, 4 << 20)
_ROWS = 5
_ROW_BYTES = 2 << 20
_FEWEST, _MOST = 2, 16
_LONG_S = 0.5  # a size that took this long is the last one


def measure_reductions(group: TransferGroup, control: GlooGroup) -> Network:
    """Fit a + b d (Caramel section 4.2) to AllReduces on ``group``; all ranks get the same figures.

    They are timed as training sends them: one after the other, as many on the way as it has. Links let
    through more at once when they were idle, so the first row of each size does not count; of the others
    the median. Small ones hide behind others in part, so that no line meets all sizes, and N has to be right:
    the line is nearest where most of the time goes.
    """
    points: list[MeasuredPoint] = []
    for size_bytes in _SIZES:
        control.barrier()
        seconds = _rows_s(group, size_bytes)
        (slowest,) = max_over_ranks([median(seconds[1:])], control)
        points.append(MeasuredPoint(size_bytes=size_bytes, seconds=slowest))
        if slowest > _LONG_S:
            break
    fit = fit_line(points, power=0.5)
    workers = group.size
    # A ring moves 2 (n - 1) / n of the bytes through each interface, each way.
    b_s_per_byte = max(fit.b_s_per_byte, 1e-15)
    return Network(
        bandwidth_bps=8 * 2 * (workers - 1) / workers / b_s_per_byte,
        num_workers=workers,
        reduction=MeasuredReduction(workers=workers, a_s=fit.a_s, b_s_per_byte=b_s_per_byte),
    )


def _rows_s(group: TransferGroup, size_bytes: int) -> list[float]:
    """Seconds of an AllReduce of so many bytes in each row of them, the network never being idle."""
    count = min(max(_ROW_BYTES // size_bytes, _FEWEST), _MOST)
    tensors = [torch.zeros(size_bytes // 4) for _ in range(CREDIT)]
    under_way: deque[StartedCollective] = deque()
    ended = [time.perf_counter()]
    for k in range(_ROWS * count):
        if len(under_way) == CREDIT:
            under_way.popleft().wait()
        under_way.append(group.reduce(tensors[k % CREDIT]))
        if (k + 1) % count == 0:
            ended.append(time.perf_counter())
    while under_way:
        under_way.popleft().wait()
    return [(after - before) / count for before, after in pairwise(ended)]
