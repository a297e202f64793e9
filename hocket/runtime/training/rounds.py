"""Rounds: what a synchronised backward pass starts, and how each bucket's part of it ends.

In a round every bucket is filled and sent once. It ends bucket by bucket, each when it is *finished*: it has
arrived, its gradients are where the user expects them, and what its optimizers had to do is done.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from collections.abc import Iterator, Mapping

import torch

from hocket.errors import HocketError
from hocket.runtime.lazy.aliases import is_referenced, shares_memory
from hocket.runtime.lazy.gradient import PendingGradient
from hocket.runtime.lazy.neutral_mode import outside_torch_modes
from hocket.runtime.lazy.parameter import give_back
from hocket.runtime.observe.barriers import Barriers
from hocket.runtime.observe.liveness import LivenessWatch
from hocket.runtime.observe.recorder import SpanRecorder
from hocket.runtime.transfers.buckets import Bucket, BucketState
from hocket.runtime.transfers.channel import Channel, ChannelGroups, TransferError
from hocket.runtime.transfers.gloo_group import GlooGroup, LostError
from hocket.runtime.transfers.plan_layout import Layout
from hocket.runtime.transfers.training_device import PROCESSORS, Event, device_of
from hocket.runtime.transfers.used_flags import UsedFlags

Parameter = torch.nn.Parameter

# Gloo has no errors of its own.
_OF_GLOO = ("gloo", "connection", "timed out", "timeout")


class Rounds:
    """The buckets of the plan in force, on ``groups``, which are for them alone.

    ``parameters``: the trained ones by name, all on one device; ``used``: which of them ranks use;
    ``watch`` says whose fault a failure is. ``barriers``: why steps waited that might have gone on
    travelling. ``unfinished``: buckets that were sent, the oldest first. ``thread``: the one that trains.
    ``failure``: why no step may follow; empty: one may. ``sums_sparse``: whether gradients may be sparse.
    """

    def __init__(
        self,
        parameters: Mapping[str, Parameter],
        groups: ChannelGroups,
        used: UsedFlags,
        recorder: SpanRecorder,
        watch: LivenessWatch,
        timeout_s: float,
    ) -> None:
        self._device = device_of(next(iter(parameters.values())))
        moved = functools.partial(recorder.record_transfer, "reduce")
        self.channel = Channel(groups, timeout_s, moved, self._device)
        # Of a device, memory that streams still read would go, or be read by streams that nobody waits for.
        self._hands_out = self._device is PROCESSORS
        self._used = used
        self._updated: Event = None
        self.barriers = Barriers()
        self.unfinished: dict[Bucket, None] = {}
        self.failure = ""
        self._layout: Layout | None = None
        self._turn: dict[Bucket, int] = {}
        self._names = {p: name for name, p in parameters.items()}
        self._recorder = recorder
        self._watch = watch
        watch.alarm = self.channel.fail
        self.sums_sparse = isinstance(groups.transfers, GlooGroup)
        self._scale = 1.0 / groups.transfers.size
        self._num_ranks = groups.transfers.size
        self._sent_buckets: set[Bucket] = set()
        self._aliased_buckets: dict[Bucket, None] = {}
        self.thread = threading.get_ident()
        self._process = os.getpid()

    @property
    def is_timed_by_host(self) -> bool:
        """True if the host's clock says how long the device's work takes."""
        return self._device.is_timed_by_host

    @property
    def is_forked(self) -> bool:
        """True if this process is a child of the one that trains."""
        return os.getpid() != self._process

    def enforce(self, layout: Layout) -> None:
        """Send along ``layout`` from the next round on; everything is finished, here and on all ranks."""
        assert not self.unfinished
        self.channel.stop()
        for bucket in () if self._layout is None else self._layout.buckets:
            self._release(bucket)
        self._used.forget()
        self._layout = layout
        self._turn = {bucket: turn for turn, bucket in enumerate(layout.buckets)}
        self.channel.start(layout)

    def _release(self, bucket: Bucket) -> None:
        """Have no memory for ``bucket``; parameters keep theirs."""
        bucket.stand_ins.clear()  # gradients and buckets hold each other
        if bucket.has_memory:
            self._device.wait(bucket.last_use)  # its memory may be another stream's, and goes
            bucket.release()

    def divide_by(self, num_ranks: int) -> None:
        """Gradients of the rounds to come are means over so many ranks."""
        self._scale, self._num_ranks = 1.0 / num_ranks, num_ranks

    def send_zeros(self) -> None:
        """A round of which this rank has nothing: its gradients stay as they are. Returns when it is over."""
        assert self._layout is not None
        self.finish_all()
        sparse = [p for bucket in self._layout.buckets if bucket.sparse for p in bucket.parameters]
        before = [p.grad for p in sparse]
        for p in sparse:
            p.grad = None  # what arrives is written into it
        for bucket in self._layout.buckets:
            if bucket.has_memory and bucket.memory.is_used:
                self._release(bucket)
            self._open(bucket)
            for index in range(len(bucket.parameters)):
                self._put(bucket, index, None)
            bucket.filled_indices.clear()
            self._submit(bucket)
        self._all_sent()
        self.finish_all()
        for p, gradient in zip(sparse, before, strict=True):
            p.grad = gradient

    # A round begins.

    def fill(self, p: Parameter, gradient: torch.Tensor | None = None) -> None:
        """The gradient of ``p`` is complete: put it in its bucket, and send the bucket if it was the last.

        ``gradient``: one that autograd has still to give to ``p``; None: it has.
        """
        bucket, index = self._place(p)
        if bucket in self._sent_buckets:
            raise HocketError(
                f"the gradient of '{self._names[p]}' came twice in a backward pass, which the first steps did"
                " not show; let them run as later ones, or use checkpoints with use_reentrant=False"
            )
        if bucket.state is BucketState.SENT:
            self._check_fresh(bucket, p)
            self.finish(bucket)
        self._open(bucket)
        bucket.filled_indices.add(index)
        self._put(bucket, index, p.grad if gradient is None else gradient)
        if len(bucket.filled_indices) == len(bucket.parameters):
            self._submit(bucket)

    def move_out(self, p: Parameter) -> torch.Tensor | None:
        """The gradient of ``p``, in memory of its own: it is going to change while its bucket travels."""
        bucket, index = self._place(p)
        if isinstance(p.grad, PendingGradient):
            self.finish_before_read(p)
        if p.grad is not None and bucket.has_memory and bucket.memory.has(index, p.grad):
            p.grad = p.grad.clone()
        return p.grad

    def hand_over(self, p: Parameter, arrived: torch.Tensor) -> None:
        """Have gradients that were sent with that of ``p`` nowhere but in their bucket.

        ``arrived``: what autograd has just made that of ``p`` of, and still has.
        """
        bucket, _ = self._place(p)
        if self._hands_out and bucket in self._sent_buckets and bucket.sparse is None:
            for index in range(len(bucket.parameters)):
                self._hand_over(bucket, index, arrived)

    def keep(self, p: Parameter, arrived: torch.Tensor) -> None:
        """Have the gradient of ``p``, to which autograd may still add, in its bucket and nowhere else.

        ``arrived``: as for :meth:`hand_over`.
        """
        bucket, index = self._place(p)
        if not self._hands_out or bucket.sparse is not None or bucket.state is BucketState.SENT:
            return
        self._open(bucket)
        memory, own = bucket.memory, [p.grad]
        if own[0] is None or not memory.can_stand_for(index, own[0]) or memory.has(index, own[0]):
            return
        p.grad = memory.gradients[index]
        if is_referenced(own, 0) or shares_memory(own[0], arrived):
            p.grad = own[0]
        else:
            self._write(bucket, index, own[0], 1.0)

    def close(self) -> list[Bucket]:
        """Send what has not been sent, with zeros where there is no gradient; the buckets that have such."""
        assert self._layout is not None
        unused = [
            bucket
            for bucket in self._layout.buckets
            if bucket not in self._sent_buckets and self._complete(bucket)
        ]
        for bucket in self._sent_buckets:
            for index, p in enumerate(bucket.parameters if bucket.sparse is None else ()):
                if p.grad is None or self._hand_over(bucket, index):
                    continue
                bucket.own_gradients[index] = p.grad
                p.grad = bucket.stand_ins[index]
                if is_referenced(bucket.own_gradients, index) or shares_memory(bucket.own_gradients[index]):
                    self._aliased_buckets[bucket] = None
        self._all_sent()
        return unused

    def _open(self, bucket: Bucket) -> None:
        """Begin to fill ``bucket``, in memory in which nobody has anything to look for."""
        if bucket.state is BucketState.FILLING:
            return
        bucket.state = BucketState.FILLING
        if bucket.sparse is not None:
            return
        if not bucket.has_memory:
            self._allocate()
        elif bucket.memory.is_held:
            self._release(bucket)
            self._allocate()

    def _allocate(self) -> None:
        """Have memory for every bucket that has none."""
        assert self._layout is not None
        # All at once: what lives long and comes between gradients would leave holes where those were.
        for bucket in self._layout.buckets:
            if bucket.sparse is None and not bucket.has_memory:
                bucket.allocate()
                indices = range(len(bucket.parameters))
                bucket.stand_ins = [self._stand_in(bucket, index) for index in indices]

    def _hand_over(self, bucket: Bucket, index: int, arrived: torch.Tensor | None = None) -> bool:
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

    def finish_unused(self, buckets: list[Bucket]) -> None:
        """Give this rank the gradients of parameters that only others used."""
        for bucket in buckets:
            unused = (name for name, p in zip(bucket.names, bucket.parameters, strict=True) if p.grad is None)
            self.barriers.meet("parameters that some ranks did not use", unused)
            self.finish(bucket)
            for index, (p, used) in enumerate(zip(bucket.parameters, self._used.of(bucket), strict=True)):
                if p.grad is None and used:
                    p.grad = self._reduced(bucket, index)

    def finish_aliased(self) -> None:
        """Finish buckets whose gradients are held by another name: they are to change there, too."""
        for bucket in self._aliased_buckets:
            self.barriers.meet("gradients whose memory the script holds by other names", bucket.names)
            self.finish(bucket)
        self._aliased_buckets.clear()

    def finish_sparse(self) -> None:
        """Finish buckets of which nobody knows, before they arrive, in which form their gradients are."""
        for bucket in list(self.unfinished):
            if bucket.sparse is not None:
                self.finish(bucket)

    def _place(self, p: Parameter) -> tuple[Bucket, int]:
        assert self._layout is not None
        return self._layout.place[p]

    def _complete(self, bucket: Bucket) -> bool:
        """Fill what is missing of ``bucket`` and send it; whether this rank lacks a gradient of it."""
        if bucket.state is BucketState.SENT:
            self.finish(bucket)
        self._open(bucket)
        unused = False
        for index, p in enumerate(bucket.parameters):
            if index in bucket.filled_indices:
                continue
            # Also of earlier passes under no_sync: what is there takes part.
            self._put(bucket, index, p.grad)
            if p.grad is None:
                unused = True
            else:
                bucket.filled_indices.add(index)
        self._submit(bucket)
        return unused and bucket.sparse is None

    def _put(self, bucket: Bucket, index: int, gradient: torch.Tensor | None) -> None:
        """Have ``gradient`` in its place in ``bucket``; None: this rank has none."""
        if gradient is not None and gradient.layout is not torch.strided:
            self._check_layout(bucket, index, gradient.layout)
        if gradient is not None and bucket.sparse is None and bucket.memory.has(index, gradient):
            bucket.in_place.add(index)  # autograd may still add to it
        else:
            self._write(bucket, index, gradient, self._scale)

    def _write(self, bucket: Bucket, index: int, gradient: torch.Tensor | None, scale: float) -> None:
        self._device.follow(bucket.last_use)
        if bucket.sparse is not None:
            bucket.sparse.put(gradient, self._num_ranks)
        elif gradient is None:
            bucket.memory.views[index].zero_()
        else:
            # As DistributedDataParallel does: divided before it is summed up.
            torch.mul(gradient.detach(), scale, out=bucket.memory.views[index])
        bucket.stream, bucket.last_use = self._device.stream(), self._device.record()

    def _check_layout(self, bucket: Bucket, index: int, layout: torch.layout) -> None:
        if layout is not torch.sparse_coo:
            raise HocketError(
                f"the gradient of '{bucket.names[index]}' is {layout}; only strided and sparse_coo ones are"
                " summed up: return one of those"
            )
        if bucket.sparse is None:
            raise HocketError(
                f"the gradient of '{bucket.names[index]}' is sparse, which the first steps did not show; let"
                " them run as later ones, or use a layer with sparse=False"
            )

    def _submit(self, bucket: Bucket) -> None:
        while bucket.in_place:
            index = bucket.in_place.pop()
            self._write(bucket, index, bucket.memory.views[index], self._scale)
        if bucket.sparse is None:
            self._used.tell(bucket)
        bucket.filled_indices.clear()
        self._sent_buckets.add(bucket)
        self.unfinished[bucket] = None
        self.channel.submit(bucket)

    def _all_sent(self) -> None:
        """Every bucket has been sent in this round."""
        self._sent_buckets.clear()
        self._used.close()

    def _check_fresh(self, bucket: Bucket, p: Parameter) -> None:
        if bucket.pending_steps:
            raise HocketError(
                f"'{self._names[p]}' was read before its last update, by a path that the first steps did not"
                " take, outside of its module; call model.hocket.flush() after optimizer.step(), or use"
                " plan='ddp'"
            )

    # A bucket's round ends.

    def finish_before_read(self, p: Parameter) -> None:
        """``p`` is about to be read."""
        bucket, _ = self._place(p)
        if bucket.state is BucketState.SENT:
            self.finish(bucket)

    def finish_all(self, *, only_updates: bool = False, only_backward: bool = False) -> None:
        """Finish every bucket, only those that an update waits for, or only those of window "backward".

        What the current stream is asked for from then on is done behind every update.
        """
        # In the order in which they go: what rank 0 waits for overtakes the others.
        for bucket in sorted(self.unfinished, key=lambda bucket: (bucket.rounds, self._turn[bucket])):
            if (bucket.pending_steps or not only_updates) and not (only_backward and bucket.forward):
                self.finish(bucket)
        self._device.follow(self._updated)  # of those, too, that were finished from another stream

    def finish(self, bucket: Bucket) -> None:
        """Wait for ``bucket``, hand out its gradients and do what its optimizers have left to do."""
        if bucket.state is not BucketState.SENT or bucket in self._sent_buckets:
            # Read in the middle of its backward pass: it is this rank's own gradient so far. Others may not
            # have come as far, and wait for what we have not sent.
            return
        if self.is_forked:
            raise HocketError(
                f"'{bucket.names[0]}' was on its way and is read in a process forked from the one that"
                " trains; call model.hocket.flush() before the fork"
            )
        if self.thread != threading.get_ident() and torch._C._current_graph_task_id() == -1:
            raise HocketError(
                f"'{bucket.names[0]}' waits for its update and is read in another thread than the one that"
                " trains; call model.hocket.flush() in that one first, and let it wait meanwhile"
            )
        if not self.channel.has_arrived(bucket):
            for other in list(self.unfinished):
                if other.pending_steps and other is not bucket and self.channel.has_arrived(other):
                    self.finish(other)
            self._wait(bucket)
        if not self._used.known:
            with self.naming_culprit(for_next=False):
                self._used.wait()
        with outside_torch_modes():
            self._apply_bucket(bucket)

    def _apply_bucket(self, bucket: Bucket) -> None:
        """``bucket`` has arrived: hand out its gradients and do what its optimizers have left to do."""
        try:
            # One call, so that a signal's handler that looks at it comes before or behind.
            if self.unfinished.pop(bucket, bucket) is None:
                bucket.state = BucketState.IDLE
                with self._device.on(bucket.stream):
                    self._device.follow(self._updated)  # so that the last stands for all
                    for arrival in bucket.arrivals:
                        self._device.follow(arrival)
                    bucket.arrivals.clear()
                    self._apply_arrived_steps(bucket)
                    bucket.last_use = self._updated = self._device.record()
                self._device.follow(self._updated)
        except BaseException as error:
            if bucket not in self.unfinished:
                failure = f"{type(error).__name__}: {(str(error) or repr(error)).splitlines()[0]}"
                self.failure = (
                    f"an update of '{bucket.names[0]}' did not run to its end ({failure}); other ranks have"
                    " it: start all of them again from a checkpoint"
                )
            raise

    def _apply_arrived_steps(self, bucket: Bucket) -> None:
        if bucket.sparse is not None:
            (p,), total = bucket.parameters, bucket.sparse.total
            bucket.sparse.total = None
            if total is not None:
                p.grad = _in_own_tensor(total, p.grad)
            return
        for p in bucket.parameters:
            give_back(p)
        held = [self._final_gradient(bucket, index) for index in range(len(bucket.parameters))]
        if bucket.pending_steps:
            started = time.perf_counter()
            views = bucket.memory.views
            for p, view, used in zip(bucket.parameters, views, self._used.of(bucket), strict=True):
                p.grad = view if used else None
            for deferred in bucket.pending_steps:
                deferred.run()
            bucket.pending_steps.clear()
            self._recorder.record_span("update", bucket.names, started)
        for p, gradient in zip(bucket.parameters, held, strict=True):
            p.grad = gradient

    def _final_gradient(self, bucket: Bucket, index: int) -> torch.Tensor | None:
        """The gradient that its parameter is to have."""
        p, own = bucket.parameters[index], bucket.own_gradients.pop(index, None)
        if p.grad is not bucket.stand_ins[index] and not is_referenced(bucket.stand_ins, index):
            return p.grad
        stand_in = bucket.stand_ins[index]
        # The very tensor that somebody has, as with DistributedDataParallel, unless it has a history to keep.
        if own is None or own.requires_grad:
            stand_in.reduced_gradient = self._reduced(bucket, index)
        else:
            stand_in.reduced_gradient = own.copy_(bucket.memory.views[index])
        stand_in.wait = _no_wait
        bucket.stand_ins[index] = self._stand_in(bucket, index)
        return stand_in.reduced_gradient if p.grad is stand_in else p.grad

    def _reduced(self, bucket: Bucket, index: int) -> torch.Tensor:
        """A gradient that has arrived; who has it when its bucket is filled again keeps that memory."""
        memory = bucket.memory
        return memory.gradients[index] if self._hands_out else memory.views[index].clone()

    def _stand_in(self, bucket: Bucket, index: int) -> PendingGradient:
        return PendingGradient(bucket.memory.views[index], functools.partial(self._read_early, bucket, index))

    def _read_early(self, bucket: Bucket, index: int) -> None:
        """Wait for a gradient that is looked at while it may still be on its way."""
        if bucket in self._sent_buckets:
            raise HocketError(
                f"the gradient of '{bucket.names[index]}' was read, or came again, in a backward pass in"
                " which it had left; read it in a hook of that parameter or when the pass is over, and use"
                " checkpoints with use_reentrant=False"
            )
        if bucket in self.unfinished:
            when = "after" if bucket.pending_steps else "before"
            self.barriers.meet(
                f"gradients were read {when} the optimizer's step", bucket.names[index : index + 1]
            )
            self.finish(bucket)

    def _wait(self, bucket: Bucket) -> None:
        started = time.perf_counter()
        with self.naming_culprit(for_next=False):
            self.channel.wait(bucket)
        self._recorder.record_span("wait", bucket.names, started)

    @contextlib.contextmanager
    def naming_culprit(self, *, for_next: bool = True) -> Iterator[None]:
        """Say of a failure on the network which rank is its reason.

        ``for_next``: whether what is waited for within needs the others in the next step, too.
        """
        try:
            with self._watch.waiting(for_next=for_next):
                yield
        except (TransferError, LostError, RuntimeError) as error:
            failure = (str(error) or repr(error)).splitlines()[0]
            if isinstance(error, RuntimeError) and not any(word in failure.lower() for word in _OF_GLOO):
                raise
            raise HocketError(f"training stopped: {self._watch.blame(failure)}") from None


def _no_wait() -> None:
    """Return: the gradient is there."""


def _in_own_tensor(value: torch.Tensor, own: torch.Tensor | None) -> torch.Tensor:
    """``value`` in the tensor that a parameter had for its gradient, where that is of its form."""
    if own is None or own.layout is not value.layout or own.requires_grad:
        return value
    return own.copy_(value)
