"""Buffers, such as BatchNorm's statistics: rank 0's hold everywhere, as in DistributedDataParallel.

DDP broadcasts them when a forward pass begins and waits for all of it. Here rank 0's leave as soon as its
last forward pass (or, where they still change then, the backward pass) has ended, and have long arrived when
the next one begins. Then rank 0 says in one short message whether they are still as they were sent, and
sends them anew where they have been changed since.
"""

from __future__ import annotations

import enum
import warnings
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch.autograd.grad_mode import _unsafe_preserve_version_counter

from hocket.errors import HocketError
from hocket.runtime.training.ignored_parameters import ignored_names, is_ignored
from hocket.runtime.transfers.gloo_group import GlooGroup, broadcast_tensors
from hocket.runtime.transfers.transfer_group import StartedCollective

_AGREEING = 2  # messages in a row that move the sending forward, or back


class _Verdict(enum.IntEnum):
    """The part of rank 0's message that says what becomes of the buffers that were sent."""

    HOLD = 0  # they are in force on every rank
    AGAIN = 1  # they follow as they are now
    HELD = 2  # they were in force when rank 0 evaluated; what ranks have changed since is theirs, as with DDP


@dataclass(frozen=True)
class _BufferPlace:
    """The place of a buffer, under which ``path`` in the model, and as what it travels."""

    path: str
    module: torch.nn.Module
    name: str
    shape: torch.Size
    dtype: torch.dtype

    @property
    def num_bytes(self) -> int:
        """The bytes that travel for it."""
        return self.shape.numel() * self.dtype.itemsize

    @property
    def value(self) -> torch.Tensor | None:
        """The tensor that is there by now, if it is of this shape and type."""
        buffer = self.module._buffers.get(self.name)
        alike = buffer is not None and buffer.shape == self.shape and buffer.dtype is self.dtype
        return buffer if alike else None


@dataclass
class _BufferTransfer:
    """Buffers on their way as bytes: ``theirs`` is to be rank 0's, ``own`` is what this rank had.

    ``places``: None where this rank's are of other shapes than the ranks agreed upon. ``indices_in_place``:
    of those that are in place.
    """

    work: StartedCollective
    theirs: torch.Tensor
    own: torch.Tensor
    places: list[_BufferPlace] | None
    indices_in_place: set[int] = field(default_factory=set)


