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
from hocket.runtime.transfers.gloo_group import GlooGroup
from hocket.runtime.transfers.sparse_sums import SparseGradient, Sum, on_wire
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

    ``flat``: their gradients one behind the other and, at the end, ``used_flags``: for each whether this rank
    used it; summed over the ranks, a zero says that nobody did. ``views``: each gradient's place in it,
    strided as its parameter; ``stand_ins``: what parameters have for gradients on their way, and
    ``own_gradients``: the tensors that they had before, which get the values when those are wanted.
    ``forward``: whether it may travel into the next step's forward pass. ``pending_steps``: what its
    optimizers still have to do once it has arrived. ``rounds``: how often it was sent; ``missing_transfers``:
    those of the last time of which it is not known when they end. ``sparse``: what sums up a gradient that
    may be sparse, the bucket's only one, which has no place in ``flat``; else None. ``stream``: the device's
    that filled it, on which its optimizers do their part, too; ``last_use``: when its memory was read or
    written last; ``arrivals``: when the sums of its transfers come.
    """

    names: tuple[str, ...]
    parameters: tuple[torch.nn.Parameter, ...]
    forward: bool
    flat: torch.Tensor
    views: tuple[torch.Tensor, ...]
    used_flags: torch.Tensor
    stand_ins: list[PendingGradient] = field(default_factory=list)
    own_gradients: dict[int, torch.Tensor] = field(default_factory=dict)
    state: BucketState = BucketState.IDLE
    filled_indices: set[int] = field(default_factory=set)
    rounds: int = 0
    missing_transfers: int = 0
    pending_steps: list[PartialStep] = field(default_factory=list)
    sparse: SparseGradient | None = None
    stream: Any = None
    last_use: Event = None
    arrivals: list[Event] = field(default_factory=list)

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

    ``tensor``: what gloo sums up in place; empty where the bucket's gradient may be sparse.
    """

    bucket: Bucket
    tensor: torch.Tensor
    name: str

    @property
    def num_bytes(self) -> int:
        """The bucket's size, a sparse gradient as if it were dense."""
        return self.tensor.nbytes if self.bucket.sparse is None else self.bucket.parameters[0].nbytes

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
    """Allocate the buffers of ``plan``, which covers the trained ``parameters`` (by name) as plans have to.

    A reduction of several types or devices becomes one for each. Buffers hold as many bytes as the gradients,
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
                    transfers.append(BucketTransfer(bucket, bucket.flat, names[0]))
                else:
                    bucket = _bucket(names, parameters, forward)
                    transfers += _pieces(bucket, reduction.chunks)
                buckets.append(bucket)
            continue
        (name,), (first, end, count) = reduction.parameters, reduction.slice
        if parameters[name] in sparse:
            if name not in sliced:
                sliced[name] = _sparse_bucket(name, parameters)
                buckets.append(sliced[name])
                transfers.append(BucketTransfer(sliced[name], sliced[name].flat, name))
            continue
        if name not in sliced:
            sliced[name] = _bucket((name,), parameters, forward)
            buckets.append(sliced[name])
        slices = torch.tensor_split(sliced[name].flat, count)[first:end]
        start, elements = slices[0].storage_offset(), sum(piece.numel() for piece in slices)
        if elements:
            shown = batch_name(tuple(f"{name}[{k}]" for k in range(first, end)))
            piece = sliced[name].flat.narrow(0, start, elements)
            transfers.append(BucketTransfer(sliced[name], on_wire(piece), shown))
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
    parameters = tuple(by_name[name] for name in names)
    sizes = [p.numel() for p in parameters]
    first = parameters[0]
    flat = first.detach().new_zeros(sum(sizes) + len(names))
    *pieces, used = flat.split([*sizes, len(names)])
    views = tuple(
        # A gradient laid out as its parameter, as autograd makes it, lets optimizers run along memory.
        piece.as_strided(p.shape, p.stride()) if _is_dense(p) else piece.view(p.shape)
        for p, piece in zip(parameters, pieces, strict=True)
    )
    return Bucket(names, parameters, forward, flat, views, used)


def _sparse_bucket(name: str, by_name: Mapping[str, torch.nn.Parameter]) -> Bucket:
    p, nothing = by_name[name], torch.zeros(0)
    return Bucket((name,), (p,), False, nothing, (), nothing, sparse=SparseGradient(p))


def _is_dense(parameter: torch.Tensor) -> bool:
    """True if the strides reach every element of a block of memory once."""
    extents = sorted(zip(parameter.stride(), parameter.shape, strict=True))
    reached = 1
    for stride, extent in extents:
        if extent != 1 and stride != reached:
            return False
        reached *= extent
    return True


def _pieces(bucket: Bucket, chunks: int) -> list[BucketTransfer]:
    name = batch_name(bucket.names)
    tensors = [t for t in torch.tensor_split(bucket.flat, chunks) if t.numel()]
    return [
        BucketTransfer(
            bucket, on_wire(tensor), name if len(tensors) == 1 else f"{name} {k + 1}/{len(tensors)}"
        )
        for k, tensor in enumerate(tensors)
    ]
