"""Recording a step on fake tensors: its operations, and what each of them was called with."""

from __future__ import annotations

import copy
import traceback
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeCopyMode,
    FakeTensor,
)

from hocket.datasheets import Precision
from hocket.errors import HocketError
from hocket.graph.step_memory import StepMemory
from hocket.profiler._build import record
from hocket.profiler._fake import RowKeepingMode, fake
from hocket.profiler._precision import autocast_of_gpus, in_precision
from hocket.profiler._record import OnOperation, StepRecorder
from hocket.profiler._step import ProfiledStep
from hocket.profiler._step_memory import record_memory

# Torch's error where a fake tensor meets a real one.
_NOT_COPIED = "Please convert all Tensors to FakeTensors first"
# Torch's function that looks at the values of a transformer's mask, unless it is told whether that is causal.
_COMPARES_MASKS = "_detect_is_causal_mask"

_Seen = TypeVar("_Seen")


@dataclass
class FakeRecord:
    """A step that was recorded on fake tensors."""

    step: ProfiledStep
    """As it was recorded: of fake tensors, in the precision and memory format that were asked for."""
    recorder: StepRecorder
    autocast: set[torch.dtype] = field(default_factory=set)
    """Types that the step casts to by itself."""
    memory: StepMemory | None = None
    """None where it is not known."""


def record_fake(
    step: ProfiledStep,
    seen: OnOperation,
    *,
    precision: Precision = "fp32",
    channels_last: bool = False,
    warm: bool = True,
    batch_size: int | None = None,
) -> FakeRecord:
    """Record ``step``; ``seen`` is told each operation with its operator, arguments and result.

    Without ``warm``, the first step is recorded, in which an optimizer creates its state. With a
    ``batch_size``, the examples of the batch, the record has the step's memory.

    Raises
    ------
    HocketError
        When the step raises, and saying so when it needs a tensor's value.
    """
    mode = next((p.fake_mode for p in step.model.parameters() if isinstance(p, FakeTensor)), None)
    was_training = step.model.training
    original = step
    autocast: set[torch.dtype] = set()
    try:
        with ExitStack() as entered:
            if mode is None:
                mode = RowKeepingMode()
                with FakeCopyMode(mode):
                    step = copy.deepcopy(step)
            entered.enter_context(fake(mode))
            entered.enter_context(autocast_of_gpus(autocast.add))
            if step is original and (channels_last or precision in ("bf16", "fp16")):
                step = copy.deepcopy(step)
            step = in_precision(step, precision, channels_last=channels_last)
            recorder = StepRecorder(step.parameters(), step.roots, seen)
            if step.inference:
                step.model.eval()
            memory = None if batch_size is None else _memory(step, batch_size)
            if warm and memory is None:  # an optimizer creates its state in its first step
                step.run()
            record(step, recorder)
    except HocketError as error:
        if why := _no_values(error.__cause__):
            raise HocketError(why) from error
        raise
    finally:
        original.model.train(was_training)
    return FakeRecord(step, recorder, autocast, memory)


def _memory(step: ProfiledStep, batch_size: int) -> StepMemory | None:
    """The memory of a step, of which the first one is run; None where a step so run raises."""
    try:
        return record_memory(step, batch_size)
    except HocketError:
        return None


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