class StateBuffers:
    """The buffers of ``model`` that are not to be ignored, on ``group``; rank 0's word is on ``messages``.

    These are for them alone: a pass that one rank runs alone must not get in line with anything else.
    Passes that train have every rank take part; others read what has come by then and send nothing, since
    one rank may evaluate alone.
    """

    def __init__(self, model: torch.nn.Module, group: GlooGroup, messages: GlooGroup) -> None:
        self._model, self._ignored_names = model, ignored_names(model)
        self._group, self._messages = group, messages
        # DDP keeps none alike of a model that has none when it is wrapped.
        self._none = group.size == 1 or not self._places()
        self._broadcast_due = (
            True  # as DDP: the next pass has them alike, unless the last one was under no_sync
        )
        self._transfer: _BufferTransfer | None = None
        self._agreed_layout = -1, 0  # bytes, and a digest of shapes and types
        # True if they leave with the forward pass; the number of messages in a row that spoke for the other
        # way; on rank 0, the buffers as they were when the pass ended.
        self._early, self._otherwise = False, 0
        self._at_end: torch.Tensor | None = None
        # On rank 0: whether they had changed when a pass that trains nothing read them; None: there was none.
        self._stale: bool | None = None
        self._has_warned = False
        # True if the last pass raised, which it may have done on this rank alone; None: that was told of.
        self._pass_raised: bool | None = False
        # Rounds, and passes since the last one, that have had a message: the same on every rank.
        self._message_counts = [0, 0]
        self._last_message: tuple[StartedCollective, torch.Tensor] | None = None

    # News from a training.

    def forward_begins(self) -> list[str]:
        """A pass that trains begins: have rank 0's in place; waits at most the group's timeout.

        The names of those that were sent in vain before, since they were changed on rank 0.
        """
        if self._none or not self._broadcast_due:
            self._tell_of_raised()
            return []
        self._broadcast_due = False
        self._message_counts[1] += 1
        verdict, early, size, digest = self._receive_verdict()
        sent, self._transfer = self._transfer, None
        changed: list[str] = []
        if verdict is _Verdict.AGAIN:
            self._agreed_layout = size, digest
            before, sent = sent, self._send()
            if sent.places is None:
                raise HocketError(self._differ())
            sent.work.wait()
            changed = _changed_names(before, sent)
        if sent is not None and (sent.places is not None or verdict is not _Verdict.HELD):
            self._put(sent, everything=verdict is not _Verdict.HELD)
        self._at_end, self._stale = None, None
        if verdict is not _Verdict.HELD:
            self._otherwise = 0 if early is self._early else self._otherwise + 1
            if self._otherwise == _AGREEING:
                self._early, self._otherwise = early, 0
        return changed

    def forward_ended(self, travels: bool, *, raised: bool) -> None:
        """A pass that trains has ended, or ``raised``; ``travels``: its gradients do."""
        if raised:
            self._pass_raised = None if self._pass_raised is None else not self._none
            return
        self._broadcast_due = travels
        if self._none or not travels:
            return
        if self._early:
            self._transfer = self._send()
            self._at_end = self._transfer.own
        elif self._group.rank == 0:
            self._at_end = _bytes_of(self._places())

    def round_ended(self) -> None:
        """The gradients of a backward pass travel."""
        self._message_counts = [self._message_counts[0] + 1, 0]
        if self._broadcast_due and self._transfer is None and not self._none and self._agreed_layout[0] >= 0:
            self._transfer = self._send()

    def evaluation_begins(self) -> None:
        """A pass that trains nothing begins: have what has come in place."""
        if self._none or not self._broadcast_due:
            return
        if self._group.rank == 0 and self._stale is None:
            self._stale = self._is_stale(_bytes_of(self._places()))
        own = self.receive()
        if own and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"buffer '{own[0]}' has changed on rank {self._group.rank} since the last training pass, and"
                " what trains nothing (an evaluation) reads it as it is there; DistributedDataParallel would"
                " have sent rank 0's",
                stacklevel=2,
            )

    def receive(self) -> list[str]:
        """Have what was sent in place, but for what this rank has changed since: the names of that."""
        sent = self._transfer
        if sent is None or sent.places is None:
            return []
        self._put(sent, everything=False)
        if self._group.rank == 0:
            return []
        return [place.path for k, place in enumerate(sent.places) if k not in sent.indices_in_place]

    @torch.no_grad()
    def follow(self, rank: int) -> None:
        """Have those of ``rank`` in place; every rank calls this, and whatever was sent before is dropped."""
        if self._none:
            return
        if self._transfer is not None:
            self._transfer.work.wait()
        self._transfer, self._at_end, self._stale, self._broadcast_due = None, None, None, True
        into = [buffer for place in self._places() if (buffer := place.value) is not None]
        with _unsafe_preserve_version_counter(tuple(into)):
            broadcast_tensors(into, self._group, rank)

    # Sending and receiving.

    def _tell_of_raised(self) -> None:
        """Say once that a pass does not wait for buffers, since the one before it raised."""
        if self._pass_raised:
            self._pass_raised = None
            warnings.warn(
                "a forward pass raised, and the one behind it reads this rank's own buffers;"
                " DistributedDataParallel would wait for rank 0's, in vain where it raised on one rank alone",
                stacklevel=2,
            )

    def _receive_verdict(self) -> tuple[_Verdict, bool, int, int]:
        """Rank 0's message: the verdict, whether an early sending would do, the bytes and the digest."""
        message = torch.zeros(6, dtype=torch.int64)
        if self._group.rank == 0:
            places = self._places()
            now = _bytes_of(places)
            stale = self._is_stale(now) if self._stale is None else self._stale
            kept = _Verdict.HOLD if self._stale is None else _Verdict.HELD
            early = self._at_end is not None and torch.equal(self._at_end, now)
            said = _Verdict.AGAIN if stale else kept, early, len(now), _digest(places), *self._message_counts
            message.copy_(torch.tensor([int(number) for number in said]))
        if self._last_message is not None:
            self._last_message[0].wait()  # long since: everybody has begun the pass that it was for
        work = self._messages.broadcast(message)
        self._last_message = work, message
        if self._group.rank:
            work.wait()
        verdict, early_, size, digest, *heard_of = message.tolist()
        if heard_of != self._message_counts:
            raise HocketError(
                f"rank 0 was in its forward pass {heard_of[1]} of step {heard_of[0] + 1} where rank"
                f" {self._group.rank} is in pass {self._message_counts[1]} of step"
                f" {self._message_counts[0] + 1}: a pass with gradients was on one rank alone; let it be"
                " on all, or under torch.no_grad(), or of copy.deepcopy(model)"
            )
        return _Verdict(verdict), bool(early_), size, digest

    def _is_stale(self, now: torch.Tensor) -> bool:
        """Tell whether the buffers, ``now``, are not those that were sent: rank 0 asks."""
        sent = self._transfer
        if sent is None or sent.places is None:
            return True
        same = len(now) == len(sent.own) and torch.equal(now, sent.own)
        return not same or _digest(self._places()) != self._agreed_layout[1]

    def _send(self) -> _BufferTransfer:
        """Start sending rank 0's, as many bytes as the ranks have agreed upon."""
        size, digest = self._agreed_layout
        places: list[_BufferPlace] | None = self._places()
        assert places is not None
        if _digest(places) == digest:
            own = _bytes_of(places)
        else:
            places, own = None, torch.zeros(size, dtype=torch.uint8)
        theirs = own.clone() if self._group.rank else own
        return _BufferTransfer(self._group.broadcast(theirs), theirs, own, places)

    @torch.no_grad()
    def _put(self, transfer: _BufferTransfer, *, everything: bool) -> None:
        """Put what was sent in place: ``everything``, or what this rank has not changed since."""
        if transfer.places is None:
            raise HocketError(self._differ())
        if not everything and len(transfer.indices_in_place) == len(transfer.places):
            return
        transfer.work.wait()
        if self._group.rank == 0:
            return
        own, theirs = (
            _split_by_place(transfer.own, transfer.places),
            _split_by_place(transfer.theirs, transfer.places),
        )
        into: list[torch.Tensor] = []
        values: list[torch.Tensor] = []
        for k, place in enumerate(transfer.places):
            buffer = place.value
            if buffer is None or not (
                everything or (k not in transfer.indices_in_place and _same(buffer, own[k]))
            ):
                continue
            transfer.indices_in_place.add(k)
            into.append(buffer)
            values.append(theirs[k].view(place.dtype).view(place.shape))
        # As DDP: a graph that has saved a buffer goes on with what is in it.
        if into:
            with _unsafe_preserve_version_counter(tuple(into)):
                torch._foreach_copy_(into, values)

    def _places(self) -> list[_BufferPlace]:
        """Every buffer once, those of the largest elements first: as bytes they stay aligned."""
        seen: set[int] = set()
        found = []
        for prefix, module in self._model.named_modules():
            for name, buffer in module._buffers.items():
                if buffer is None or not buffer.numel() or id(buffer) in seen:
                    continue
                if self._ignored_names and is_ignored(prefix, name, self._ignored_names):
                    continue
                seen.add(id(buffer))
                path = f"{prefix}.{name}".lstrip(".")
                found.append(_BufferPlace(path, module, name, buffer.shape, buffer.dtype))
        # And those of a type one behind the other.
        return sorted(found, key=lambda place: (-place.dtype.itemsize, str(place.dtype)))

    def _differ(self) -> str:
        here = sum(place.num_bytes for place in self._places())
        return (
            f"the model's buffers differ: rank 0 has {self._agreed_layout[0]} bytes, rank"
            f" {self._group.rank} has {here}, or other shapes and types; register and resize them on every"
            " rank alike, or use broadcast_buffers=False"
        )


