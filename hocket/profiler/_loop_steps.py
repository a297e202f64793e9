"""A step graph from the steps of a training loop that the user's code runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.optim import Optimizer

from hocket.errors import HocketError
from hocket.graph import Phase
from hocket.profiler._build import build_graph, state_of
from hocket.profiler._loop import UNCOMPILED, Meter, Shape
from hocket.profiler._loop_record import LoopRecorder
from hocket.profiler._step import parameters_of
from hocket.profiler._timer import PlainClock, Timer, make_timer
from hocket.profiler.torch_step import Profile, Samples, device_type, difference

_WARMUP = 3
_MOST_AGAIN = 5
DISTRIBUTED = (
    "the model is one of hocket.distribute, which measures it by itself; save model.hocket.profile with"
    " hocket.save_step, or measure a run without it"
)


@dataclass(frozen=True, kw_only=True)
class LoopProfile:
    """A profile of a loop's steps, and the loop around them."""

    profile: Profile
    outside_s: float
    """Seconds a plain step that lie outside of it: loading data, logging."""
    held: int | None = None
    """Examples that inputs of a step hold by their first extents; None where some show none."""


def needed_steps(samples: int) -> int:
    """Steps of a loop, all alike, that give so many samples."""
    return _WARMUP + 1 + 2 * samples


