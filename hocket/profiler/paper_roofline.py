"""The roofline of papers' reproductions: float32 on a K80, P100 or V100, as those papers have it.

An operation takes the longer of computing and moving its bytes, plus a launch:

    max(flops / (peak * efficiency of its kind), bytes / (bandwidth * memory efficiency)) + launch

The efficiencies are fitted by :func:`hocket.profiler.calibrate` to throughputs of the papers or their time;
how far each prediction is off, :func:`hocket.profiler.residuals` says. For V100 that is the contention
paper's Table III, ResNet-50 at 256 images/s in batches of 16. Two publishers measured 367 and 369/s in
batches of 128: :mod:`hocket.profiler.gpu_model` is fitted to one of these.
"""

from __future__ import annotations

from dataclasses import dataclass

from hocket.datasheets import DEVICES
from hocket.profiler._cost import CallWork


@dataclass(frozen=True, kw_only=True)
class Factors:
    """The roofline's free factors; all but the last are shares of a datasheet's peak."""

    matrix: dict[str, float]
    """By device: efficiency of convolutions, matrix products, attention and recurrent layers."""
    memory: float
    """Efficiency of memory on every device. Low, because it also stands for operators that pass over their
    data several times, as batch normalization does, while each byte is counted once."""
    winograd_speedup: float
    """The speed, relative to ``matrix``, of convolutions that need fewer operations than counted."""
    launch_s: float
    """Seconds an operation costs beyond its kernel. Assumed, not fitted: at the published figures' batch
    sizes nothing between 0 and 10 us changes the fit."""


LAUNCH_S = 5e-6

# The result of `calibrate()`; a test holds them to it.
FITTED = Factors(
    matrix={"k80": 0.2825, "p100": 0.6822, "v100": 0.5873},
    memory=0.2519,
    winograd_speedup=3.381,
    launch_s=LAUNCH_S,
)


def duration_s(work: CallWork, device: str, factors: Factors) -> float:
    """The roofline's seconds for one operation."""
    sheet = DEVICES[device]
    speed = sheet.peak_flops
    if work.kind != "elementwise":
        speed *= factors.matrix[device]
    if work.kind == "winograd":
        speed *= factors.winograd_speedup
    moving_s = work.num_bytes / (sheet.bandwidth_bps * factors.memory)
    return max(work.flops / speed, moving_s) + factors.launch_s
