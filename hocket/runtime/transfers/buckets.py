"""A plan laid out in memory: buckets of gradients, each a flat buffer, and the transfers that reduce them."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from hocket.graph import Plan
from hocket.graph.plan import batch_name
from hocket.runtime.lazy.gradient import PendingGradient
from hocket.runtime.transfers.bucket_memory import BucketMemory, places_in
from hocket.runtime.transfers.gloo_group import GlooGroup
from hocket.runtime.transfers.sparse_sums import SparseGradient, Sum
from hocket.runtime.transfers.training_device import Event
from hocket.runtime.transfers.transfer_group import StartedCollective, TransferGroup

if TYPE_CHECKING:
    from hocket.runtime.training.optimizer_step import PartialStep


class BucketState(enum.Enum):
    """The state of a bucket in its round: being filled, with the network, or as the last step left it."""

    IDLE = enum.auto()
    FILLING = enum.auto()
    SENT = enum.auto()


@dataclass(eq=False)
class Bucket:
    """Parameters whose gradients are complete, reduced and applied together.

    ``pieces``: offset and elements of what travels of its memory. There its gradients are and, behind them,
    flags: for each whether this rank used it; summed over the ranks, a zero says that nobody did. It has none
    before its first round. ``stand_ins``: what parameters have for gradients on their way, and
    ``own_gradients``: tensors that others have, too, which get the values when those are wanted. ``forward``:
    whether it may travel into the next step's forward pass. ``pending_steps``: what its optimizers still have
    to do once it has arrived. ``in_place``: which gradients are in its memory and not divided yet.
    ``rounds``: how often it was sent; ``missing_transfers``: those of the last time of which it is not known
    when they end. ``sparse``: what sums up a gradient that may be sparse, the bucket's only one, which has no
    memory here; else None. ``stream``: the device's that filled it, on which its optimizers do their part,
    too; ``last_use``: when its memory was read or written last; ``arrivals``: when the sums of its transfers
    come.
    """

    names: tuple[str, ...]
    parameters: tuple[torch.nn.Parameter, ...]
    forward: bool
    pieces: list[tuple[int, int]] = field(default_factory=list)
    stand_ins: list[PendingGradient] = field(default_factory=list)
    own_gradients: dict[int, torch.Tensor] = field(default_factory=dict)
    state: BucketState = BucketState.IDLE
    filled_indices: set[int] = field(default_factory=set)
    in_place: set[int] = field(default_factory=set)
    rounds: int = 0
    missing_transfers: int = 0
    pending_steps: list[PartialStep] = field(default_factory=list)
    sparse: SparseGradient | None = None
    stream: Any = None
    last_use: Event = None
    arrivals: list[Event] = field(default_factory=list)
    _memory: BucketMemory | None = None

    @property
    def memory(self) -> BucketMemory:
        """Its memory; there is none before :meth:`allocate`."""
        assert self._memory is not None
        return self._memory

    @property
    def has_memory(self) -> bool:
        """True if it has been allocated."""
        return self._memory is not None

    def allocate(self) -> None:
        """Have new memory."""
        self._memory = BucketMemory(self.parameters, self.pieces)

    def release(self) -> None:
        """Have none."""
        self._memory = None

    def __repr__(self) -> str:
        return f"Bucket({', '.join(self.names)})"  # no values: some wait to be looked at

    @property
    def has_stand_ins(self) -> bool:
        """True if nobody has dropped or replaced a gradient since it was sent."""
        if self.sparse is not None:
            return False  # its gradient never stands in for one on its way
        pairs = zip(self.parameters, self.stand_ins, strict=True)
        return all(p.grad is stand_in for p, stand_in in pairs)


@dataclass(eq=False, frozen=True)
class BucketTransfer:
    """One AllReduce on the wire: a piece of a bucket, and its name in timelines.

    ``piece``: its number among those of the bucket; there is none where the gradient may be sparse.
    """

    bucket: Bucket
    piece: int
    name: str

    @property
    def num_bytes(self) -> int:
        """Its size, a sparse gradient's as if it were dense."""
        first = self.bucket.parameters[0]  # it may await its update, which threads that transfer cannot have
        elements = first.shape.numel() if self.bucket.sparse else self.bucket.pieces[self.piece][1]
        return elements * first.dtype.itemsize

    @property
    def tensor(self) -> torch.Tensor:
        """The part of the bucket's memory that gloo sums up in place."""
        return self.bucket.memory.pieces[self.piece]

    def start(self, group: TransferGroup) -> StartedCollective | Sum:
        """Begin to sum it up over the ranks of ``group``."""
        sparse = self.bucket.sparse
        if sparse is None:
            return group.reduce(self.tensor)
        assert isinstance(group, GlooGroup)  # training refuses sparse gradients on others
        return sparse.start(group)


