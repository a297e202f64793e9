"""Steps of a training loop that the user's code runs, followed by hooks.

A step begins with the first call of the model, or of a module in it, and ends with the optimizer's step. All
else (loading data, logging, evaluating) is left out, also between the backward pass of one batch and the
forward pass of the next whose gradients it sums. With DistributedDataParallel the wait for its exchange, at
the end of the backward pass, is left out as well.

Hooks run within the training: what goes wrong in them ends the following, and nothing else.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from hocket.errors import HocketError
from hocket.graph import Phase
from hocket.profiler._batch import first_extent
from hocket.profiler._loop_record import LoopRecorder
from hocket.profiler._timer import PlainClock, Timer
from hocket.profiler._uncompiled import Unwrapped, is_within_compiled

Meter = PlainClock | Timer | LoopRecorder
"""The context around a step: entered at its begin, left at its end, paused in between."""


class Shape(NamedTuple):
    """The passes that a step consists of, before anything is known of its operations."""

    sizes: tuple[int | None, ...] = ()
    """For each forward pass the first extent of its first input; None where no tensor is seen."""
    backwards: int = 0


class _Where(Enum):
    OUTSIDE = auto()
    FORWARD = auto()
    BACKWARD = auto()
    UPDATE = auto()


_BETWEEN = (_Where.OUTSIDE, _Where.UPDATE)
"""Where another pass may begin: only the first step shows how many there are before the update."""


MOST_UNSEEN = 3
"""Steps in a row without a call of the model, as an optimizer may have a few of for other reasons."""


def unseen(optimizer: str) -> str:
    """The line for steps within which the model's calls are not seen."""
    return (
        f"the {optimizer} steps and no call of the model is seen: it is another model's, or the model is"
        f" compiled, or its forward() is called; {UNCOMPILED}"
    )


SHARDED = (
    "the model's parameters are sharded (DTensor, by fully_shard or tensor parallelism), and such steps are"
    " not measured; measure an unsharded copy, or a function that makes one: hocket profile FILE.py:FUNCTION"
)
UNCOMPILED = "measure it uncompiled, as hocket profile SCRIPT.py does"


class Measurement(Protocol):
    """The purpose that a loop's steps are followed for."""

    def next_meter(self) -> Meter:
        """The meter for the next step."""

    def backward_begins(self, roots: Any) -> None:
        """A backward pass from ``roots``, a tensor or several, begins."""

    def ended(self, meter: Meter, shape: Shape, loop_s: float) -> bool:
        """A step has ended, ``loop_s`` after the one before it; returns whether more are needed."""

    def failed(self, error: Exception) -> None:
        """The loop is followed no longer, because of ``error``."""


