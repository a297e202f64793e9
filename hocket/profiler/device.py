"""Durations without the hardware: a step recorded on fake tensors, timed by a roofline.

Fake tensors have shapes and no values, so the largest step is recorded in seconds and without its memory. An
operation takes the longer of computing and moving its bytes, plus a launch:

    max(flops / (peak * efficiency of its kind), bytes / (bandwidth * memory efficiency)) + launch

The efficiencies are fitted to published throughputs by :func:`hocket.profiler.calibrate`; how far each
prediction is off, :func:`hocket.profiler.residuals` says. A100 and H100 are uncalibrated: their datasheets'
peaks with V100's efficiency. All of it is for float32 without TensorFloat-32, as the published figures are;
a step whose products are of fewer bits says so in its caveat.
The operators are those that the step runs on a CPU, such as one a parameter in an optimizer that would group
them on CUDA.
"""

from __future__ import annotations

import copy
import functools
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.utils
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeCopyMode,
    FakeTensor,
    FakeTensorMode,
)

from hocket.datasheets import DEVICES, is_derived
from hocket.errors import HocketError
from hocket.graph import StepGraph
from hocket.profiler._build import build_graph, record
from hocket.profiler._cost import CallWork, work_of
from hocket.profiler._operators import tensors
from hocket.profiler._record import StepRecorder
from hocket.profiler._step import ProfiledStep


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


# Torch's error where a fake tensor meets a real one.
_NOT_COPIED = "Please convert all Tensors to FakeTensors first"
# Torch's function that looks at the values of a transformer's mask, unless it is told whether that is causal.
_COMPARES_MASKS = "_detect_is_causal_mask"


@contextmanager
def fake() -> Iterator[None]:
    """Inside, tensors get shapes but no memory: build here what only :func:`derive` is to see."""
    # To convert a module (half, to) torch swaps the values of fake parameters, unless there are weak
    # references to them. The mode itself has some, which follow the tensors wherever they go.
    utils: Any = torch.utils
    looked_up, utils.weakref = utils.weakref, SimpleNamespace(getweakrefs=lambda _: [])
    FakeTensor.__deepcopy__ = _copied  # type: ignore[method-assign, assignment]
    try:
        with FakeTensorMode():
            yield
    finally:
        utils.weakref = looked_up
        del FakeTensor.__deepcopy__


def _copied(tensor: FakeTensor, memo: dict[int, Any]) -> Any:
    """A deep copy of ``tensor`` of the same mode: torch's own copies the mode too, and modes do not mix."""
    if id(tensor) not in memo:
        if not tensor.is_leaf:
            torch.Tensor.__deepcopy__(tensor, memo)  # type: ignore[no-untyped-call]  # raises, as for a real one
        memo[id(tensor)] = copied = tensor.detach().clone().requires_grad_(tensor.requires_grad)
        copied.grad = copy.deepcopy(tensor.grad, memo)
        # What marks a parameter or a buffer, and what the user set.
        own = {name: value for name, value in vars(tensor).items() if name not in vars(copied)}
        vars(copied).update(copy.deepcopy(own, memo))
    return memo[id(tensor)]


