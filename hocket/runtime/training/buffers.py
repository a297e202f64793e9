"""Buffers, such as BatchNorm's statistics: rank 0's hold everywhere, as in DistributedDataParallel.

DDP broadcasts them when a forward pass begins and waits for all of it. Here rank 0's leave as soon as its
last forward pass (or, where they still change then, the backward pass) has ended, and have long arrived when
the next one begins. Then rank 0 says in one short message whether they are still as they were sent, and
sends them anew where they have been changed since.
"""

from __future__ import annotations

import enum
import warnings
from dataclasses import dataclass, field

import torch
from torch.autograd.grad_mode import _unsafe_preserve_version_counter

from hocket.errors import HocketError
from hocket.runtime.training.buffer_changes import Seen, UnseenWrites, changed_names, look_at
from hocket.runtime.training.buffer_places import (
    BufferPlace,
    digest,
    num_bytes,
    places_of,
    split_by_place,
)
from hocket.runtime.training.ignored_parameters import ignored_names
from hocket.runtime.transfers.buffer_broadcasts import BufferBroadcasts
from hocket.runtime.transfers.gloo_group import GlooGroup, broadcast_tensors
from hocket.runtime.transfers.training_device import PROCESSORS
from hocket.runtime.transfers.transfer_group import StartedCollective

_AGREEING = 2  # messages in a row that move the sending forward, or back


class _Verdict(enum.IntEnum):
    """The part of rank 0's message that says what becomes of the buffers that were sent."""

    HOLD = 0  # they are in force on every rank
    AGAIN = 1  # they follow as they are now
    HELD = 2  # they were in force when rank 0 evaluated; what ranks have changed since is theirs, as with DDP


@dataclass
class _BufferTransfer:
    """Buffers on their way as bytes: ``theirs`` is to be rank 0's, ``own`` is what this rank had.

    None where that is of other shapes than the ranks agreed upon. ``indices_in_place``: of those that are in
    place.
    """

    work: StartedCollective
    theirs: torch.Tensor
    own: Seen | None
    indices_in_place: set[int] = field(default_factory=set)


