"""Buckets that are filled: memory in which nobody has anything to look for, and gradients in it, divided."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from hocket.errors import HocketError
from hocket.runtime.lazy.aliases import is_referenced, shares_memory
from hocket.runtime.lazy.promised_gradient import PromisedGradient
from hocket.runtime.transfers.buckets import Bucket, BucketState
from hocket.runtime.transfers.training_device import PROCESSORS, TrainingDevice

_EXACT = (torch.float32, torch.float64)
"""Types in which kernels compute."""


class BucketFilling:
    """Puts gradients, each divided by the number of ranks, into the memory that buckets have on ``device``.

    ``stand_in``: makes what a parameter has while the gradient at that index of a bucket travels.
    """

    def __init__(
        self, device: TrainingDevice, num_ranks: int, stand_in: Callable[[Bucket, int], PromisedGradient]
    ) -> None:
        self._device, self._stand_in = device, stand_in
        # Of a device, memory that streams still read would be written by others that nobody waits for.
        self._keeps = device is PROCESSORS
        self._factors: dict[torch.dtype, torch.Tensor] = {}
        self.divide_by(num_ranks)
        self._buckets: tuple[Bucket, ...] = ()

    def enforce(self, buckets: Iterable[Bucket]) -> None:
        """Fill these from now on; those so far have no memory any more, and are with nobody."""
        for bucket in self._buckets:
            self.release(bucket)
        self._buckets = tuple(buckets)

    def release(self, bucket: Bucket) -> None:
        """Have no memory for ``bucket``; parameters keep theirs."""
        bucket.stand_ins.clear()  # gradients and buckets hold each other
        if bucket.has_memory:
            self._device.wait(bucket.last_use)  # its memory may be another stream's, and goes
            bucket.release()

    def divide_by(self, num_ranks: int) -> None:
        """Gradients of the rounds to come are means over so many ranks."""
        self._scale, self._num_ranks = 1.0 / num_ranks, num_ranks
        if (
            self._keeps
        ):  # a number would become a tensor of its type in each call; shorter types' round otherwise
            self._factors = {dtype: torch.tensor(self._scale, dtype=dtype) for dtype in _EXACT}

    def open(self, bucket: Bucket) -> None:
        """Begin to fill ``bucket``, in memory in which nobody has anything to look for."""
        if bucket.state is BucketState.FILLING:
            return
        bucket.state = BucketState.FILLING
        if bucket.sparse is not None:
            return
        if not bucket.has_memory:
            self._allocate()
        elif bucket.memory.is_held:
            self.release(bucket)
            self._allocate()

    def _allocate(self) -> None:
        """Have memory for every bucket that has none."""
        # All at once: what lives long and comes between gradients would leave holes where those were.
        for bucket in self._buckets:
            if bucket.sparse is None and not bucket.has_memory:
                bucket.allocate()
                indices = range(len(bucket.parameters))
                bucket.stand_ins = [self._stand_in(bucket, index) for index in indices]

    def put(self, bucket: Bucket, index: int, gradient: torch.Tensor | None) -> None:
        """Have ``gradient`` in its place in ``bucket``; None: this rank has none."""
        if gradient is not None and gradient.layout is not torch.strided:
            _check_layout(bucket, index, gradient.layout)
        if gradient is not None and bucket.sparse is None and bucket.memory.has(index, gradient):
            bucket.in_place.add(index)  # autograd may still add to it
        else:
            # Those that travel in a shorter type are divided in that.
            self._write(bucket, index, gradient, divided=not bucket.short_dtype)

    def keep(self, bucket: Bucket, index: int, arrived: torch.Tensor) -> None:
        """Have a gradient to which autograd may still add in ``bucket`` and nowhere else, if it may be there.

        ``arrived``: what autograd has just made it of, and still has.
        """
        p = bucket.parameters[index]
        if not self._keeps or bucket.sparse is not None or bucket.state is BucketState.SENT:
            return
        self.open(bucket)
        memory, own = bucket.memory, [p.grad]
        if own[0] is None or not memory.can_stand_for(index, own[0]) or memory.has(index, own[0]):
            return
        p.grad = memory.gradients[index]
        if is_referenced(own, 0) or shares_memory(own[0], arrived):
            p.grad = own[0]
        else:
            self._write(bucket, index, own[0], divided=False)

    def close(self, bucket: Bucket) -> None:
        """Nothing is added to gradients of ``bucket`` any more: divide those that are not divided yet."""
        if bucket.short_dtype:
            bucket.in_place.clear()
            self._begin_write(bucket)
            bucket.memory.shorten(bucket.short_dtype, self._num_ranks)
            self._end_write(bucket)
        while bucket.in_place:
            index = bucket.in_place.pop()
            self._write(bucket, index, bucket.memory.views[index], divided=True)

    def _write(self, bucket: Bucket, index: int, gradient: torch.Tensor | None, *, divided: bool) -> None:
        self._begin_write(bucket)
        if bucket.sparse is not None:
            bucket.sparse.put(gradient, self._num_ranks)
        elif gradient is None:
            bucket.memory.views[index].zero_()
        else:
            own, place = gradient.detach() if gradient.requires_grad else gradient, bucket.memory.views[index]
            if divided:  # before it is summed up, as DistributedDataParallel does
                factor: Any = self._factors.get(own.dtype, self._scale)
                torch.mul(own, factor, out=place)
            else:
                place.copy_(own)
        self._end_write(bucket)

    def _begin_write(self, bucket: Bucket) -> None:
        """The current stream is going to be asked to write what ``bucket`` sends, behind what was written."""
        self._device.follow(bucket.last_use)

    def _end_write(self, bucket: Bucket) -> None:
        """It has been asked to."""
        bucket.stream, bucket.last_use = self._device.stream(), self._device.record()


def _check_layout(bucket: Bucket, index: int, layout: torch.layout) -> None:
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
