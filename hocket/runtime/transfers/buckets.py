"""Buckets of gradients, each a flat buffer, and the transfers that reduce them."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from hocket.runtime.lazy.promised_gradient import PromisedGradient, Scaling
from hocket.runtime.transfers.bucket_memory import BucketMemory
from hocket.runtime.transfers.gloo_group import GlooGroup
from hocket.runtime.transfers.sparse_sums import SparseGradient, Sum
from hocket.runtime.transfers.training_device import Event
from hocket.runtime.transfers.transfer_group import StartedCollective, TransferGroup

if TYPE_CHECKING:
    from hocket.runtime.training.optimizer_step import PartialStep


class Part(enum.Enum):
    """The part of a reduction that a transfer is: all of it, or one of its halves."""

    WHOLE = enum.auto()
    SCATTER = enum.auto()
    GATHER = enum.auto()


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
    memory here; else None. ``short_dtype``: the shorter type in which it travels, None: as it is.
    ``stream``: the device's that filled it, on which its optimizers do their part, too; ``last_use``: when
    its memory was read or written last; ``arrivals``: when the sums of its transfers come;
    ``awaited_since``: a mark of when the training thread began to wait for them. ``scalings``: by what a
    script has scaled gradients since they were sent, put to them when they have arrived, and
    ``last_scalings`` those that were put last; ``scaled``: when those factors are there, by streams.
    """

    names: tuple[str, ...]
    parameters: tuple[torch.nn.Parameter, ...]
    forward: bool
    pieces: list[tuple[int, int]] = field(default_factory=list)
    stand_ins: list[PromisedGradient] = field(default_factory=list)
    own_gradients: dict[int, torch.Tensor] = field(default_factory=dict)
    state: BucketState = BucketState.IDLE
    filled_indices: set[int] = field(default_factory=set)
    in_place: set[int] = field(default_factory=set)
    rounds: int = 0
    missing_transfers: int = 0
    pending_steps: list[PartialStep] = field(default_factory=list)
    sparse: SparseGradient | None = None
    short_dtype: torch.dtype | None = None
    stream: Any = None
    last_use: Event = None
    awaited_since: Event = None
    arrivals: list[Event] = field(default_factory=list)
    scalings: dict[int, list[Scaling]] = field(default_factory=dict)
    last_scalings: dict[int, list[Scaling]] = field(default_factory=dict)
    scaled: dict[Any, Event] = field(default_factory=dict)
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

    @property
    def num_bytes(self) -> int:
        """The bytes that travel of it; 0 for a gradient that may be sparse."""
        dtype = self.short_dtype or self.parameters[0].dtype
        return sum(elements for _, elements in self.pieces) * dtype.itemsize

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
    """One transfer on the wire: an AllReduce of a piece of a bucket, or half of it; its name in timelines.

    ``piece``: its number among those of the bucket; there is none where the gradient may be sparse.
    """

    bucket: Bucket
    piece: int
    name: str
    part: Part = Part.WHOLE

    @property
    def num_bytes(self) -> int:
        """Its size, a sparse gradient's as if it were dense; a half moves half of what the whole does."""
        first = self.bucket.parameters[0]  # it may await its update, which threads that transfer cannot have
        elements = first.shape.numel() if self.bucket.sparse else self.bucket.pieces[self.piece][1]
        num_bytes = elements * (self.bucket.short_dtype or first.dtype).itemsize
        return num_bytes if self.part is Part.WHOLE else num_bytes // 2

    @property
    def tensor(self) -> torch.Tensor:
        """The part of the bucket's memory that is summed up in place."""
        return self.bucket.memory.pieces[self.piece]

    def start(self, group: TransferGroup) -> StartedCollective | Sum:
        """Begin to sum it up over the ranks of ``group``, or to do that half of it."""
        sparse = self.bucket.sparse
        if self.part is Part.SCATTER:
            return group.sum_shares(self.tensor)
        if self.part is Part.GATHER:
            return group.gather_shares(self.tensor)
        if sparse is None:
            return group.reduce(self.tensor)
        assert isinstance(group, GlooGroup)  # training refuses sparse gradients on others
        return sparse.start(group)
