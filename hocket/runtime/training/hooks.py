"""A model's forward and backward passes in training, as hooks tell of them: what trainings have in common.

The backward pass begins with the gradients of what the outermost forward pass returned, since a checkpoint
within it runs passes of its own, and ends when autograd has run everything that is queued.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.autograd import Variable
from torch.autograd.graph import get_gradient_edge
from torch.utils._pytree import tree_iter

from hocket.errors import HocketError
from hocket.runtime.lazy.neutral_mode import outside_torch_modes
from hocket.runtime.observe.recorder import SpanRecorder
from hocket.runtime.training.ddp_attributes import SyncSetting
from hocket.runtime.training.first_readers import FirstReaders, Hook, compiled_by_user
from hocket.runtime.training.parameter_ownership import Members

Parameter = torch.nn.Parameter
_CALL = torch.nn.Module._call_impl.__code__


class ModelHooks(ABC):
    """Hooks on ``model``, its modules and its gradients; what happens then is said by a training, a subclass.

    Nothing is hooked before :meth:`_hook`.
    """

    def __init__(self, model: torch.nn.Module, recorder: SpanRecorder) -> None:
        self.model, self.recorder = model, recorder
        self._names = {p: name for name, p in model.named_parameters()}
        self._user_compiled = compiled_by_user(model)
        self._synchronising = True
        self._sync = SyncSetting(model)
        self._in_step = self._callback_queued = False
        self._depth = 0
        self._in_transform = False
        self._handled_exception: BaseException | None = None
        self._gradient_counts: dict[Parameter, int] = {}
        self._counts_gradients = True
        self._noting: contextlib.AbstractContextManager[object] | None = None
        self._readers: FirstReaders
        self._handles: list[Any]
        self._members: Members

    def _hook(self, parameters: Sequence[Parameter]) -> None:
        """Hook the passes; ``parameters``: the trained ones."""
        model = self.model
        self._readers = FirstReaders(model, parameters, self._module_reads)
        self._members = Members(model, parameters)
        self._handles = [
            model.register_forward_pre_hook(Hook(self._enter_forward, always=True), prepend=True),
            model.register_forward_hook(Hook(self._leave_forward, always=True), always_call=True),
        ]
        # As DistributedDataParallel: behind all hooks that users have on a parameter, whenever they set them.
        self._accumulators = [get_gradient_edge(p).node for p in parameters]
        for p, node in zip(parameters, self._accumulators, strict=True):
            self._handles.append(node.register_hook(Hook(functools.partial(self._after_accumulation, p))))

    def _unhook(self) -> None:
        """Remove every hook."""
        self._readers.detach()
        for handle in self._handles:
            handle.remove()

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of the forward passes within accumulate here and travel with the next ones."""
        before, self._sync.travels = self._sync.travels, False
        try:
            yield
        finally:
            self._sync.travels = before

    @property
    def _travels(self) -> bool:
        """Tell whether the gradients of a forward pass that begins now are to travel."""
        return self._sync.travels

    # Events of a training.

    @abstractmethod
    def update_parameters(self) -> None:
        """Bring every parameter up to date."""

    @abstractmethod
    def _forward_begins(self) -> None:
        """The outermost forward pass begins."""

    @abstractmethod
    def _about_to_read(self, parameters: Sequence[Parameter]) -> None:
        """A module is going to read ``parameters``."""

    @abstractmethod
    def _gradient_completed(self, p: Parameter) -> None:
        """``p.grad`` is there, so far as autograd knows."""

    @abstractmethod
    def _gradient_missing(self) -> None:
        """The backward pass has come to a parameter that gets no gradient in it."""

    @abstractmethod
    def _backward_ended(self) -> None:
        """The backward pass has run, perhaps without any gradient."""

    @property
    def _trains(self) -> bool:
        """True if the forward pass that ends is going to have a backward pass."""
        return torch.is_grad_enabled()

    # The forward pass.

    def _enter_forward(self, model: torch.nn.Module, arguments: object) -> None:
        if torch._C._current_graph_task_id() == -1:
            self._callback_queued = False
        if self._depth and self._was_interrupted():
            self._depth, self._handled_exception = 1, KeyboardInterrupt()
            self._leave_forward(model, arguments, None)
        self._depth += 1
        if self._depth > 1:
            return  # a model that calls itself
        self._handled_exception = sys.exception()
        transform = torch._C._functorch.peek_interpreter_stack()
        self._in_transform = transform is not None or torch.jit.is_tracing()
        if not self._in_transform:
            if self._trains:
                self._members.refuse_newcomers()
            self._forward_begins()
            return
        # Within torch.func.grad and its like, or a trace, which is no pass of ours. It makes tensors
        # of its own.
        with outside_torch_modes():
            self.update_parameters()

    def _was_interrupted(self) -> bool:
        """True if the last forward pass ended without its hook: torch calls none for a KeyboardInterrupt.

        Then the one that begins is within no other of the model. Code that Dynamo has rewritten cannot be
        told.
        """
        frames = (frame for frame, _ in traceback.walk_stack(None) if frame.f_code is _CALL)
        return (
            not self._user_compiled and sum(frame.f_locals.get("self") is self.model for frame in frames) == 1
        )

    def _note_reads(self) -> None:
        """Until the forward pass ends, note who reads what."""
        self._noting = self._readers.noting()
        self._noting.__enter__()

    def _module_reads(self, module: str, parameters: Sequence[Parameter]) -> None:
        self._about_to_read(parameters)
        if self._in_step:
            self.recorder.reads(module, parameters)

    def _leave_forward(self, _model: torch.nn.Module, _: object, output: object) -> None:
        self._depth = max(0, self._depth - 1)
        if self._depth:
            return
        if self._noting is not None:
            self._noting.__exit__(None, None, None)
            self._noting = None
        if self._trains and not self._in_transform:
            self._forward_ended(output)
        self._handled_exception = None

    def _has_raised(self, output: object) -> bool:
        """Tell whether the forward pass that ends, with ``output``, does so by an exception."""
        return output is None and sys.exception() is not self._handled_exception

    def _forward_ended(self, output: object) -> None:
        """The outermost forward pass has returned ``output``."""
        self.recorder.forward_ended()
        if self._synchronising:
            for tensor in tree_iter(output):
                # A parameter that is among the outputs would keep the hook of every step.
                if isinstance(tensor, torch.Tensor) and tensor.requires_grad and not tensor.is_leaf:
                    tensor.register_hook(self._backward_begins)

    # The backward pass.

    def _backward_begins(self, _: torch.Tensor) -> None:
        self._queue_end()

    def _queue_end(self) -> None:
        """Have the end of this backward pass told, if its gradients travel."""
        if self._synchronising and not self._callback_queued:
            self._callback_queued = True
            Variable._execution_engine.queue_callback(self._backward_ends)

    def _after_accumulation(self, p: Parameter, _: object, gradients: Sequence[torch.Tensor | None]) -> None:
        """Autograd has accumulated ``gradients``, of which there is one, in ``p``."""
        if not self._synchronising:
            return
        if gradients[0] is None:
            # A backward function returned none, as where an output is not used: other ranks may have one.
            self._gradient_missing()
            return
        if p.grad is None:
            raise HocketError(
                f"a hook dropped the gradient of '{self._names[p]}' before it could be sent; leave that, and"
                " a step of an optimizer, until the backward pass is over"
            )
        self._note_gradient(p, p.grad)
        self._gradient_completed(p)

    def _note_gradient(self, p: Parameter, gradient: torch.Tensor) -> None:
        """The backward pass has completed ``gradient``, one of those that ``p`` gets in it."""
        if not self._callback_queued:
            self._queue_end()
        self.recorder.gradient_completed(p)
        if self._counts_gradients:
            self._gradient_counts[p] = self._gradient_counts.get(p, 0) + 1

    def _backward_ends(self) -> None:
        # Still within the backward pass, as autograd sees it.
        if self._callback_queued:
            self._backward_ended()
        self._callback_queued = False
