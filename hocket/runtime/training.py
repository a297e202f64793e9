"""A model in training: gradients leave as they are completed, parameters are updated before they are read.

One round is what a synchronised backward pass starts: every bucket is filled and sent once. It ends bucket by
bucket, each when it is *settled*: it has arrived, its gradients are where the user expects them, and what its
optimizers had to do is done. Buckets with window "backward" are settled before the next forward pass begins,
others when their first parameter is about to be read, or whenever anybody looks.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import torch
import torch.distributed as dist
from torch.autograd import Variable
from torch.utils._pytree import tree_iter

from hocket.errors import HocketError
from hocket.runtime.allreduce import Channel, TransferError
from hocket.runtime.buckets import Bucket, Layout, State
from hocket.runtime.buffers import StateBuffers
from hocket.runtime.pending import PendingGradient
from hocket.runtime.reads import Hook, Readers
from hocket.runtime.recorder import Recorder
from hocket.runtime.watch import Watch


class Training:
    """One model's training on this rank.

    ``parameters``: the trained ones by name; ``group``: for transfers alone; ``buffers``: None where they
    are not kept equal; ``steps``: how many rounds were closed. ``between_steps`` is called before the
    forward pass that opens a step, when everything else is as the last step left it.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        parameters: Mapping[str, torch.nn.Parameter],
        group: dist.ProcessGroup,
        buffers: StateBuffers | None,
        watch: Watch,
        recorder: Recorder,
        timeout_s: float,
    ) -> None:
        self.model = model
        self.parameters = dict(parameters)
        self.recorder = recorder
        self.channel = Channel(group, timeout_s, recorder.sent)
        self.layout: Layout | None = None
        self.watch = watch
        self.buffers = buffers
        self.synchronising = self._wanted = True
        self.steps = 0
        self.between_steps: Callable[[], None] = lambda: None
        self.barriers: dict[str, None] = {}
        # What the first steps have to show before gradients may leave in the middle of a backward pass.
        self.learning = True
        self.fired: Counter[torch.nn.Parameter] = Counter()
        self.late: frozenset[torch.nn.Parameter] = frozenset()
        self.late_buffers = False
        self._names = {p: name for name, p in parameters.items()}
        self._scale = 1.0 / dist.get_world_size(group)
        self._unsettled: dict[Bucket, None] = {}
        self._sent: set[Bucket] = set()
        self._round_open = False
        self._callback_queued = False
        self._in_step = False
        self._values_before: list[torch.Tensor] = []
        self.readers = Readers(model, list(self.parameters.values()), self._first_read)
        self._noting: contextlib.AbstractContextManager[object] | None = None
        self._handles = [
            model.register_forward_pre_hook(Hook(self._forward_begins), prepend=True),
            model.register_forward_hook(Hook(self._forward_ended), always_call=True),
            *(
                p.register_post_accumulate_grad_hook(Hook(self._accumulated))
                for p in self.parameters.values()
            ),
        ]

    # What others ask for.

    def enforce(self, layout: Layout) -> None:
        """Send along ``layout`` from the next round on; all ranks do so at the same step."""
        self.settle_all()
        self.channel.stop()
        self.layout = layout
        for bucket in layout.buckets:
            wait = functools.partial(self._read_early, bucket)
            bucket.stand_ins = tuple(PendingGradient(view, wait) for view in bucket.views)
        self.channel.start(layout.transfers)
        self.recorder.forget()

    def settle_all(self) -> None:
        """Wait for every transfer and run what waits for it."""
        if self._round_open and not self._callback_queued:
            self._close_round()
        for bucket in list(self._unsettled):
            self._settle(bucket)

    def update_parameters(self) -> None:
        """Bring every parameter up to date; transfers that no update waits for go on."""
        for bucket in list(self._unsettled):
            if bucket.pending:
                self._settle(bucket)

    def wait_for_gradients(self, why: str) -> None:
        """Have all gradients reduced and in their parameters, for something that needs them all (``why``)."""
        self.barriers[why] = None
        self.settle_all()

    def stepping(self, optimizer: torch.optim.Optimizer, barrier: str) -> Sequence[Bucket]:
        """A step of ``optimizer`` begins: its buckets that may still travel, none after a ``barrier``."""
        if self._round_open:
            self._close_round()
        mine = {p for group in optimizer.param_groups for p in group["params"]}
        if barrier:
            self.barriers[barrier] = None
        travelling = []
        for bucket in list(self._unsettled):
            if mine.isdisjoint(bucket.parameters):
                continue
            if barrier:
                self._settle(bucket)
            else:
                travelling.append(bucket)
        return travelling

    def updated(self, parameters: Iterable[torch.nn.Parameter], started: float) -> None:
        """A step of ``parameters`` ran from ``started`` until now."""
        names = [self._names[p] for p in parameters if p in self._names]
        if names:
            self.recorder.spent("update", names, started)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of the forward passes within accumulate on this rank and travel with the next ones."""
        before, self._wanted = self._wanted, False
        try:
            yield
        finally:
            self._wanted = before

    def detach(self) -> None:
        """Settle everything and leave the model as it was before."""
        self.settle_all()
        self.channel.stop()
        self.readers.detach()
        for handle in self._handles:
            handle.remove()

    # The forward pass.

    def _forward_begins(self, model: torch.nn.Module, _: object) -> None:
        if not torch.is_grad_enabled():
            self.settle_all()
            self._receive_buffers()
            return
        if self._round_open and not self._callback_queued:
            self._close_round()  # a backward pass that an exception ended
        if not self._in_step:
            self._in_step = True
            self.recorder.begin_step()
            with self._blamed():
                self.between_steps()
            self.recorder.resume()
        self.synchronising = self._wanted
        for bucket in list(self._unsettled):
            if not bucket.forward:
                self._settle(bucket)
        self._receive_buffers()
        if self.learning:
            self._noting = self.readers.noting()
            self._noting.__enter__()

    def _forward_ended(self, model: torch.nn.Module, _: object, output: object) -> None:
        if self._noting is not None:
            self._noting.__exit__(None, None, None)
            self._noting = None
        if not torch.is_grad_enabled():
            return
        self.recorder.forward_ended()
        if not self.synchronising:
            return
        for tensor in tree_iter(output):
            if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
                # The outermost backward pass starts here; a checkpoint within it runs one of its own.
                tensor.register_hook(self._backward_begins)
        if self.buffers is not None:
            if self.learning:
                self._values_before = self.buffers.values()
            elif not self.late_buffers:
                self.buffers.send()

    def _first_read(self, module: str, parameters: Sequence[torch.nn.Parameter]) -> None:
        if self._unsettled:
            assert self.layout is not None
            for p in parameters:
                bucket = self.layout.place[p][0]
                if bucket.state is not State.IDLE:
                    self._settle(bucket)
        if self._in_step:
            self.recorder.reads(module, parameters)

    def _receive_buffers(self) -> None:
        if self.buffers is not None:
            with self._blamed():
                self.buffers.receive()

    # The backward pass.

    def _backward_begins(self, _: torch.Tensor) -> None:
        if self.synchronising and not self._callback_queued:
            self._callback_queued = True
            Variable._execution_engine.queue_callback(self._backward_ends)

    def _accumulated(self, p: torch.nn.Parameter) -> None:
        if not self.synchronising:
            return
        assert p.grad is not None
        if p.grad.is_sparse:
            raise HocketError(f"the gradient of '{self._names[p]}' is sparse; use a layer with sparse=False")
        self._backward_begins(p.grad)
        self.recorder.produced(p)
        self.fired[p] += 1
        self._round_open = True
        if not self.learning and p not in self.late:
            self.fill(p, p.grad)

    def fill(self, p: torch.nn.Parameter, gradient: torch.Tensor) -> None:
        """``gradient`` is complete: put it in its bucket, and send the bucket if it was the last."""
        assert self.layout is not None
        bucket, index = self.layout.place[p]
        if bucket.state is State.SENT:
            self._check_fresh(bucket, p)
            self._settle(bucket)
        bucket.state = State.FILLING
        bucket.filled.add(index)
        # As DistributedDataParallel does: divided before it is summed up.
        torch.mul(gradient, self._scale, out=bucket.views[index])
        if len(bucket.filled) == len(bucket.parameters):
            self._send(bucket)

    def _check_fresh(self, bucket: Bucket, p: torch.nn.Parameter) -> None:
        if bucket.pending:
            raise HocketError(
                f"'{self._names[p]}' was read before its last update, by a path that the first steps did not"
                " take, outside of its module; call model.hocket.flush() after optimizer.step(), or use"
                " plan='ddp'"
            )

    def _send(self, bucket: Bucket) -> None:
        bucket.used.zero_()
        bucket.used[list(bucket.filled)] = 1
        bucket.filled.clear()
        self._sent.add(bucket)
        self._unsettled[bucket] = None
        self.channel.send(bucket)

    def _backward_ends(self) -> None:
        if self._callback_queued:
            self._close_round()

    def _close_round(self) -> None:
        """Send what has not been sent, with zeros for what this backward pass did not reach."""
        assert self.layout is not None
        self._round_open = self._callback_queued = self._in_step = False
        self.steps += 1
        self.watch.steps = self.steps
        unused = [
            bucket for bucket in self.layout.buckets if bucket not in self._sent and self._complete(bucket)
        ]
        for bucket in self._sent:
            for p, stand_in in zip(bucket.parameters, bucket.stand_ins, strict=True):
                if p.grad is not None:
                    p.grad = stand_in
        self._sent.clear()
        if self.buffers is not None and self.synchronising:
            if self.learning:
                after = self.buffers.values()
                pairs = zip(self._values_before, after, strict=True)
                self.late_buffers |= not all(torch.equal(a, b) for a, b in pairs)
            if self.learning or self.late_buffers:
                self.buffers.send()
        self.recorder.backward_ended()
        if unused:
            self.barriers["parameters that some ranks did not use"] = None
        for bucket in unused:
            self._settle(bucket)
            for p, view, used in zip(bucket.parameters, bucket.views, bucket.used.tolist(), strict=True):
                if p.grad is None and used:
                    p.grad = view

    def _complete(self, bucket: Bucket) -> bool:
        """Fill what is missing of ``bucket`` and send it; whether this rank lacks a gradient of it."""
        if bucket.state is State.SENT:
            self._settle(bucket)
        unused = False
        for index, (p, view) in enumerate(zip(bucket.parameters, bucket.views, strict=True)):
            if index in bucket.filled:
                continue
            if p.grad is None:
                view.zero_()
                unused = True
            else:
                # Also of earlier passes under no_sync: what is there takes part.
                torch.mul(p.grad, self._scale, out=view)
                bucket.filled.add(index)
        self._send(bucket)
        return unused

    # The end of a bucket's round.

    def _read_early(self, bucket: Bucket) -> None:
        """Somebody looks at a gradient that may still be on its way."""
        if bucket in self._unsettled:
            when = "after" if bucket.pending else "before"
            self.barriers[f"gradients were read {when} the optimizer's step"] = None
            self._settle(bucket)

    def _settle(self, bucket: Bucket) -> None:
        if bucket.state is not State.SENT:
            return  # read in the middle of a backward pass: it is this rank's own gradient so far
        if not self.channel.arrived(bucket):
            for other in list(self._unsettled):
                if other.pending and other is not bucket and self.channel.arrived(other):
                    self._settle(other)
            self._wait(bucket)
        bucket.state = State.IDLE
        del self._unsettled[bucket]
        held = [
            view if p.grad is stand_in else p.grad
            for p, view, stand_in in zip(bucket.parameters, bucket.views, bucket.stand_ins, strict=True)
        ]
        if bucket.pending:
            started = time.perf_counter()
            for p, view, used in zip(bucket.parameters, bucket.views, bucket.used.tolist(), strict=True):
                p.grad = view if used else None
            for deferred in bucket.pending:
                deferred.run()
            bucket.pending.clear()
            self.recorder.spent("update", bucket.names, started)
        for p, gradient in zip(bucket.parameters, held, strict=True):
            p.grad = gradient

    def _wait(self, bucket: Bucket) -> None:
        started = time.perf_counter()
        with self._blamed():
            self.channel.wait(bucket)
        self.recorder.spent("wait", bucket.names, started)

    @contextlib.contextmanager
    def _blamed(self) -> Iterator[None]:
        """Say of a failure on the network which rank is its reason."""
        try:
            yield
        except (TransferError, RuntimeError) as error:
            failure = str(error).splitlines()[0]
            raise HocketError(f"training stopped: {self.watch.blame(failure)}") from None
