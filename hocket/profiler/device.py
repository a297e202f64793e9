"""Durations without the hardware: a step recorded on fake tensors, timed by a model of the device.

Fake tensors have shapes and no values, so the largest step is recorded in seconds and without its memory.
Its kernels are timed by :mod:`hocket.profiler.gpu_model`, those of K80 and P100 in float32 by the roofline
that papers' figures are fitted to. The operators are those that the step runs on a CPU, such as one a
parameter in an optimizer that would group them on CUDA.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch._ops import OpOverload

from hocket.datasheets import MEASURED_DEVICES, Device, Precision, device_named
from hocket.errors import HocketError
from hocket.graph import StepGraph
from hocket.graph.jittered_step import jittered
from hocket.profiler._build import build_graph
from hocket.profiler._call import Call, call_of
from hocket.profiler._cost import CallWork, work_of
from hocket.profiler._fake_step import FakeRecord, record_fake
from hocket.profiler._operators import tensors
from hocket.profiler._record import StepRecorder
from hocket.profiler._step import ProfiledStep
from hocket.profiler._step_time import step_time
from hocket.profiler._work import HALVES
from hocket.profiler.paper_roofline import FITTED, duration_s

_Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Target:
    """A device, and the way to train on it."""

    device: str | Device
    """A name of :data:`hocket.datasheets.DEVICES`, or a datasheet of your own."""
    precision: Precision | None = None
    """None: TF32 on cards that have it, else float32."""
    channels_last: bool = False
    """Images and their weights are laid out with the channels last, as tensor cores take them."""
    compile: bool = False
    """Operations on single numbers are fused, as torch.compile does."""
    as_papers: bool = False
    """By the roofline of papers' figures: of a K80, P100 or V100 in float32."""


class Recordings:
    """A step, and what it ran by precision and layout: recorded once, timed for several devices."""

    def __init__(self, step: ProfiledStep) -> None:
        self.step = step
        self._kept: dict[tuple[Precision, bool, int], tuple[FakeRecord, list[Call]]] = {}

    def of(self, precision: Precision, way: Target, batch_size: int) -> tuple[FakeRecord, list[Call]]:
        """The record of the step in that precision, and each operation's call."""
        key = precision, way.channels_last, batch_size
        if key not in self._kept:
            calls: list[Call] = []

            def count(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
                calls.append(call_of(func, args, kwargs, result))

            record = record_fake(
                self.step,
                count,
                precision=precision,
                channels_last=way.channels_last,
                batch_size=batch_size,
            )
            self._kept[key] = record, calls
        return self._kept[key]


def derive(
    step: ProfiledStep | Recordings,
    *,
    device: str | Device | Target = "k80",
    name: str | None = None,
    batch_size: int | None = None,
    samples: int = 1,
    jitter: float = 0.0,
    seed: int = 0,
) -> StepGraph:
    """Derive one worker's step on ``device``; nothing is computed and nothing of the caller's changes.

    Parameters
    ----------
    step
        The step; real, or built inside :func:`fake`. Of :class:`Recordings`, several are derived faster.
    device
        A name of :data:`hocket.datasheets.DEVICES`, a datasheet of your own, or either with the precision and
        how else the step trains there.
    name, batch_size
        As for :func:`hocket.profile`.
    samples, jitter, seed
        Sampled steps, which vary as :func:`hocket.graph.jittered_step.jittered` has it. Workers simulated
        from a single sample, or without jitter, never drift apart.

    Raises
    ------
    HocketError
        For an unknown or measured device, a precision that it does not have, and for a step that raises or
        needs a tensor's value.
    """
    way = device if isinstance(device, Target) else Target(device)
    sheet = _sheet(way.device)
    precision = way.precision or sheet.default_precision
    sheet.check(precision)
    recordings = step if isinstance(step, Recordings) else Recordings(step)
    step = recordings.step
    derived = _as_papers if _is_of_papers(sheet, precision, way) else _by_model
    examples = step.batch_size() if batch_size is None else batch_size
    found = derived(recordings, sheet, precision, way, examples)
    graph = build_graph(
        found.record.step.parameters(),
        found.record.recorder.operations,
        found.seconds[:, None].tolist(),
        name=name or type(step.model).__name__,
        batch_size=examples,
        device=sheet.name,
    )
    said = [
        found.numbers,
        *(["channels last"] if way.channels_last else []),
        *(["compiled"] if way.compile else []),
    ]
    return replace(
        jittered(graph, jitter, samples, seed),
        caveat=found.caveat,
        precision=", ".join(said),
        expected_error=found.expected_error,
        memory=found.record.memory,
    )


class _Derived(NamedTuple):
    """A recorded step, each operation's seconds, what is to be said of them, and how far they may be off.

    ``numbers``: the precision in words.
    """

    record: FakeRecord
    seconds: _Vector
    caveat: str
    numbers: str
    expected_error: float = 0.0


def _sheet(device: str | Device) -> Device:
    if isinstance(device, Device):
        return device
    if device in MEASURED_DEVICES:
        raise HocketError(f"device '{device}' is measured, not derived; use hocket.profile")
    return device_named(device)


def _is_of_papers(sheet: Device, precision: Precision, way: Target) -> bool:
    """True if durations are those of the papers' roofline, which alone has figures of a K80 and a P100."""
    only = tuple(FITTED.matrix) if way.as_papers else ("k80", "p100")
    return precision == "fp32" and not way.compile and sheet.name in only


def _as_papers(
    recordings: Recordings, sheet: Device, precision: Precision, way: Target, batch_size: int
) -> _Derived:
    works: list[CallWork] = []
    narrow: set[torch.dtype] = set()

    def count(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        works.append(work_of(func, args, kwargs, result))
        if works[-1].kind != "elementwise":
            narrow.update(
                each.dtype for each in tensors(args) if each.is_floating_point() and each.itemsize < 4
            )

    record = record_fake(recordings.step, count, channels_last=way.channels_last, batch_size=batch_size)
    seconds = np.array([duration_s(work, sheet.name, FITTED) for work in works])
    names = " and ".join(sorted(str(each).removeprefix("torch.") for each in narrow))
    caveat = (
        f"{names} matrix products are taken at float32's speed: whether computing is too long or too short on"
        f" a {sheet.name} is not known; record a trace instead"
    )
    return _Derived(record, seconds, caveat if names else "", precision)


def _by_model(
    recordings: Recordings, sheet: Device, precision: Precision, way: Target, batch_size: int
) -> _Derived:
    record, calls = recordings.of(precision, way, batch_size)
    time = step_time(calls, record.recorder.operations, sheet, precision, compiled=way.compile)
    own = sorted(time.multiplied & set(HALVES)) if precision in ("fp32", "tf32") else []
    said = f"{precision}, {' and '.join(own)} as the model has it" if own else precision
    # Figures of autocast are the nearest to those of a model that casts by itself.
    told: Precision = "amp" if own else precision
    caveat, error = "; ".join(time.remarks(sheet, told)), time.expected_error(sheet, told)
    return _Derived(record, time.seconds, caveat, said, error)


def record_works(step: ProfiledStep) -> tuple[StepRecorder, list[CallWork]]:
    """Record ``step`` on fake tensors; the works are the operations', in their order."""
    works: list[CallWork] = []

    def count(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        works.append(work_of(func, args, kwargs, result))

    return record_fake(step, count).recorder, works
