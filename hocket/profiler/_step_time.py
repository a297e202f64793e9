"""A step's seconds on a GPU, operation by operation, and what is to be said of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from hocket.datasheets import Device, Precision
from hocket.graph import Phase
from hocket.profiler._call import Call
from hocket.profiler._expected_error import expectation, expected_share
from hocket.profiler._record import RecordedOperation
from hocket.profiler._work import HALVES, KINDS, Work, works_of_call
from hocket.profiler.gpu_model import FITTED, Kernels, kernel_seconds

_Vector = npt.NDArray[np.float64]

# Optimizers take many parameters at once on GPUs: of one parameter's operations, what a launch is shared by.
_TOGETHER = 0.1
# Kinds that a compiler fuses with what comes before.
_FUSED = ("stream", "rows", "norm", "reduction")
_HANDLED = ("float32", *HALVES)


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """A step's seconds on a device."""

    seconds: _Vector
    """Of each operation."""
    shares: dict[str, float]
    """Of the step's time on the GPU, by kind of kernel."""
    host_share: float
    """The program's time for starting operations over the GPU's; above 1 the GPU waits."""
    multiplied: frozenset[str]
    """Types of the numbers that are multiplied as matrices."""
    compiled: bool

    def expected_error(self, device: Device, precision: Precision) -> float:
        """The share that durations may be off by."""
        return expected_share(device.name, precision, self.shares)

    def remarks(self, device: Device, precision: Precision) -> list[str]:
        """Parts of the step's caveat: how far durations may be off, and which way where that is known."""
        said = [expectation(device.name, precision, self.shares, compiled=self.compiled)]
        if self.host_share > 1:
            said.append(
                f"the program starts operations slower than {device.name} runs them ({self.host_share:.1f}"
                " times its time), so that the time is the program's: assumed, 8 µs each"
            )
        missing = sorted(
            each for each in self.multiplied if each not in _HANDLED or not _multiplies(device, each)
        )
        if missing:
            said.append(
                f"{' and '.join(missing)} matrix products are taken at float32's speed: whether computing is"
                f" too long or too short on a {device.name} is not known; record a trace instead"
            )
        return said


def _multiplies(device: Device, dtype: str) -> bool:
    return dtype == "float32" or dtype in device.peaks


def step_time(
    calls: Sequence[Call],
    operations: Sequence[RecordedOperation],
    device: Device,
    precision: Precision,
    *,
    compiled: bool,
) -> StepTime:
    """Time a recorded step: the GPU's kernels one after another, or the program that starts them."""
    works = [
        works_of_call(call, update=operation.phase is Phase.UPDATE)
        for call, operation in zip(calls, operations, strict=True)
    ]
    started = np.array([_TOGETHER if each.phase is Phase.UPDATE else 1.0 for each in operations])
    if compiled:
        works = fuse(calls, works, operations)
        started[[all(work.kernels == 0 for work in each) for each in works]] = 0.0
    flat = [work for each in works for work in each]
    owner = np.repeat(np.arange(len(works)), [len(each) for each in works])
    kernels = Kernels(flat)
    each_s = kernel_seconds(kernels, device, precision, FITTED)
    seconds = np.bincount(owner, each_s, minlength=len(works))
    by_kind = np.bincount(kernels.kind, each_s, minlength=len(KINDS)) / max(each_s.sum(), 1e-30)
    host_s = started * FITTED.host_s
    waiting_s = max(0.0, host_s.sum() - seconds.sum())
    return StepTime(
        seconds=seconds + waiting_s * host_s / host_s.sum() + 1e-9,
        shares=dict(zip(KINDS, by_kind.tolist(), strict=True)),
        host_share=float(host_s.sum() / max(seconds.sum(), 1e-30)),
        multiplied=frozenset(work.dtype for work in flat if work.m > 0 or work.kind == "thin"),
        compiled=compiled,
    )


def fuse(
    calls: Sequence[Call], works: Sequence[list[Work]], operations: Sequence[RecordedOperation]
) -> list[list[Work]]:
    """``works`` as a compiler joins them: what only neighbours of one phase pass on does not reach memory.

    An operation on single numbers that takes a result of another one of its phase does not read it, and has
    no kernel of its own; that one does not write it if nothing else takes it.
    """
    users: dict[int, list[int]] = {}
    for index, operation in enumerate(operations):
        for before in operation.inputs:
            users.setdefault(before, []).append(index)
    may = [bool(each) and all(work.kind in _FUSED for work in each) for each in works]
    joined = []
    for index, (call, each) in enumerate(zip(calls, works, strict=True)):
        phase = operations[index].phase
        if not may[index] or phase is Phase.UPDATE:
            joined.append(each)
            continue
        sources = [i for i in operations[index].inputs if may[i] and operations[i].phase is phase]
        sources = [i for i in sources if _numbers(calls[i]) >= _numbers(call)]
        saved = sum(calls[i].written_bytes for i in sources)
        takers = users.get(index, [])
        if takers and all(may[i] and operations[i].phase is phase for i in takers):
            saved += call.written_bytes
        left = max(0.0, sum(work.num_bytes for work in each) - saved)
        kernels = 0 if sources else 1
        joined.append([Work(each[0].kind, left, each[0].dtype, kernels=kernels)])
    return joined


def _numbers(call: Call) -> int:
    return max((prod(each.shape) for each in call.results), default=0)
