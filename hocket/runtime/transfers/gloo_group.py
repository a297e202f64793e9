"""Ranks that talk to each other on connections of their own.

Torch numbers the groups that a script makes, on each rank by itself: one that only some ranks make shifts the
numbers of all that follow. These groups are named by rank 0, and torch knows nothing of them: they are there
whatever the script makes or destroys, and their collectives never get in line with the script's.
"""

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import msgspec
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, ProcessGroupGloo, ReduceOp

from hocket.errors import HocketError
from hocket.runtime.transfers.gloo_threads import wait_at_end
from hocket.runtime.transfers.training_device import device_of
from hocket.runtime.transfers.transfer_group import StartedCollective, share_of

T = TypeVar("T")

_SPREAD_BYTES = 4 << 20
_GLANCE = timedelta(seconds=1)


class WatchedCollective:
    """A collective that ends with an error as soon as ``loss_reason`` says why it never ends otherwise."""

    def __init__(self, work: dist.Work, loss_reason: Callable[[], str]) -> None:
        self._work, self._loss_reason = work, loss_reason

    def wait(self) -> None:
        """Return when it has ended."""
        while True:
            try:
                self._work.wait(_GLANCE)
                return
            except RuntimeError:
                if self._work.is_completed():
                    break
                if line := self._loss_reason():
                    raise LostError(line) from None
        self._work.wait()


class StagedCollective:
    """A collective on ``fetched``, in memory of the host, for ``tensor`` on a device."""

    def __init__(self, work: StartedCollective, fetched: torch.Tensor, tensor: torch.Tensor) -> None:
        self._work, self._fetched, self._tensor = work, fetched, tensor

    def wait(self) -> None:
        """Return when it has ended, and this thread's stream has been asked to bring what came."""
        self._work.wait()
        self._tensor.copy_(self._fetched, non_blocking=True)


class SummedShare:
    """This rank's share of a reduce-scatter: the sum of ``received``, one of each rank in their order."""

    def __init__(self, work: StartedCollective, share: torch.Tensor, received: torch.Tensor) -> None:
        self._work, self._share, self._received = work, share, received

    def wait(self) -> None:
        """Return when it is summed up."""
        self._work.wait()
        first, *others = self._received.split(self._share.numel())
        self._share.copy_(first)
        for each in others:
            self._share.add_(each)


class NumberOfFirst:
    """The number that rank 0 sends by ``work`` into ``tensor``."""

    def __init__(self, work: StartedCollective, tensor: torch.Tensor) -> None:
        self._work, self._tensor = work, tensor

    def wait(self) -> float:
        """The number, once it is here."""
        self._work.wait()
        return float(self._tensor)


class LostError(Exception):
    """A collective that never ends, as a rank that it needs is not going to come."""


class GlooGroup:
    """Some ranks of the job, over gloo; ``name`` is this group's alone, in all of the job's time.

    All of ``ranks`` make it, and issue the same collectives in the same order. None takes longer than
    ``timeout``, which ends the group. ``loss_reason`` says, from some moment on, why none ever ends; where it
    is set, a waiting thread asks it every second.
    """

    def __init__(self, ranks: Sequence[int], name: str, timeout: timedelta) -> None:
        store = PrefixStore(name, dist.distributed_c10d._get_default_store())
        self.rank, self.size = ranks.index(dist.get_rank()), len(ranks)
        self._gloo: Any = ProcessGroupGloo(store, self.rank, self.size, timeout)
        self.loss_reason: Callable[[], str] | None = None
        self._unawaited: dist.Work | None = None
        wait_at_end()

    def reduce(self, tensor: torch.Tensor, op: Any = ReduceOp.SUM) -> StartedCollective:
        """Start an AllReduce of ``tensor``, in place."""
        return self._start(tensor, lambda here: self._watch(self._gloo.allreduce([here], op)))

    def sum_shares(self, tensor: torch.Tensor) -> StartedCollective:
        """Start a reduce-scatter of ``tensor``, in place: the sum is in this rank's share of it.

        Ranks exchange shares and add them up here: gloo's own reduce-scatter takes as long as an AllReduce.
        """
        return self._start(tensor, self._exchange_shares)

    def gather_shares(self, tensor: torch.Tensor) -> StartedCollective:
        """Start an all-gather into ``tensor``: every rank's share of it is in its place."""

        def start(here: torch.Tensor) -> StartedCollective:
            return self._watch(self._gloo._allgather_base(here, share_of(here, self.rank, self.size)))

        return self._start(tensor, start)

    def broadcast(self, tensor: torch.Tensor, source: int = 0) -> StartedCollective:
        """Start sending ``source``'s flat ``tensor`` into everybody's, as bytes: gloo knows few types."""
        in_bytes = tensor.view(torch.uint8)
        return self._start(in_bytes, lambda here: self._watch(self._gloo.broadcast(here, source)))

    def start_number(self, value: float) -> NumberOfFirst:
        """Start sending rank 0's ``value`` to all; one at a time, which nobody has to wait for."""
        tensor = torch.tensor([value], dtype=torch.float64)
        self._unawaited = self._gloo.broadcast(tensor.view(torch.uint8), 0)
        return NumberOfFirst(self._watch(self._unawaited), tensor)

    def send(self, tensor: torch.Tensor, rank: int) -> dist.Work:
        """Start sending ``tensor`` to ``rank``; it ends once that receives."""
        work: dist.Work = self._gloo.send([tensor], rank, 0)
        return work

    def receive(self, tensor: torch.Tensor, rank: int) -> dist.Work:
        """Start receiving the next of what ``rank`` sends; it fails once that is gone."""
        work: dist.Work = self._gloo.recv([tensor], rank, 0)
        return work

    def gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Every rank's ``tensor``, all of one shape."""
        work, tensors = self.start_gather(tensor)
        work.wait()
        return tensors

    def start_gather(self, tensor: torch.Tensor) -> tuple[StartedCollective, list[torch.Tensor]]:
        """Start a :meth:`gather`; what it returns is there once the work has ended."""
        tensors = [torch.empty_like(tensor) for _ in range(self.size)]
        return self._watch(self._gloo.allgather([tensors], [tensor])), tensors

    def barrier(self) -> None:
        """Return when all ranks are here."""
        self._gloo.barrier().wait()

    def _exchange_shares(self, here: torch.Tensor) -> StartedCollective:
        received = torch.empty_like(here)
        work = self._watch(self._gloo.alltoall_base(received, here, [], []))
        return SummedShare(work, share_of(here, self.rank, self.size), received)

    def _start(
        self, tensor: torch.Tensor, start: Callable[[torch.Tensor], StartedCollective]
    ) -> StartedCollective:
        """Call ``start`` with ``tensor``, or with its copy in memory of the host, which gloo needs."""
        device = device_of(tensor)
        fetched = device.fetch_to_host(tensor)
        if fetched is None:
            return start(tensor)
        device.wait(device.record())
        return StagedCollective(start(fetched), fetched, tensor)

    def _watch(self, work: dist.Work) -> StartedCollective:
        return work if self.loss_reason is None else WatchedCollective(work, self.loss_reason)

    def abandon(self) -> None:
        """Keep it to the end of the process: something is under way in it, and torch would wait for that."""
        ctypes.pythonapi.Py_IncRef(ctypes.c_void_p(id(self._gloo)))

    def close(self) -> None:
        """End its threads, once what is under way has ended; it is not used again.

        One that gives back a tensor while the interpreter ends aborts the process.
        """
        if self._unawaited is not None and not self._unawaited.is_completed():
            self.abandon()  # rank 0 may have had fewer steps, and never sends it
        del self._gloo


