"""Rounds: what a synchronised backward pass starts, and how each bucket's part of it ends.

In a round every bucket is filled and sent once. It ends bucket by bucket, each when it is *finished*: it has
arrived, its gradients are where the user expects them, and what its optimizers had to do is done.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Mapping, Sequence

import torch

from hocket.errors import HocketError
from hocket.runtime.lazy.gradient import PendingGradient
from hocket.runtime.lazy.neutral_mode import outside_torch_modes
from hocket.runtime.observe.barriers import Barriers
from hocket.runtime.observe.liveness import LivenessWatch
from hocket.runtime.observe.recorder import SpanRecorder
from hocket.runtime.training.bucket_filling import BucketFilling
from hocket.runtime.training.culprit import naming_culprit
from hocket.runtime.training.early_answers import EarlyAnswers
from hocket.runtime.training.gradient_hand_out import GradientHandOut
from hocket.runtime.transfers.buckets import Bucket, BucketState
from hocket.runtime.transfers.channel import Channel
from hocket.runtime.transfers.channel_groups import ChannelGroups
from hocket.runtime.transfers.gloo_group import GlooGroup
from hocket.runtime.transfers.plan_layout import Layout
from hocket.runtime.transfers.training_device import PROCESSORS, Event, device_of
from hocket.runtime.transfers.used_flags import UsedFlags

Parameter = torch.nn.Parameter


class Rounds:
    """The buckets of the plan in force, on ``groups``, which are for them alone.

    ``parameters``: the trained ones by name, all on one device; ``used``: which of them ranks use;
    ``watch`` says whose fault a failure is. ``filling``: what buckets are filled with. ``barriers``: why
    steps waited that might have gone on travelling. ``unfinished``: buckets that were sent, the oldest first.
    ``thread``: the one that trains. ``failure``: why no step may follow; empty: one may. ``sums_sparse``:
    whether gradients may be sparse; ``num_ranks``: how many ranks there are. ``early_answers``: what is
    known of gradients before they arrive. ``steps_together``: whether updates of several buckets run at once.
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
        self._used = used
        self.num_ranks = groups.transfers.size
        self.early_answers = EarlyAnswers(self, recorder, watch)
        self._hand_out = GradientHandOut(self._device, used, recorder, self._read_early, self.early_answers)
        self.filling = BucketFilling(self._device, self.num_ranks, self._hand_out.stand_in)
        self.steps_together = self._device is PROCESSORS
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
        self._sent_buckets: set[Bucket] = set()
        self._aliased_buckets: dict[Bucket, None] = {}
        self.thread = threading.get_ident()
        self._process = os.getpid()

    @property
    def clock(self) -> str:
        """The name of the clock that times the device's work; empty: the host's."""
        return self._device.clock

    @property
    def sums_in_halves(self) -> bool:
        """True if the plan in force has reductions in halves."""
        return self._layout is not None and self._layout.has_halves

    @property
    def is_forked(self) -> bool:
        """True if this process is a child of the one that trains."""
        return os.getpid() != self._process

    def enforce(self, layout: Layout, norm_orders: Sequence[float]) -> None:
        """Send along ``layout`` from the next round on; everything is finished, here and on all ranks.

        ``norm_orders``: of norms that are to be known before gradients arrive, where it has halves.
        """
        assert not self.unfinished
        self.channel.stop()
        self.filling.enforce(layout.buckets)
        self._used.forget()
        self._layout = layout
        self._turn = {bucket: turn for turn, bucket in enumerate(layout.buckets)}
        self.channel.start(layout, norm_orders)

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
                self.filling.release(bucket)
            self.filling.open(bucket)
            for index in range(len(bucket.parameters)):
                self.filling.put(bucket, index, None)
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
        self.filling.open(bucket)
        bucket.filled_indices.add(index)
        self.filling.put(bucket, index, p.grad if gradient is None else gradient)
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
        if self._sent_buckets and (bucket := self._place(p)[0]) in self._sent_buckets:
            self._hand_out.replace_early(bucket, arrived)

    def keep(self, p: Parameter, arrived: torch.Tensor) -> None:
        """Have the gradient of ``p``, to which autograd may still add, in its bucket and nowhere else.

        ``arrived``: as for :meth:`hand_over`.
        """
        self.filling.keep(*self._place(p), arrived)

    def close(self) -> list[Bucket]:
        """Send what has not been sent, with zeros where there is no gradient; the buckets that have such."""
        assert self._layout is not None
        unused = [
            bucket
            for bucket in self._layout.buckets
            if bucket not in self._sent_buckets and self._complete(bucket)
        ]
        for bucket in self._sent_buckets:
            if self._hand_out.replace_all(bucket):
                self._aliased_buckets[bucket] = None
        self._all_sent()
        return unused

    def finish_unused(self, buckets: list[Bucket]) -> None:
        """Give this rank the gradients of parameters that only others used."""
        for bucket in buckets:
            unused = (name for name, p in zip(bucket.names, bucket.parameters, strict=True) if p.grad is None)
            self.barriers.meet("parameters that some ranks did not use", unused)
            self.finish(bucket)
            self._hand_out.give_unused(bucket)

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
        self.filling.open(bucket)
        unused = False
        for index, p in enumerate(bucket.parameters):
            if index in bucket.filled_indices:
                continue
            # Also of earlier passes under no_sync: what is there takes part.
            self.filling.put(bucket, index, p.grad)
            if p.grad is None:
                unused = True
            else:
                bucket.filled_indices.add(index)
        self._submit(bucket)
        return unused and bucket.sparse is None

    def _submit(self, bucket: Bucket) -> None:
        if bucket.sparse is None:
            self._used.tell(bucket)
        self.filling.close(bucket)
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

        Work that the current stream is asked for from then on is done behind every update.
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
            if others := self._arrived_beside(bucket):
                self._apply(others)
            self._wait(bucket)
        # What its reader finds arrived beside it is updated with it: a step for all costs as much as for one.
        together = self.steps_together and bucket.pending_steps
        self._apply([bucket, *(self._arrived_beside(bucket) if together else ())])

    def _arrived_beside(self, bucket: Bucket) -> list[Bucket]:
        """Other buckets that have arrived and wait for updates."""
        return [
            other
            for other in self.unfinished
            if other.pending_steps and other is not bucket and self.channel.has_arrived(other)
        ]

    def _apply(self, buckets: Sequence[Bucket]) -> None:
        """``buckets`` have arrived: hand out their gradients and do what their optimizers have left to do."""
        if not self._used.known:
            with naming_culprit(self._watch, for_next=False):
                self._used.wait()
        with outside_torch_modes():
            # Of a device each is on the stream that filled it.
            for some in [buckets] if self.steps_together else [[bucket] for bucket in buckets]:
                self._apply_at_once(some)

    def _apply_at_once(self, buckets: Sequence[Bucket]) -> None:
        try:
            # One call for each, so that a signal's handler that looks at it comes before or behind.
            taken = [bucket for bucket in buckets if self.unfinished.pop(bucket, bucket) is None]
            if taken:
                with self._device.on(taken[0].stream):
                    self._device.follow(self._updated)  # so that the last stands for all
                    for bucket in taken:
                        self._follow_arrival(bucket)
                    self._hand_out.hand_out(taken)
                    self._updated = self._device.record()
                    for bucket in taken:
                        bucket.last_use = self._updated
                self._device.follow(self._updated)
        except BaseException as error:
            if failed := [bucket.names[0] for bucket in buckets if bucket not in self.unfinished]:
                failure = f"{type(error).__name__}: {(str(error) or repr(error)).splitlines()[0]}"
                self.failure = (
                    f"an update of '{failed[0]}' did not run to its end ({failure}); other ranks have"
                    " it: start all of them again from a checkpoint"
                )
            raise

    def _follow_arrival(self, bucket: Bucket) -> None:
        """Have this stream go on once ``bucket`` is there, and what it is scaled by."""
        bucket.state = BucketState.IDLE
        for arrival in bucket.arrivals:
            self._device.follow(arrival)
        bucket.arrivals.clear()
        if bucket.awaited_since is not None:  # of a device only its streams wait to the end
            self._recorder.record_span("wait", bucket.names, bucket.awaited_since)
            bucket.awaited_since = None
        for scaled in bucket.scaled.values():
            self._device.follow(scaled)
        bucket.scaled.clear()

    def has_early_norms(self, bucket: Bucket) -> bool:
        """True if ``bucket`` is on its way and its norms are known, or going to be, before it arrives."""
        on_its_way = bucket in self.unfinished and bucket not in self._sent_buckets
        here = not self.is_forked and self.thread == threading.get_ident()
        return self.sums_in_halves and on_its_way and here

    def follow_scaling(self, bucket: Bucket) -> None:
        """Have scaling that is put off until ``bucket`` has arrived follow what this stream was asked for."""
        bucket.scaled[self._device.stream()] = self._device.record()

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
        bucket.awaited_since = self._recorder.now()
        with naming_culprit(self._watch, for_next=False):
            self.channel.wait(bucket)