class Loop:
    """Follows the steps of ``model`` and ``optimizer``, as many as ``measurement`` needs."""

    def __init__(self, model: nn.Module, optimizer: Optimizer, measurement: Measurement) -> None:
        self._model, self._optimizer = model, optimizer
        self._modules = {id(module) for module in model.modules()}
        self._unwrapped = Unwrapped(model)
        self._parameters = {id(parameter) for parameter in model.parameters()}
        self._measurement = measurement
        self._meter = measurement.next_meter()
        self._where = _Where.OUTSIDE
        self._sizes: list[int | None] = []
        self._backwards = 0
        self._expected = Shape()
        self._is_named = False  # whether the pass's size is that of the model's own call
        self._passes_in_update: int | None = None
        self._is_exchange_followed = self._is_exchanging = self._is_exchange_awaited = False
        self._depth = 0
        self._has_begun = False
        self._unseen = 0
        self._ended_s = time.perf_counter()
        self._thread = 0
        self._is_over = False
        self._handles: list[Any] = [
            register_module_forward_pre_hook(self._called),
            model.register_forward_pre_hook(self._model_called, with_kwargs=True),
            register_optimizer_step_pre_hook(self._updates),
            register_optimizer_step_post_hook(self._updated),
        ]
        self._backward = torch.autograd.backward
        torch.autograd.backward = self._around_backward = self._make_backward()

    def close(self) -> None:
        """Take every hook away; not to be called by an optimizer's hook, which would lose those behind it."""
        self._end()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _end(self) -> None:
        self._is_over = True
        self._unwrapped.wrap_again()
        if torch.autograd.backward is self._around_backward:
            torch.autograd.backward = self._backward
        self._leave()
        if isinstance(self._meter, LoopRecorder):
            self._meter.close()

    def _leave(self) -> None:
        """Give up the step that is under way."""
        self._where = _Where.OUTSIDE
        if self._sizes and threading.get_ident() == self._thread:
            self._sizes.clear()
            self._meter.__exit__(None, None, None)
            if not self._is_over:
                self._meter = self._measurement.next_meter()

    def _guarded(self, then: Callable[[], None]) -> None:
        if self._is_over:
            return
        try:
            then()
        except Exception as error:
            self._end()
            self._measurement.failed(error)
        except BaseException:
            self._end()
            raise

    def _called(self, module: nn.Module, args: Any) -> None:
        if torch.compiler.is_dynamo_compiling():
            return  # what is compiled has no hooks in it; its steps are steps without a pass
        if self._is_over:
            # Torch goes on with the hooks that it began with; it does not where an optimizer's are removed.
            self.close()
            return
        if self._where in _BETWEEN or not torch.is_grad_enabled():
            self._guarded(lambda: self._begin_pass(module, args))

    def _begin_pass(self, module: nn.Module, args: Any) -> None:
        if isinstance(module, DistributedDataParallel) and module.module is self._model:
            self._follow_exchange()
        # What wraps a model to compile it begins the step: one that begins within is not seen behind it.
        called = module._modules.get("_orig_mod", module)
        if id(called) not in self._modules or torch._C._current_autograd_node() is not None:
            return  # another model, or a checkpoint that recomputes
        if not torch.is_grad_enabled() and not self._model.training:
            self._leave()  # an evaluation
            return
        if self._where not in _BETWEEN:
            return
        if self._passes_in_update is not None:
            self._passes_in_update += 1
            if self._passes_in_update > 1:
                raise HocketError(
                    f"{type(self._optimizer).__name__} calls the model several times in a step, each time"
                    " depending on the last; such steps make no graph: use an optimizer that does not"
                )
        if self._sizes:
            if self._where is _Where.OUTSIDE:
                self._meter.resume()
        else:
            if not self._has_begun:
                self._has_begun = True
                self._refuse_other_parameters()
            if modes := _get_current_dispatch_mode_stack():
                raise HocketError(
                    f"operations are seen by a {type(modes[-1]).__name__}; leave it while steps are measured"
                )
            if is_within_compiled():
                raise HocketError(
                    f"what torch.compile made calls {type(self._model).__name__}, and operations behind that"
                    f" call are not seen; {UNCOMPILED}"
                )
            self._thread = threading.get_ident()
            self._backwards = 0
            self._meter.__enter__()
        self._sizes.append(first_extent(args))
        self._is_named = False
        self._enter(_Where.FORWARD)

    def _refuse_other_parameters(self) -> None:
        """Refuse a model whose parameters are others than those that it was given with."""
        new = [
            (name, parameter)
            for name, parameter in self._model.named_parameters()
            if isinstance(parameter, nn.Parameter) and id(parameter) not in self._parameters
        ]
        if any(hasattr(parameter, "device_mesh") for _, parameter in new):
            raise HocketError(SHARDED)
        if new:
            raise HocketError(
                f"'{new[0][0]}' has come to the {type(self._model).__name__} since hocket.watch was called;"
                " call it once the model and its optimizer are as they train"
            )

    def _model_called(self, _module: nn.Module, args: Any, kwargs: Any = None) -> None:
        # Without kwargs in the call that found it removed by the hook before.
        if torch.compiler.is_dynamo_compiling():
            return
        if self._where is _Where.FORWARD and not self._is_named and self._sizes:
            self._is_named = True
            self._sizes[-1] = first_extent((args, kwargs))

    def _enter(self, where: _Where) -> None:
        self._where = where
        if isinstance(self._meter, LoopRecorder):
            self._meter.enter(Phase[where.name], "loss" if where is _Where.FORWARD else "")

    def _make_backward(self) -> Callable[..., None]:
        @functools.wraps(self._backward)
        def backward(*args: Any, **kwargs: Any) -> None:
            self._depth += 1
            try:
                if self._depth == 1:
                    self._guarded(lambda: self._backward_begins(args[0] if args else kwargs.get("tensors")))
                self._backward(*args, **kwargs)
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._guarded(self._backward_ended)

        return backward

    def _backward_begins(self, roots: Any) -> None:
        if not self._sizes or self._where is _Where.OUTSIDE:
            return  # of something else
        self._measurement.backward_begins(roots)
        self._backwards += 1
        self._enter(_Where.BACKWARD)

    def _backward_ended(self) -> None:
        self._is_exchanging = False
        if self._is_exchange_awaited:
            self._is_exchange_awaited = False
            self._meter.resume()
        if self._where is not _Where.BACKWARD:
            return
        if len(self._sizes) < len(self._expected.sizes):
            self._meter.pause()
            self._where = _Where.OUTSIDE
        else:
            more = self._backwards < self._expected.backwards
            self._enter(_Where.FORWARD if more else _Where.UPDATE)

    def _follow_exchange(self) -> None:
        """Learn when DistributedDataParallel begins to wait: behind the last gradient."""
        if self._is_exchange_followed:
            return
        self._is_exchange_followed = True
        self._handles += [
            parameter.register_post_accumulate_grad_hook(self._gradient_came)  # type: ignore[no-untyped-call]
            for parameter in self._model.parameters()
            if parameter.requires_grad
        ]

    def _gradient_came(self, _parameter: Tensor) -> None:
        if self._where is _Where.BACKWARD and not self._is_exchanging:
            self._is_exchanging = True
            engine: Any = torch.autograd.Variable._execution_engine
            engine.queue_callback(lambda: self._guarded(self._exchange_ends))  # before that of the exchange

    def _exchange_ends(self) -> None:
        if self._where is _Where.BACKWARD:
            self._is_exchange_awaited = True
            self._meter.pause()

    def _updates(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        self._guarded(lambda: self._begin_update(optimizer))

    def _begin_update(self, optimizer: Optimizer) -> None:
        if optimizer is not self._optimizer:
            groups = optimizer.param_groups
            ours = any(id(parameter) in self._parameters for group in groups for parameter in group["params"])
            if ours or self._sizes:
                raise HocketError(
                    f"a {type(optimizer).__name__} steps in the middle of a step of the"
                    f" {type(self._optimizer).__name__} of {type(self._model).__name__}; only steps of one"
                    " optimizer are measured: profile a factory's step instead"
                )
            return
        self._passes_in_update = 0
        if not self._sizes:
            return
        if self._where is _Where.OUTSIDE:
            self._meter.resume()
        self._enter(_Where.UPDATE)

    def _updated(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        if optimizer is self._optimizer:
            self._guarded(self._end_step)

    def _end_step(self) -> None:
        self._passes_in_update = None
        if not self._sizes:
            self._unseen += 1
            if self._unseen == MOST_UNSEEN:
                raise HocketError(unseen(type(self._optimizer).__name__))
            return
        self._unseen = 0
        if threading.get_ident() != self._thread:
            raise HocketError(
                "the optimizer steps in another thread than the model's; only one thread is watched"
            )
        shape = Shape(tuple(self._sizes), self._backwards)
        self._sizes.clear()
        self._where = _Where.OUTSIDE
        self._meter.__exit__(None, None, None)
        if not shape.backwards:
            raise HocketError("no backward pass was seen before the optimizer's step; call loss.backward()")
        now_s = time.perf_counter()
        if not self._measurement.ended(self._meter, shape, now_s - self._ended_s):
            self._end()
            return
        self._expected, self._meter = shape, self._measurement.next_meter()
        self._ended_s = time.perf_counter()