def derive(
    step: ProfiledStep,
    *,
    device: str = "k80",
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
        The step; real, or built inside :func:`fake`.
    device
        A key of :data:`hocket.datasheets.DEVICES`.
    name, batch_size
        As for :func:`hocket.profile`.
    samples, jitter, seed
        Sampled steps. In each, all durations are multiplied by one draw from the lognormal distribution of
        mean 1 whose logarithm has the standard deviation ``jitter``. Workers simulated from a single sample,
        or without jitter, never drift apart.

    Raises
    ------
    HocketError
        For an unknown or measured device, and for a step that raises or needs a tensor's value.
    """
    if not is_derived(device):
        raise HocketError(f"device '{device}' is measured, not derived; use hocket.profile")
    if samples < 1 or not 0 <= jitter < np.inf:
        raise HocketError(f"samples={samples} and jitter={jitter} must be at least 1 and 0")
    narrow: set[torch.dtype] = set()
    recorder, works = record_works(step, narrow.add)
    seconds = np.array([duration_s(work, device, FITTED) for work in works])
    scale = np.random.default_rng(seed).lognormal(-(jitter**2) / 2, jitter, samples)
    graph = build_graph(
        step.parameters(),
        recorder.operations,
        np.outer(seconds, scale).tolist(),
        name=name or type(step.model).__name__,
        batch_size=step.batch_size() if batch_size is None else batch_size,
        device=device,
    )
    return replace(graph, caveat=_caveat(narrow, device))


def _caveat(narrow: set[torch.dtype], device: str) -> str:
    """The way in which durations err that take products of these types for float32's; "" for none."""
    if not narrow:
        return ""
    names = {str(each).removeprefix("torch.") for each in narrow}
    taken = f"{' and '.join(sorted(names))} matrix products are taken at float32's speed"
    if names <= set(DEVICES[device].tensor_cores):
        faster = f"{taken}, and {device} has up to {DEVICES[device].narrow_speedup} times that"
        err = f"{faster}: computing is too long, so that examples/s and the network's share are too small"
    else:
        err = f"{taken}: whether computing is too long or too short on a {device} is not known"
    return f"{err}; record a trace instead"


def record_works(
    step: ProfiledStep, narrow: Callable[[torch.dtype], object] = lambda _: None
) -> tuple[StepRecorder, list[CallWork]]:
    """Record ``step`` on fake tensors; the works are the operations', in their order.

    ``narrow`` is told each type below 32 bits of which numbers are multiplied as matrices.
    """
    mode = next((p.fake_mode for p in step.model.parameters() if isinstance(p, FakeTensor)), None)
    if mode is None:
        mode = FakeTensorMode()
        with FakeCopyMode(mode):
            step = copy.deepcopy(step)
    works: list[CallWork] = []

    def count(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        works.append(work_of(func, args, kwargs, result))
        if works[-1].kind != "elementwise":
            for tensor in tensors(args):
                if tensor.dtype.is_floating_point and tensor.dtype.itemsize < 4:
                    narrow(tensor.dtype)

    recorder = StepRecorder(step.parameters(), step.roots, count)
    was_training = step.model.training
    try:
        with mode, _autocast_of_gpus(narrow):
            if step.inference:
                step.model.eval()
            step.run()  # an optimizer creates its state in its first step
            record(step, recorder)
    except HocketError as error:
        if why := _no_values(error.__cause__):
            raise HocketError(why) from error
        raise
    finally:
        step.model.train(was_training)
    return recorder, works


def _no_values(cause: BaseException | None) -> str:
    """The reason why a step cannot run without values, and the way round; "" for another ``cause``."""
    way = "profile it on a real device"
    if isinstance(cause, DataDependentOutputException | DynamicOutputShapeException):
        called = traceback.extract_tb(cause.__traceback__)
        if any(frame.name == _COMPARES_MASKS for frame in called):
            way = f"pass is_causal (tgt_is_causal to a decoder) beside the mask, or {way}"
        return f"the step needs the value of a tensor ({cause}), and deriving computes none; {way}"
    if _NOT_COPIED in str(cause):
        where = "in its model, batch or loss module"
        return f"the step uses a tensor that is not {where}, and so not copied; hold it there, or {way}"
    return ""


@contextmanager
def _autocast_of_gpus(narrow: Callable[[torch.dtype], object]) -> Iterator[None]:
    """Tell ``narrow`` the type that a step autocasts to on CUDA, which without CUDA leaves all as it is."""
    real = torch.amp.autocast.__init__

    @functools.wraps(real)
    def noted(
        self: Any,
        device_type: str,
        dtype: torch.dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        is_idle = enabled and device_type == "cuda" and not torch.cuda.is_available()
        if is_idle:
            narrow(torch.get_autocast_dtype(device_type) if dtype is None else dtype)
        real(self, device_type, dtype, enabled and not is_idle, cache_enabled)

    torch.amp.autocast.__init__ = noted  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.amp.autocast.__init__ = real  # type: ignore[method-assign]


def duration_s(work: CallWork, device: str, factors: Factors) -> float:
    """The roofline's seconds for one operation."""
    sheet = DEVICES[device]
    speed = sheet.peak_flops
    if work.kind != "elementwise":
        speed *= factors.matrix[sheet.calibrated_as]
    if work.kind == "winograd":
        speed *= factors.winograd_speedup
    moving_s = work.num_bytes / (sheet.bandwidth_bps * factors.memory)
    return max(work.flops / speed, moving_s) + factors.launch_s
