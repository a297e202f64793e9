"""Collectives of sharded training on processors: they run beside computing, as those of a GPU do.

Torch's own all-gather and reduce-scatter block the thread that computes where there are no streams: what is
prefetched is waited for at once, and no transfer runs beside anything. These are started on the same process
group and waited for as late as can be: an all-gather when its unit computes, a reduce-scatter at the end of
the backward pass, or when two others are behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.autograd import Variable

from hocket.runtime.sharding.shard_events import ShardEvents
from hocket.runtime.sharding.share_sums import of_torch, sum_shares

_AT_ONCE = 2  # reduce-scatters under way: the network has the next one when one ends, and memory is bounded
_MEAN_TYPES = (torch.float32, torch.bfloat16)
"""Types of gradients that torch has reduced to their mean; it divides others itself, as soon as they are."""


class NotedGather(dist.Work):
    """An all-gather that notes when it is waited for; torch's sharding asks it nothing else."""

    def __init__(self, work: dist.Work, unit: int, events: ShardEvents) -> None:
        super().__init__()
        self._work, self._unit, self._events = work, unit, events

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Return when the whole parameters are here."""
        with self._events.waiting("gather", self._unit):
            self._work.wait()
        self._events.cut("gathered", self._unit)
        return True


class SumUnderWay(NamedTuple):
    """A reduce-scatter of ``unit`` whose shares travel by ``work``; ``end`` makes the sum of them.

    ``size_bytes``: of what is sent and received meanwhile.
    """

    unit: int
    size_bytes: int
    work: dist.Work
    end: Callable[[], None]


class SumsUnderWay:
    """The reduce-scatters of a backward pass that nobody has waited for; all end with it."""

    def __init__(self, events: ShardEvents) -> None:
        self._events = events
        self._waiting: deque[SumUnderWay] = deque()

    @property
    def held_bytes(self) -> int:
        """Bytes of the buffers of all that is under way."""
        return sum(one.size_bytes for one in self._waiting)

    def add(self, one: SumUnderWay) -> None:
        """Have ``one`` end with this backward pass, or before, when two are behind it."""
        # Autograd runs it before backward() returns, behind what torch's sharding has it run. Each asks for
        # it: a pass that fails runs none, and leaves some here that the next one ends.
        Variable._execution_engine.queue_callback(self.end)
        self._waiting.append(one)
        self._events.note_held()
        while len(self._waiting) > _AT_ONCE:
            self.end_one(self._waiting.popleft())

    def end(self) -> None:
        """Return when all have ended."""
        while self._waiting:
            self.end_one(self._waiting.popleft())

    def end_one(self, one: SumUnderWay) -> None:
        """Return when ``one`` has ended."""
        with self._events.waiting("reduce", one.unit):
            one.work.wait()
        one.end()
        self._events.note_held()


class _Allocating:
    """A collective's memory, as torch's own has it."""

    def __init__(self, unit: int, events: ShardEvents) -> None:
        self._unit, self._events = unit, events

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Memory for a collective's input or output."""
        return torch.empty(*size, dtype=dtype, device=device)


class GatherBeside(_Allocating):
    """The all-gather of one unit, started and not waited for."""

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> dist.Work:
        """Start it; what is returned is waited for when the unit computes."""
        gather = of_torch("all_gather_single", "all_gather_into_tensor")
        work = gather(output_tensor, input_tensor, group=group, async_op=True)
        self._events.started("gather", self._unit, output_tensor.nbytes, work)
        return NotedGather(work, self._unit, self._events)


class ReduceBeside(_Allocating):
    """The reduce-scatter of one unit: shares are exchanged, and added up here in gloo's order."""

    def __init__(
        self, unit: int, events: ShardEvents, sums: SumsUnderWay, read_at_once: Callable[[], bool]
    ) -> None:
        """``read_at_once``: whether torch reads the sum before the backward pass ends."""
        super().__init__(unit, events)
        self._sums, self._read_at_once = sums, read_at_once

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> None:
        """Start it, and end it where its sum is read at once."""
        self._events.cut("computed", self._unit)
        mean = op == dist.ReduceOp.AVG
        if not mean and op != dist.ReduceOp.SUM:
            of_torch("reduce_scatter_single", "reduce_scatter_tensor")(
                output_tensor, input_tensor, op=op, group=group
            )
            return
        received = torch.empty_like(input_tensor)
        work = dist.all_to_all_single(received, input_tensor, group=group, async_op=True)
        self._events.started("reduce", self._unit, input_tensor.nbytes, work)
        rank, ranks = group.rank(), group.size()

        def end() -> None:
            sum_shares(received, output_tensor, rank, ranks, mean)

        one = SumUnderWay(self._unit, input_tensor.nbytes + received.nbytes, work, end)
        if mean and output_tensor.dtype in _MEAN_TYPES and not self._read_at_once():
            self._sums.add(one)
        else:
            self._sums.end_one(one)