class LoopSteps:
    """Warms up, records a step, then times plain and sampled ones in turns, until it has ``steps`` of each.

    A step that is not like the recorded one (an evaluation, or a skipped update, lay in it) counts for
    nothing, unless too many are like that. ``done`` gets the profile, ``progress`` between steps how many
    were seen and how many are needed if all count.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        *,
        steps: int,
        batch_size: int | None,
        done: Callable[[LoopProfile], None],
        failed: Callable[[Exception], None],
        progress: Callable[[int, int], object] | None = None,
    ) -> None:
        self.num_seen = 0
        self._model, self._optimizer = model, optimizer
        self._steps, self._batch_size = steps, batch_size
        self._done, self.failed, self._progress = done, failed, progress
        self._parameters = parameters_of({"": model})
        self._device = device_type(self._parameters.values())
        self._warmup = _WARMUP
        self._shape: Shape | None = None
        self._recorder: LoopRecorder | None = None
        self._samples, self._outside_s = Samples(), list[float]()
        self._odd, self._recorded = 0, 0
        self._graphs_made = 0

    def backward_begins(self, roots: Any) -> None:
        """A backward pass from ``roots`` begins."""
        # Recorded and sampled steps run what is compiled as it is written, so only plain ones show it.
        if self._warmup > 0:
            self._graphs_made = _num_compiled()
            if _reach_compiled(roots):
                raise HocketError(self._hidden())

    def next_meter(self) -> Meter:
        """The meter for the next step."""
        if self._warmup > 0:
            return PlainClock(self._device)
        if self._recorder is None:
            recorder = LoopRecorder(self._parameters, self._model)
            recorder.own(state_of(self._optimizer, self._parameters))
            return recorder
        # In turns, so that a drift of the machine's speed cancels.
        sampled, plain = len(self._samples.own_s), len(self._samples.plain_s)
        return make_timer(self._device) if sampled <= plain else PlainClock(self._device)

    def ended(self, meter: Meter, shape: Shape, loop_s: float) -> bool:
        """Take what was measured; returns whether more steps are needed."""
        if hasattr(self._model, "hocket"):
            raise HocketError(DISTRIBUTED)
        self.num_seen += 1
        if self._progress is not None:
            self._progress(self.num_seen, needed_steps(self._steps))
        if self._warmup > 0:
            if _num_compiled() > self._graphs_made:  # the optimizer's step
                raise HocketError(self._hidden())
            # Until two steps in a row are alike: a GradScaler skips its first updates.
            is_odd = self._warmup == 1 and shape != self._shape
            self._warmup -= not is_odd
            self._shape = shape
            return self._go_on(f"consist of {_described(shape)}" if is_odd else "")
        if shape != self._shape:
            assert self._shape is not None
            return self._go_on(
                f"consist of {_described(shape)} where others consist of {_described(self._shape)}"
            )
        if isinstance(meter, LoopRecorder):
            self._take_structure(meter)
        elif isinstance(meter, Timer):
            assert self._recorder is not None
            if why := difference(self._recorder.calls, meter.calls):
                if not self._samples.own_s and self._recorded < _MOST_AGAIN:
                    self._recorder = None  # it may have been the odd one
                return self._go_on(why)
            self._samples.add(meter.times().of(self._recorder.call_of_operation))
        else:
            self._samples.plain_s.append(meter.step_s)
            self._outside_s.append(max(loop_s - meter.step_s, 0.0))
        if min(len(self._samples.own_s), len(self._samples.plain_s)) < self._steps:
            return True
        self._finish()
        return False

    def _go_on(self, why: str) -> bool:
        """Another step, unless too many were odd; ``why`` this one is, "" where it is not."""
        self._odd += bool(why)
        if self._odd > 2 * self._steps + 10:
            raise HocketError(f"too many steps differ: some {why}")
        return True

    def _take_structure(self, recorder: LoopRecorder) -> None:
        if recorder.failure is not None:
            raise recorder.failure
        if not any(operation.reads for operation in recorder.operations):
            raise HocketError(self._hidden())
        if not any(operation.produces for operation in recorder.operations):
            raise HocketError(
                f"the step makes no gradient of a parameter of {type(self._model).__name__}; give the model"
                " that is trained"
            )
        if recorder.unmade:
            raise HocketError(
                f"no operation of the backward pass is seen before the gradient of '{recorder.unmade[0]}' is"
                f" complete, so some run unseen; {UNCOMPILED}"
            )
        if not any(operation.phase is Phase.UPDATE for operation in recorder.operations):
            raise HocketError(
                f"no operation of {type(self._optimizer).__name__}'s step is seen: it is compiled, or no"
                " operator of torch; measure it with an optimizer of torch.optim"
            )
        self._recorder = recorder
        self._recorded += 1

    def _hidden(self) -> str:
        kind = type(self._model).__name__
        return f"operations of {kind} or its loss are compiled, and such are not seen; {UNCOMPILED}"

    def _finish(self) -> None:
        assert self._recorder is not None
        assert self._shape is not None
        graph = build_graph(
            self._parameters,
            self._recorder.operations,
            self._samples.durations_s(),
            name=type(self._model).__name__,
            batch_size=self._batch_size or _batch_size(self._shape),
            device=self._device,
        )
        profile, outside_s = self._samples.profile(graph), float(np.median(self._outside_s))
        self._done(LoopProfile(profile=profile, outside_s=outside_s, held=_held(self._shape)))


def _num_compiled() -> int:
    """The number of graphs that torch.compile has made in this process."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    return 0 if utils is None else int(utils.counters["stats"]["unique_graphs"])


def _reach_compiled(roots: Any) -> bool:
    """Tell whether autograd's graph behind ``roots``, a tensor or several, has a node of torch.compile's."""
    tensors = roots if isinstance(roots, list | tuple) else [roots]  # an iterator is not to be used up
    todo: list[Any] = [tensor.grad_fn for tensor in tensors if isinstance(tensor, Tensor)]
    seen: set[Any] = {None}
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            if type(node).__name__ == "CompiledFunctionBackward":
                return True
            todo += [each for each, _ in node.next_functions]
    return False


def _held(shape: Shape) -> int | None:
    """Examples in the inputs of all passes of a step together; None where some show none."""
    sizes = [size for size in shape.sizes if size is not None]
    return (sum(sizes) or None) if len(sizes) == len(shape.sizes) else None


def _batch_size(shape: Shape) -> int:
    """Examples of a step: of all its passes together."""
    held = _held(shape)
    if held is None:
        raise HocketError("the model's inputs hold no tensor with a batch dimension; give the batch size")
    return held


def _described(shape: Shape) -> str:
    sizes = " and ".join("?" if size is None else str(size) for size in shape.sizes)
    return f"forward passes of {sizes} examples and {shape.backwards} backward passes"