def _bytes_of(places: Sequence[_BufferPlace]) -> torch.Tensor:
    """The values at ``places``, which are there, one behind the other."""
    kinds: dict[torch.dtype, list[torch.Tensor]] = {}
    for place in places:
        value = place.value
        assert value is not None
        kinds.setdefault(place.dtype, []).append(value.detach().reshape(-1))
    if not kinds:  # they may be gone since the model was distributed
        return torch.zeros(0, dtype=torch.uint8)
    return torch.cat([_bits(torch.cat(values)) for values in kinds.values()])


def _split_by_place(data: torch.Tensor, places: Sequence[_BufferPlace]) -> Sequence[torch.Tensor]:
    parts: Sequence[torch.Tensor] = data.split([place.num_bytes for place in places])
    return parts


def _changed_names(before: _BufferTransfer | None, after: _BufferTransfer) -> list[str]:
    """The names of buffers that are other ones after they were sent ``before``; it waits for that."""
    if before is None:
        return []
    before.work.wait()
    if before.places is None or after.places is None:
        return []
    old = dict(zip(before.places, _split_by_place(before.theirs, before.places), strict=True))
    new = zip(after.places, _split_by_place(after.theirs, after.places), strict=True)
    return [p.path for p, value in new if p not in old or not torch.equal(value, old[p])]


def _same(buffer: torch.Tensor, own: torch.Tensor) -> bool:
    """Tell whether ``buffer`` has the bits ``own``, of which NaN's are equal to themselves."""
    return torch.equal(_bits(buffer.detach().reshape(-1)), own)


def _bits(values: torch.Tensor) -> torch.Tensor:
    # One of strides is a view of memory still.
    return values.resolve_conj().resolve_neg().contiguous().view(torch.uint8)


def _digest(places: Sequence[_BufferPlace]) -> int:
    return zlib.crc32(str([(place.shape, place.dtype) for place in places]).encode())