class StateBuffers:
    """The buffers of ``model`` that are not to be ignored; rank 0's word of them is on ``messages``.

    These are for them alone: a pass that one rank runs alone must not get in line with anything else.
    Passes that train have every rank take part; others read what has come by then and send nothing, since
    one rank may evaluate alone.
    """

    def __init__(self, model: torch.nn.Module, broadcasts: BufferBroadcasts, messages: GlooGroup) -> None:
        self._model, self._ignored_names = model, ignored_names(model)
        self._broadcasts, self._device = broadcasts, broadcasts.device
        self._group, self._messages = broadcasts.group, messages
        self._unseen_writes = UnseenWrites(self._device)
        # DDP keeps none alike of a model that has none when it is wrapped.
        self._none = self._group.size == 1 or not self._places()
        self._broadcast_due = (
            True  # as DDP: the next pass has them alike, unless the last one was under no_sync
        )
        self._transfer: _BufferTransfer | None = None
        self._agreed_layout = -1, 0  # bytes, and a digest of shapes and types
        # True if they leave with the forward pass; the number of messages in a row that spoke for the other
        # way; on rank 0, the buffers as they were when the pass ended.
        self._early, self._otherwise = False, 0
        self._at_end: Seen | None = None
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
        verdict, early, size, form_digest = self._receive_verdict()
        sent, self._transfer = self._transfer, None
        changed: list[str] = []
        if verdict is _Verdict.AGAIN:
            self._agreed_layout = size, form_digest
            before, sent = sent, self._send()
            if sent.own is None:
                raise HocketError(self._differ())
            changed = self._changed_names(before, sent)
        if sent is not None and (sent.own is not None or verdict is not _Verdict.HELD):
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
            self._at_end = look_at(self._places(), self._device)

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
            self._stale = self._is_stale(look_at(self._places(), self._device))
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
        if sent is None or sent.own is None:
            return []
        self._put(sent, everything=False)
        if self._group.rank == 0:
            return []
        return [place.path for k, place in enumerate(sent.own.places) if k not in sent.indices_in_place]

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
            now = look_at(self._places(), self._device)
            stale = self._is_stale(now) if self._stale is None else self._stale
            kept = _Verdict.HOLD if self._stale is None else _Verdict.HELD
            early = self._at_end is not None and self._at_end.equals(now)
            form = num_bytes(now.places), digest(now.places)
            said = _Verdict.AGAIN if stale else kept, early, *form, *self._message_counts
            message.copy_(torch.tensor([int(number) for number in said]))
        if self._last_message is not None:
            self._last_message[0].wait()  # long since: everybody has begun the pass that it was for
        work = self._messages.broadcast(message)
        self._last_message = work, message
        if self._group.rank:
            work.wait()
        verdict, early_, size, form_digest, *heard_of = message.tolist()
        if heard_of != self._message_counts:
            raise HocketError(
                f"rank 0 was in its forward pass {heard_of[1]} of step {heard_of[0] + 1} where rank"
                f" {self._group.rank} is in pass {self._message_counts[1]} of step"
                f" {self._message_counts[0] + 1}: a pass with gradients was on one rank alone; let it be"
                " on all, or under torch.no_grad(), or of copy.deepcopy(model)"
            )
        return _Verdict(verdict), bool(early_), size, form_digest

    def _is_stale(self, now: Seen) -> bool:
        """Tell whether the buffers, ``now``, are not those that were sent: rank 0 asks."""
        sent = self._transfer
        if sent is None or sent.own is None or digest(now.places) != self._agreed_layout[1]:
            return True
        return not sent.own.equals(now) or self._unseen_writes.look_for(sent.own, now)

    def _send(self) -> _BufferTransfer:
        """Start sending rank 0's, as many bytes as the ranks have agreed upon."""
        size, agreed = self._agreed_layout
        places = self._places()
        own = look_at(places, self._device) if digest(places) == agreed else None
        sends = own is not None and self._group.rank == 0
        work, theirs = self._broadcasts.start(own.bytes() if own is not None and sends else None, size)
        return _BufferTransfer(work, theirs, own)

    def _wait(self, transfer: _BufferTransfer) -> None:
        """Return when ``transfer`` is here; what rank 0's device sends is there, and the host goes on."""
        if self._group.rank or self._device is PROCESSORS:
            transfer.work.wait()

    def _changed_names(self, before: _BufferTransfer | None, after: _BufferTransfer) -> list[str]:
        """The names of buffers that are other ones ``after`` they were sent ``before``; it waits for both."""
        self._wait(after)
        if before is None:
            return []
        self._wait(before)
        if before.own is None or after.own is None:
            return []
        sends = self._group.rank == 0 and self._device is not PROCESSORS
        return changed_names(before.own, after.own, None if sends else (before.theirs, after.theirs))

    @torch.no_grad()
    def _put(self, transfer: _BufferTransfer, *, everything: bool) -> None:
        """Put what was sent in place: ``everything``, or what this rank has not changed since."""
        own = transfer.own
        if own is None:
            raise HocketError(self._differ())
        if not everything and len(transfer.indices_in_place) == len(own.places):
            return
        self._wait(transfer)
        if self._group.rank == 0:
            return
        due = [
            k
            for k in range(len(own.places))
            if everything or (k not in transfer.indices_in_place and own.is_still(k))
        ]
        found = [(k, buffer) for k in due if (buffer := own.places[k].value) is not None]
        if not found:
            return
        transfer.indices_in_place.update(k for k, _ in found)
        theirs = split_by_place(self._on_device(transfer.theirs, found[0][1]), own.places)
        into = [buffer for _, buffer in found]
        values = [theirs[k].view(buffer.dtype).view(buffer.shape) for k, buffer in found]
        # As DDP: a graph that has saved a buffer goes on with what is in it.
        with _unsafe_preserve_version_counter(tuple(into)):
            torch._foreach_copy_(into, values)

    def _on_device(self, data: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
        """``data``, of the host, where ``buffer`` is; the host does not wait for it there."""
        if data.device == buffer.device:
            return data
        return torch.empty_like(data, device=buffer.device).copy_(data, non_blocking=True)

    def _places(self) -> list[BufferPlace]:
        return places_of(self._model, self._ignored_names)

    def _differ(self) -> str:
        here = num_bytes(self._places())
        return (
            f"the model's buffers differ: rank 0 has {self._agreed_layout[0]} bytes, rank"
            f" {self._group.rank} has {here}, or other shapes and types; register and resize them on every"
            " rank alike, or use broadcast_buffers=False"
        )