def new_group_name(process_group: dist.ProcessGroup | None) -> str:
    """A name that all ranks of ``process_group``, the default one for None, get, and nobody else ever."""
    device = dist.distributed_c10d._get_object_coll_device(process_group)
    drawn = torch.tensor(list(uuid.uuid4().bytes), dtype=torch.uint8, device=device)
    dist.broadcast(drawn, group=process_group, group_src=0)
    return f"hocket/{bytes(drawn.tolist()).hex()}"


def gather_values(value: T, group: GlooGroup, kind: type[T]) -> list[T]:
    """``value`` of every rank, in their order; all are of ``kind``, which msgspec can decode."""
    mine = _pack(value)
    lengths = [int(length) for length in group.gather(torch.tensor([len(mine)]))]
    packed = group.gather(torch.nn.functional.pad(mine, (0, max(lengths) - len(mine))))
    return [_unpack(data[:length], kind) for data, length in zip(packed, lengths, strict=True)]


def broadcast_value(value: T, group: GlooGroup, kind: type[T]) -> T:
    """Rank 0's ``value``; all are of ``kind``, which msgspec can decode."""
    packed = _pack(value)
    length = torch.tensor([len(packed)])
    group.broadcast(length).wait()
    if group.rank:
        packed = torch.zeros(int(length), dtype=torch.uint8)
    group.broadcast(packed).wait()
    return _unpack(packed, kind) if group.rank else value


def broadcast_number(value: float, group: GlooGroup) -> float:
    """Rank 0's ``value``, in one message of eight bytes."""
    tensor = torch.tensor([value], dtype=torch.float64)
    group.broadcast(tensor).wait()
    return float(tensor)


def max_over_ranks(values: Sequence[float], group: GlooGroup) -> list[float]:
    """The largest over the ranks of each of ``values``."""
    tensor = torch.tensor(values, dtype=torch.float64)
    group.reduce(tensor, ReduceOp.MAX).wait()
    result: list[float] = tensor.tolist()
    return result


def broadcast_tensors(tensors: Sequence[torch.Tensor], group: GlooGroup, source: int = 0) -> None:
    """Rank ``source``'s values into ``tensors`` of every rank, in place, a few megabytes at a time."""
    kinds: dict[tuple[torch.dtype, torch.device], list[torch.Tensor]] = {}
    for tensor in tensors:
        kinds.setdefault((tensor.dtype, tensor.device), []).append(tensor)
    for alike in kinds.values():
        together: list[torch.Tensor] = []
        for tensor in alike:
            together.append(tensor)
            if sum(each.nbytes for each in together) >= _SPREAD_BYTES:
                _broadcast_flat(together, group, source)
                together = []
        _broadcast_flat(together, group, source)


def _broadcast_flat(tensors: Sequence[torch.Tensor], group: GlooGroup, source: int) -> None:
    if not tensors:
        return
    flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
    group.broadcast(flat, source).wait()
    for tensor, piece in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
        tensor.copy_(piece.view(tensor.shape))


def _pack(value: Any) -> torch.Tensor:
    return torch.frombuffer(bytearray(msgspec.msgpack.encode(value)), dtype=torch.uint8)


def _unpack(data: torch.Tensor, kind: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(data.numpy().tobytes(), type=kind)
    except msgspec.MsgspecError as error:
        raise HocketError(
            f"what another rank sent is not what this one takes ({error}); run one version of hocket on all"
        ) from None
