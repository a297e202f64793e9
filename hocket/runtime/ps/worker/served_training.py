"""A model that trains with parameter servers: its hooks drive the worker's client.

Parameters are pulled anew when the optimizer has stepped, and each is put in place when its first reader is
about to run, or whenever it is touched. Gradients leave as the backward pass completes them, and count
once the optimizer steps: the step itself runs on the servers.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence

import torch

from hocket.errors import HocketError
from hocket.runtime.lazy.parameter import await_updates, give_back
from hocket.runtime.observe.exit_status import forget_exit
from hocket.runtime.observe.recorder import SpanRecorder
from hocket.runtime.ps.wire.model_spec import settings_of
from hocket.runtime.ps.wire.packing import overwrite
from hocket.runtime.ps.worker.client import Client
from hocket.runtime.ps.worker.fingerprint import Fingerprint
from hocket.runtime.ps.worker.served_clipping import Clipping
from hocket.runtime.ps.worker.weights import Weights
from hocket.runtime.training.hooks import ModelHooks, Parameter

_LEARNING_STEPS = 2
_TWICE = "several backward passes make one step"
_PARTS = "gradients come in parts (reentrant checkpoints)"
_CHANGED = "gradients are changed before the optimizer's step"

Place = tuple[torch.nn.Module, str]


class ServedTraining(ModelHooks):
    """One model's training on this worker.

    ``parameters``: those of ``optimizer``, by name, in the spec's order; ``buffers``: the model's, by name,
    which are worker 0's in each step if ``broadcast_buffers``. ``steps``: how many were committed. ``late``:
    why gradients leave when the optimizer steps and not earlier, "" once the first steps have shown no
    reason. ``between_steps`` is called when a step is committed and the next one is not yet asked for.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        parameters: Mapping[str, Parameter],
        buffers: Sequence[str],
        client: Client,
        recorder: SpanRecorder,
        broadcast_buffers: bool,
    ) -> None:
        super().__init__(model, recorder)
        self.optimizer, self.client = optimizer, client
        self.steps = 0
        self.late = "the first steps show what the script does"
        self.between_steps: Callable[[], None] = lambda: None
        self._mode = client.job.rule.mode
        self._broadcast_buffers = broadcast_buffers
        self._buffers = [_place(model, name) for name in buffers]
        self._parameters = list(parameters.values())
        self._index = {p: i for i, p in enumerate(self._parameters)}
        self._weights = Weights(parameters)
        self._stale: set[Parameter] = set()
        # Reads of these are not heard of: what a user compiled, and parameters of classes of their own.
        self._blind = {
            p for p in self._parameters if p in self._user_compiled or type(p) is not torch.nn.Parameter
        }
        self._learning = True
        self._reasons: dict[str, None] = {}
        self._backward_complete = self._gradients_missing = False
        self._passes = 0
        self._pushed_parameters: set[Parameter] = set()
        self._marks: dict[Parameter, Fingerprint | None] = {}
        # In the first steps, the gradients as the backward pass has left them.
        self._gradients_left: dict[Parameter, torch.Tensor] = {}
        self._clipping = Clipping(client, self._parameters)
        self._hook(self._parameters)

    # Requests of others.

    def begin(self) -> None:
        """Ask for the pulls of the next step."""
        self.client.request_pulls()
        self._stale.update(self._parameters)
        for p in self._parameters:
            if p not in self._blind:
                await_updates((p,), functools.partial(self._put_value, p))
        for p in self._blind:
            self._put_value(p)

    def finish_transfers(self) -> None:
        """Wait for every parameter of this step, and for the buffers."""
        for p in self._parameters:
            self._put_value(p)
        self._receive_buffers()

    def update_parameters(self) -> None:
        """Bring every parameter up to date."""
        self.finish_transfers()

    def before_loading(self) -> None:
        """Refuse: values live on the servers."""
        raise HocketError("the servers hold the parameters; load a state dict before hocket.distribute")

    def detach(self) -> None:
        """Bring the model up to date and leave it as it was before."""
        self.finish_transfers()
        self._unhook()

    # The forward pass.

    def progress(self) -> object:
        """A mark of how far the pass that runs is, None between passes; another thread asks."""
        return (
            (self._passes, self.steps, len(self._gradient_counts))
            if self._depth or self._gradient_counts
            else None
        )

    @property
    def _trains(self) -> bool:
        return self._mode != "inference" and super()._trains

    def _forward_begins(self) -> None:
        self._passes += 1
        if self._mode == "inference":
            self._begin_inference()
        elif not torch.is_grad_enabled():
            self.finish_transfers()
        if torch.is_grad_enabled() or self._mode == "inference":
            if not self._in_step:
                self._in_step = True
                self.recorder.begin_step(self.steps + 1)
                self.recorder.resume()
            self._synchronising = self._travels
            if self._learning:
                self._note_reads()
        self._receive_buffers()
        self._note_moves()

    @torch.no_grad()
    def _note_moves(self) -> None:
        here = [p for p in self._parameters if p not in self._stale]
        self._weights.note_moves(here, self.steps)

    def _begin_inference(self) -> None:
        if self.steps:
            self.finish_transfers()
            self._refuse_changes()
            self.between_steps()
            self.begin()
            self._in_step = False
        self._learn()

    def _about_to_read(self, parameters: Sequence[Parameter]) -> None:
        for p in parameters:
            self._put_value(p)

    @torch.no_grad()
    def _put_value(self, p: Parameter) -> None:
        """``p`` is about to be read: have this step's value in its place."""
        if p not in self._stale:
            return
        i = self._index[p]
        if not self.client.has_parameter(i):
            started_s = time.perf_counter()
            self.client.wait_for_parameter(i)
            self.recorder.record_span("wait", [self._names[p]], started_s)
        self._stale.discard(p)
        give_back(p)
        self._weights.put(p, self.client.value(i), self.steps)

    @torch.no_grad()
    def _receive_buffers(self) -> None:
        values = self.client.received_buffers()
        if values is None or not self._broadcast_buffers:
            return
        for buffer, value in zip(self._present_buffers(), values, strict=True):
            if buffer is not None:
                overwrite(buffer, value)

    def _present_buffers(self) -> list[torch.Tensor | None]:
        """The tensors that modules hold as their buffers by now: some put a new one in the old one's place.

        None for one that has no longer the shape and type in which it travels; it is each worker's own.
        """
        found = []
        for (module, name), row in zip(self._buffers, self.client.spec.state, strict=False):
            value = module._buffers.get(name)
            alike = value is not None and tuple(value.shape) == row.shape and value.dtype is row.torch_dtype
            found.append(value if alike else None)
        return found

    # The backward pass.

    def _after_accumulation(
        self, p: Parameter, before: object, gradients: Sequence[torch.Tensor | None]
    ) -> None:
        if p.grad is not None and p.grad.layout is not torch.strided:
            raise HocketError(
                f"the gradient of '{self._names[p]}' is sparse; servers take dense ones: use a layer with"
                " sparse=False, or train without --architecture ps"
            )
        if self._mode != "inference":
            super()._after_accumulation(p, before, gradients)

    def _gradient_missing(self) -> None:
        self._gradients_missing = True
        self._queue_end()

    def _gradient_completed(self, p: Parameter) -> None:
        self._clipping.refuse_another(self._names[p])
        if self._gradient_counts[p] > 1:
            self._reasons[_PARTS] = None
        if not self.late:
            self._push(p)

    def _backward_ended(self) -> None:
        if not (self._gradient_counts or self._gradients_missing):
            return
        self._gradient_counts.clear()
        self._gradients_missing = False
        if self._backward_complete:
            self._reasons[_TWICE] = None
        self._backward_complete, self._in_step = True, False
        if self.late:
            self._mark_all()
            if self._learning:
                self._gradients_left = {
                    p: p.grad.detach().clone() for p in self._parameters if p.grad is not None
                }
        else:
            self._send_all()
        self.recorder.backward_ended()

    def _push(self, p: Parameter) -> None:
        if p in self._pushed_parameters:
            raise HocketError(
                f"the gradient of '{self._names[p]}' came twice in a step, which the first steps did not"
                " show; let them run as later ones, or put all but the last under model.hocket.no_sync()"
            )
        self._pushed_parameters.add(p)
        self._marks[p] = self._mark(p)
        self.client.push(self._index[p], p.grad)

    def _send_all(self) -> None:
        """Push what has not been pushed; afterwards no gradient may change until the step."""
        for p in self._parameters:
            if p not in self._pushed_parameters:
                self._push(p)

    # The optimizer's step.

    def step(self) -> None:
        """The optimizer steps: this worker's gradients count, with its settings as they are."""
        if self._mode == "inference":
            raise HocketError("mode 'inference' trains nothing; leave optimizer.step() out, or use 'async'")
        if not self._backward_complete:
            raise HocketError(
                "optimizer.step() without a backward pass since the last one; nothing was pushed"
            )
        self._refuse_changes()
        forget_exit()
        self._push_remaining()
        # Also what this step did not read: a server has one step of a worker at a time.
        self.finish_transfers()
        self.client.send_buffers(self._present_buffers())
        self.client.commit(settings_of(self.optimizer), self._clipping.scale)
        self._pushed_parameters.clear()
        self._clipping.forget()
        self._backward_complete = False
        self._learn()
        self.between_steps()
        self.begin()

    def clip_grad_norm(self, max_norm: float, norm_type: float, error_if_nonfinite: bool) -> torch.Tensor:
        """Clip the reduced gradients, on the servers; their norm."""
        if self.client.job.rule.backup:
            raise HocketError(
                "with backup workers servers know only when they update whose gradients count, so there is no"
                " norm to clip by; clip by value, or train without --backup"
            )
        if not self._backward_complete:
            if any(p.grad is not None and p.grad.any() for p in self._parameters):
                raise HocketError(
                    "hocket.clip_grad_norm_ without a backward pass since the last step, so nobody has summed"
                    " up these gradients; clip when the last backward pass of the step is over"
                )
            return torch.tensor(0.0)
        self._push_remaining()
        return self._clipping.clip_reduced(max_norm, norm_type, error_if_nonfinite)

    def clip_own_grad_norm(self, clip: Callable[[], torch.Tensor], max_norm: float) -> torch.Tensor:
        """Have ``clip`` change this worker's gradients, and servers those that have left; their norm."""
        if not (self._backward_complete and self._pushed_parameters):
            return clip()
        self._push_remaining()
        norm = clip()
        self._clipping.note_own_clipping(norm, max_norm)
        self._mark_all()
        return norm

    def _push_remaining(self) -> None:
        """Have every gradient pushed as it is now; refuses what was changed too late."""
        if any(self._has_changed(p) for p in self._parameters):
            rule = self.client.job.rule
            if self._pushed_parameters or (rule.mode == "sync" and rule.workers > 1):
                raise HocketError(
                    "gradients were changed between backward pass and optimizer.step(), but servers sum up"
                    " what the backward pass left; clip with hocket.clip_grad_norm_, scale the loss instead"
                )
            self._reasons[_CHANGED] = None
        self._send_all()

    def _mark_all(self) -> None:
        self._marks = {p: self._mark(p) for p in self._parameters}

    def _mark(self, p: Parameter) -> Fingerprint | None:
        return Fingerprint(p.grad, self.steps) if p.grad is not None else None

    def _has_changed(self, p: Parameter) -> bool:
        """True if the gradient of ``p`` is not as the backward pass has left it."""
        mark = self._marks[p]
        if p.grad is None or mark is None:
            return (p.grad is None) != (mark is None)
        left = self._gradients_left.get(p) if self._learning else None
        return not mark.matches(p.grad) or (
            left is not None and not torch.allclose(p.grad, left, rtol=0.0, atol=0.0, equal_nan=True)
        )

    @torch.no_grad()
    def _refuse_changes(self) -> None:
        """Refuse a script that changes weights between steps: nobody would see it."""
        here = [p for p in self._parameters if p not in self._stale]
        self._weights.refuse_changes(here, self._pulled_value, self.steps, thoroughly=self._learning)

    def _pulled_value(self, p: Parameter) -> torch.Tensor:
        """The value that came for ``p`` in this step."""
        i = self._index[p]
        return self.client.value(i).view(self.client.spec.parameters[i].shape)

    def _learn(self) -> None:
        self.steps += 1
        if self._learning and self.steps >= _LEARNING_STEPS:
            self._gradients_left.clear()
            self._learning = False
            self.late = "; ".join(self._reasons)
            self._readers.keep_needed_hooks()


def _place(model: torch.nn.Module, buffer: str) -> Place:
    module, _, name = buffer.rpartition(".")
    return model.get_submodule(module), name
