"""What an AllReduce costs on this job's network: a few sizes, timed where the training will send."""

from __future__ import annotations

import time

import numpy as np
import torch
import torch.distributed as dist

from hocket.network import MeasuredReduction, Network
from hocket.network.file import Point
from hocket.network.fit import fit_line
from hocket.runtime.agreement import largest

_SIZES = (64, 16 << 10, 256 << 10, 1 << 20, 4 << 20)
_REPEATS = 5
_LONG_S = 0.5  # a size that took this long is the last one


def measure_reductions(group: dist.ProcessGroup, control: dist.ProcessGroup) -> Network:
    """Fit a + b d (Caramel section 4.2) to AllReduces on ``group``; all ranks get the same figures.

    Two are on the way at once, as in training, and count half: what one costs in a row of them. The lower
    quartile of five rows counts.
    """
    points: list[Point] = []
    for size_bytes in _SIZES:
        pair = [torch.zeros(size_bytes // 4) for _ in range(2)]
        seconds = []
        for _ in range(_REPEATS):
            group.barrier().wait()
            started = time.perf_counter()
            for work in [group.allreduce([tensor]) for tensor in pair]:
                work.wait()
            seconds.append((time.perf_counter() - started) / len(pair))
        (lower,) = largest([float(np.quantile(seconds, 0.25))], control)
        points.append(Point(size_bytes=size_bytes, seconds=lower))
        if lower > _LONG_S:
            break
    fit = fit_line(points)
    workers = dist.get_world_size(group)
    # A ring moves 2 (n - 1) / n of the bytes through each interface, each way.
    b_s_per_byte = max(fit.b_s_per_byte, 1e-15)
    return Network(
        bandwidth_bps=8 * 2 * (workers - 1) / workers / b_s_per_byte,
        num_workers=workers,
        reduction=MeasuredReduction(workers=workers, a_s=fit.a_s, b_s_per_byte=b_s_per_byte),
    )
