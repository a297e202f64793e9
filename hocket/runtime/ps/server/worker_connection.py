"""One worker as its server sees it: a connection, a transport, an outbox, and the frames of its plan."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from hocket.errors import HocketError
from hocket.launch.control import Connection
from hocket.runtime.ps.wire import training_messages
from hocket.runtime.ps.wire.layout import Frame, check_layout, frames_of
from hocket.runtime.ps.wire.make_transport import make_transport
from hocket.runtime.ps.wire.outbox import Outbox
from hocket.runtime.ps.wire.rendezvous import Rendezvous
from hocket.runtime.ps.wire.transport import BULK, Header, Kind, Transport, TransportError

if TYPE_CHECKING:
    from hocket.runtime.ps.server.core import ServerCore


@dataclass(eq=False)
class _Slot:
    """A frame of pushes: whether its next one is awaited, which parameters of its last one are in use, and of
    which step that was.
    """

    frame: Frame
    is_posted: bool = False
    parameters_in_use: set[int] = field(default_factory=set)
    last_label: int = -1


class ReceivedGradient(NamedTuple):
    """A gradient, None where its worker did not use the parameter; ``tag``: of the frame in which it lies."""

    parameter: int
    gradient: torch.Tensor | None
    tag: int | None


class WorkerConnection:
    """``worker``'s connection, from its greeting to its end; ``label``: of the step that it is in.

    Three threads: what it says, what it sends, what is sent to it; the core's lock guards its state.
    """

    def __init__(self, core: ServerCore, worker: int, connection: Connection) -> None:
        self.worker = worker
        self.life = 0
        self.label = -1
        self.pulls_requested = self.buffers_due = False
        self.said_bye = self.data_ended = self.is_gone = False
        self.outbox = Outbox(strict=core.job.rule.barrier == "step")
        self.connection = connection
        self._core = core
        self._rendezvous = Rendezvous(self._send_rendezvous_entry, core.job.timeout_s)
        self._transport: Transport | None = None
        self._join_request: training_messages.JoinRequest | None = None
        self._pulls: list[Frame] = []
        self._unsent_pulls: set[int] = set()
        self._frames_of: dict[int, list[int]] = {}
        self._pull_ranks: list[int] = []
        self._drawn_anew = False
        self._pushes: list[_Slot] = []
        self._slots: dict[int, _Slot] = {}
        self._partial_gradients: dict[tuple[int, int], tuple[torch.Tensor, set[int]]] = {}

    # Its threads.

    def run(self) -> None:
        """Hear what it says until it is gone; in the thread that greeted it."""
        self._start_thread("setup", self._set_up)
        try:
            while True:
                self._handle_message(self.connection.receive(training_messages.FromWorker))
        except (TransportError, HocketError) as error:
            self._core.handle_loss(self, str(error))
        except Exception as error:
            self._core.fail(f"server {self._core.index} failed: {error!r}")
            raise

    def _set_up(self) -> None:
        job = self._core.job
        host = self.connection.local_host
        self._transport = make_transport(job, self._rendezvous, host, server=True)
        spec = self._core.spec_of(self)
        started = self._core.admit(self, spec)
        self._start_thread("send", self._send_tensors)
        self._start_thread("receive", self._receive_tensors)
        self.connection.send(started)
        if not started.wants_values:
            self._core.send_values(self)

    def _start_thread(self, name: str, work: Callable[[], None]) -> None:
        def run_guarded() -> None:
            try:
                work()
            except (TransportError, HocketError) as error:
                self._core.handle_loss(self, str(error))
            except Exception as error:
                self._core.fail(f"server {self._core.index} failed: {error!r}")
                raise

        name = f"hocket-{name}-{self.worker}"
        threading.Thread(target=run_guarded, name=name, daemon=True).start()

    def _send_tensors(self) -> None:
        try:
            while (handover := self.outbox.take()) is not None:
                handover()
        finally:
            self.transport.close()

    def _receive_tensors(self) -> None:
        while True:
            header, payload = self.transport.receive()
            if header.kind is Kind.END:
                self._core.handle_end(self, last_tensor=True)
                return
            self._core.handle_tensor(self, header, payload)

    def _send_rendezvous_entry(self, key: str, value: bytes) -> None:
        self.connection.send(training_messages.RendezvousEntry(key, value))

    def _handle_message(self, message: object) -> None:
        if isinstance(message, training_messages.RendezvousEntry):
            self._rendezvous.put(message.key, message.value)
        elif isinstance(message, training_messages.JoinRequest):
            with self._core.condition:
                self._join_request = message
                self._core.condition.notify_all()
        elif isinstance(message, training_messages.ResumeAfter):
            self._core.go_on(self, message.steps)
        else:
            self._core.handle_message(self, message)

    @property
    def join_request(self) -> training_messages.JoinRequest | None:
        """Its first message, once it has come."""
        return self._join_request

    @property
    def transport(self) -> Transport:
        """The transport that its tensors travel by."""
        assert self._transport is not None
        return self._transport

    def end(self, why: str, *, hang_up: bool = True) -> None:
        """Nothing more is sent to it but a farewell, and where it is not going to hang up itself, we do."""
        if not self.is_gone:
            self.outbox.put_first(lambda: self.transport.send(Header(kind=Kind.END)))
        self.is_gone = True
        self._rendezvous.fail(why)
        self.outbox.close()
        if hang_up:
            self.connection.close()

    def send_bulk(self, kind: Kind, payload: torch.Tensor) -> None:
        """Send something of any length, before all that waits."""
        header = Header(kind=kind, tag=BULK, length=payload.numel())
        self.outbox.put_first(lambda: self.transport.send(header, payload))

    # Its plan.

    def use_layout(self, layout: training_messages.FrameLayout) -> None:
        """From its next step on, what travels is cut like that."""
        tensors = self._core.shard.tensors
        check_layout(layout, len(tensors))
        self._pulls, pushes = frames_of(layout, tensors)
        self._frames_of = {p: [] for p in range(len(tensors))}
        for k, frame in enumerate(self._pulls):
            for p in frame.parameters:
                self._frames_of[p].append(k)
        self._pushes = [_Slot(frame) for frame in pushes]
        # A frame still on its way, or in use, comes by its old tag.
        self._slots = {
            tag: slot for tag, slot in self._slots.items() if slot.is_posted or slot.parameters_in_use
        }
        self._slots |= {slot.frame.tag: slot for slot in self._pushes}
        self._drawn_anew = layout.drawn_anew

    def handle_pull_request(self) -> None:
        """It asks for the pulls of its next step."""
        if self.pulls_requested or not self._pulls:
            raise TransportError("it asked for a step that it is in")
        self.pulls_requested = True
        self._unsent_pulls = set(range(len(self._pulls)))
        self._pull_ranks = list(range(len(self._pulls)))
        self.send_pulls()

    def send_pulls(self, parameters: Iterable[int] | None = None) -> None:
        """Hand over what it may pull of the step that it asked for; of these parameters, if any are named."""
        if not self.pulls_requested:
            return
        none_yet = len(self._unsent_pulls) == len(self._pulls)
        if none_yet and not self._core.has_buffers_of(self):
            return
        ledger = self._core.ledger
        if self._core.job.rule.barrier == "step":
            frames = sorted(self._unsent_pulls) if ledger.may_pull(self.worker, ()) else []
        else:
            named = (
                self._unsent_pulls
                if parameters is None
                else {k for p in parameters for k in self._frames_of[p]}
            )
            frames = [
                k
                for k in sorted(self._unsent_pulls & named)
                if ledger.may_pull(self.worker, self._pulls[k].parameters)
            ]
        if frames and none_yet:
            self._begin_step(ledger.begin(self.worker))
        for k in frames:
            self._pull(self._pulls[k], self._pull_ranks[k])
        self._unsent_pulls.difference_update(frames)
        self.pulls_requested = bool(self._unsent_pulls)

    def _begin_step(self, label: int) -> None:
        self.label, self.buffers_due = label, True
        if self._drawn_anew:
            seed = (self._core.job.seed, self.worker, self.life, label)
            self._pull_ranks = np.random.default_rng(seed).permutation(len(self._pulls)).tolist()
        if self._core.job.rule.mode != "inference":
            for slot in self._pushes:
                self._expect(slot)

    def _pull(self, frame: Frame, rank: int) -> None:
        header = Header(
            kind=Kind.PULL, tag=frame.tag, rank=rank, label=self.label, length=frame.buffer.numel()
        )

        def handover() -> None:
            self._core.fill_frame(frame)
            self.transport.send(header, frame.buffer)

        self.outbox.put(header.label, rank, handover)

    # Its pushes.

    def handle_push(self, header: Header) -> list[ReceivedGradient]:
        """The gradients that are whole now, with what has arrived under ``header``."""
        slot = self._slots.get(header.tag)
        if slot is None or not slot.last_label < header.label <= self.label:
            raise TransportError(f"it pushed what it was not to ({header})")
        slot.is_posted, slot.last_label = False, header.label
        whole: list[ReceivedGradient] = []
        frame = slot.frame
        for k, (piece, used) in enumerate(zip(frame.pieces, frame.used_flags.tolist(), strict=True)):
            if piece.parts == 1:
                whole.append(ReceivedGradient(piece.parameter, frame.views[k] if used else None, frame.tag))
                slot.parameters_in_use.add(piece.parameter)  # until its update has run, where it lies
                continue
            # Slices of two steps are on their way at once where workers need not be waited for.
            key = piece.parameter, header.label
            gathered = self._partial_gradients.get(key)
            if gathered is None:
                size = self._core.shard.tensors[piece.parameter].num_elements
                gathered = torch.empty(size, dtype=frame.views[k].dtype), set()
                self._partial_gradients[key] = gathered
            gradient, parts = gathered
            first, end = frame.bounds[k]
            gradient[first:end] = frame.views[k]
            parts.add(piece.part)
            if len(parts) == piece.parts:
                # All slices are used, or none is.
                whole.append(ReceivedGradient(piece.parameter, gradient if used else None, None))
                del self._partial_gradients[key]
        self._release(slot)
        return whole

    def release_gradient(self, received: ReceivedGradient) -> None:
        """Nothing needs this gradient any more."""
        if received.tag is not None:
            slot = self._slots[received.tag]
            slot.parameters_in_use.discard(received.parameter)
            self._release(slot)

    def _release(self, slot: _Slot) -> None:
        # In the same step nothing more comes; the next one may have begun for other parameters.
        if not slot.parameters_in_use and slot.last_label < self.label and slot in self._pushes:
            self._expect(slot)

    def _expect(self, slot: _Slot) -> None:
        if slot.is_posted or slot.parameters_in_use or self.is_gone or self.data_ended:
            return
        slot.is_posted = True
        with contextlib.suppress(TransportError):  # the thread that hears it will see that it is gone
            self.transport.expect(slot.frame.tag, slot.frame.buffer)
