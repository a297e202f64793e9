"""Gradients that parameters have while their bucket travels, and once it has arrived."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch

from hocket.runtime.lazy.aliases import is_referenced, shares_memory
from hocket.runtime.lazy.gradient import PendingGradient
from hocket.runtime.lazy.parameter import give_back
from hocket.runtime.lazy.promised_gradient import PromisedGradient
from hocket.runtime.observe.recorder import SpanRecorder
from hocket.runtime.training.early_answers import EarlyAnswers, GradientPromise, put_scalings
from hocket.runtime.training.optimizer_step import run_together
from hocket.runtime.transfers.buckets import Bucket
from hocket.runtime.transfers.sparse_sums import SparseGradient
from hocket.runtime.transfers.training_device import PROCESSORS, TrainingDevice
from hocket.runtime.transfers.used_flags import UsedFlags


class GradientHandOut:
    """Gives parameters stand-ins for gradients that were sent, and then what has arrived.

    ``used``: which parameters ranks use; ``read_early``: called when the gradient at that index of a bucket
    is looked at while it may still be on its way; ``answers``: what is known of it by then.
    """

    def __init__(
        self,
        device: TrainingDevice,
        used: UsedFlags,
        recorder: SpanRecorder,
        read_early: Callable[[Bucket, int], None],
        answers: EarlyAnswers,
    ) -> None:
        # Of a device, memory that streams still read would go, or be read by streams that nobody waits for.
        self._hands_out = device is PROCESSORS
        self._used, self._recorder, self._read_early = used, recorder, read_early
        self._answers = answers

    def stand_in(self, bucket: Bucket, index: int) -> PromisedGradient:
        """A gradient that waits for its bucket when it is looked at."""
        wait = functools.partial(self._read_early, bucket, index)
        promise = GradientPromise(self._answers, bucket, index)
        return PromisedGradient.of(bucket.memory.views[index], wait, promise)

    # Gradients that were sent.

    def replace_early(self, bucket: Bucket, arrived: torch.Tensor) -> None:
        """Have stand-ins in the middle of the backward pass that sent ``bucket``, where others have nothing.

        ``arrived``: what autograd has just made one of its gradients of, and still has.
        """
        if self._hands_out and bucket.sparse is None:
            for index in range(len(bucket.parameters)):
                self._replace(bucket, index, arrived)

    def replace_all(self, bucket: Bucket) -> bool:
        """Have stand-ins for every gradient of ``bucket``, which was sent.

        True if others have one, too, under another name: it is to get its value there.
        """
        aliased = False
        for index, p in enumerate(bucket.parameters if bucket.sparse is None else ()):
            if p.grad is None or p.grad is bucket.stand_ins[index] or self._replace(bucket, index):
                continue
            bucket.own_gradients[index] = p.grad
            p.grad = bucket.stand_ins[index]
            own = bucket.own_gradients
            aliased = aliased or is_referenced(own, index) or shares_memory(own[index])
        return aliased

    def _replace(self, bucket: Bucket, index: int, arrived: torch.Tensor | None = None) -> bool:
        """Have a stand-in in place of a gradient that was sent; whether so: not where others have it, too."""
        p, memory, stand_in = bucket.parameters[index], bucket.memory, bucket.stand_ins[index]
        if p.grad is stand_in:
            return True
        if isinstance(p.grad, PendingGradient):
            p.grad = p.grad.reduced_gradient
        own = [p.grad]
        if not self._hands_out or own[0] is None or not memory.can_stand_for(index, own[0]):
            return False
        p.grad = stand_in  # a gradient counts as a reference in some versions of torch
        if memory.has(index, own[0]):
            own.clear()
            if memory.is_lent(index):
                p.grad = memory.gradients[index]
        elif is_referenced(own, 0) or shares_memory(own[0], arrived):
            p.grad = own[0]
        return p.grad is stand_in

    # Gradients that have arrived.

    def hand_out(self, buckets: Sequence[Bucket]) -> None:
        """``buckets`` have arrived: do what optimizers have left to do of them, and hand out gradients."""
        held: list[tuple[Bucket, list[torch.Tensor | None]]] = []
        for bucket in buckets:
            if bucket.sparse is not None:
                _hand_out_sparse(bucket.parameters[0], bucket.sparse)
                continue
            bucket.memory.lengthen()
            for p in bucket.parameters:
                give_back(p)
            put_scalings(bucket)
            indices = range(len(bucket.parameters))
            held.append((bucket, [self._final_gradient(bucket, index) for index in indices]))
        self._update([bucket for bucket, _ in held if bucket.pending_steps])
        for bucket, gradients in held:
            for p, gradient in zip(bucket.parameters, gradients, strict=True):
                p.grad = gradient

    def _update(self, buckets: Sequence[Bucket]) -> None:
        """Do what optimizers have left to do of ``buckets``, in one step for all of them."""
        if not buckets:
            return
        started = self._recorder.now()
        for bucket in buckets:
            views = bucket.memory.views
            for p, view, used in zip(bucket.parameters, views, self._used.of(bucket), strict=True):
                p.grad = view if used else None
        run_together(step for bucket in buckets for step in bucket.pending_steps)
        for bucket in buckets:
            bucket.pending_steps.clear()
        self._recorder.record_updates([bucket.names for bucket in buckets], started)

    def give_unused(self, bucket: Bucket) -> None:
        """Give this rank the gradients of ``bucket``, which is finished, that only others had."""
        for index, (p, used) in enumerate(zip(bucket.parameters, self._used.of(bucket), strict=True)):
            if p.grad is None and used:
                p.grad = self._reduced(bucket, index)

    def _final_gradient(self, bucket: Bucket, index: int) -> torch.Tensor | None:
        """The gradient that its parameter is to have."""
        p, own = bucket.parameters[index], bucket.own_gradients.pop(index, None)
        has_stand_in = p.grad is bucket.stand_ins[index]
        if has_stand_in:
            p.grad = None  # a gradient counts as a reference in some versions of torch
        is_held = is_referenced(bucket.stand_ins, index)
        if not has_stand_in and not is_held:
            return p.grad
        # The very tensor that somebody has, as with DistributedDataParallel, unless it has a history to keep.
        if own is None or own.requires_grad:
            reduced = self._reduced(bucket, index)
        else:
            reduced = own.copy_(bucket.memory.views[index])
        if is_held:  # nobody has it else, and it stands in again
            stand_in = bucket.stand_ins[index]
            stand_in.reduced_gradient, stand_in.wait, stand_in.promise = reduced, _no_wait, None
            bucket.stand_ins[index] = self.stand_in(bucket, index)
        return reduced if has_stand_in else p.grad

    def _reduced(self, bucket: Bucket, index: int) -> torch.Tensor:
        """A gradient that has arrived; who has it when its bucket is filled again keeps that memory."""
        memory = bucket.memory
        return memory.gradients[index] if self._hands_out else memory.views[index].clone()


def _hand_out_sparse(p: torch.nn.Parameter, gradient: SparseGradient) -> None:
    total, gradient.total = gradient.total, None
    if total is not None:
        p.grad = _in_own_tensor(total, p.grad)


def _no_wait() -> None:
    """Return: the gradient is there."""


def _in_own_tensor(value: torch.Tensor, own: torch.Tensor | None) -> torch.Tensor:
    """``value`` in the tensor that a parameter had for its gradient, where that is of its form."""
    if own is None or own.layout is not value.layout or own.requires_grad:
        return value
    return own.copy_(value)