@dataclass(eq=False, frozen=True)
class Layout:
    """Every bucket and, in the plan's order, every transfer; ``place``: each parameter's bucket and index."""

    plan: Plan
    buckets: tuple[Bucket, ...]
    transfers: tuple[BucketTransfer, ...]
    place: dict[torch.nn.Parameter, tuple[Bucket, int]]


def lay_out(
    plan: Plan, parameters: Mapping[str, torch.nn.Parameter], sparse: Collection[torch.nn.Parameter] = ()
) -> Layout:
    """The buckets of ``plan``, which covers the trained ``parameters`` (by name) as plans have to.

    A reduction of several types or devices becomes one for each. Buckets hold as many bytes as the gradients,
    but for those of ``sparse`` parameters: each is one transfer, where it, or its first slice, is listed.
    """
    buckets: list[Bucket] = []
    transfers: list[BucketTransfer] = []
    sliced: dict[str, Bucket] = {}
    for reduction in plan.reductions:
        forward = reduction.window == "forward"
        if reduction.slice is None:
            for names in _alike(reduction.parameters, parameters, sparse):
                if parameters[names[0]] in sparse:
                    bucket = _sparse_bucket(names[0], parameters)
                    transfers.append(BucketTransfer(bucket, 0, names[0]))
                else:
                    bucket = _bucket(names, parameters, forward)
                    transfers += _cut(bucket, reduction.chunks)
                buckets.append(bucket)
            continue
        (name,), (first, end, count) = reduction.parameters, reduction.slice
        if parameters[name] in sparse:
            if name not in sliced:
                sliced[name] = _sparse_bucket(name, parameters)
                buckets.append(sliced[name])
                transfers.append(BucketTransfer(sliced[name], 0, name))
            continue
        if name not in sliced:
            sliced[name] = _bucket((name,), parameters, forward)
            buckets.append(sliced[name])
        slices = _split(sliced[name], count)[first:end]
        elements = sum(length for _, length in slices)
        if elements:
            shown = batch_name(tuple(f"{name}[{k}]" for k in range(first, end)))
            transfers.append(_transfer(sliced[name], (slices[0][0], elements), shown))
    place = {p: (bucket, i) for bucket in buckets for i, p in enumerate(bucket.parameters)}
    return Layout(plan, tuple(buckets), tuple(transfers), place)


def _alike(
    names: Sequence[str],
    parameters: Mapping[str, torch.nn.Parameter],
    sparse: Collection[torch.nn.Parameter],
) -> Iterator[tuple[str, ...]]:
    kinds: dict[tuple[torch.dtype, torch.device, str], list[str]] = {}
    for name in names:
        p = parameters[name]
        kinds.setdefault((p.dtype, p.device, name if p in sparse else ""), []).append(name)
    for alike in kinds.values():
        yield tuple(alike)


def _bucket(names: tuple[str, ...], by_name: Mapping[str, torch.nn.Parameter], forward: bool) -> Bucket:
    return Bucket(names, tuple(by_name[name] for name in names), forward)


def _sparse_bucket(name: str, by_name: Mapping[str, torch.nn.Parameter]) -> Bucket:
    p = by_name[name]
    return Bucket((name,), (p,), False, sparse=SparseGradient(p))


def _cut(bucket: Bucket, chunks: int) -> list[BucketTransfer]:
    name = batch_name(bucket.names)
    pieces = [piece for piece in _split(bucket, chunks) if piece[1]]
    return [
        _transfer(bucket, piece, name if len(pieces) == 1 else f"{name} {k + 1}/{len(pieces)}")
        for k, piece in enumerate(pieces)
    ]


def _split(bucket: Bucket, count: int) -> list[tuple[int, int]]:
    """Offset and elements of ``count`` parts, as equal as can be, of the memory of ``bucket``."""
    elements = places_in(bucket.parameters)[1] + len(bucket.parameters)
    longer, length = elements % count, elements // count
    return [(k * length + min(k, longer), length + (k < longer)) for k in range(count)]


def _transfer(bucket: Bucket, piece: tuple[int, int], name: str) -> BucketTransfer:
    bucket.pieces.append(piece)
    return BucketTransfer(bucket, len(bucket.pieces) - 1, name)
