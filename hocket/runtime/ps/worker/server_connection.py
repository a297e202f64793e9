"""One server as a worker sees it: a connection, a transport, an outbox, and the frames of the plan."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from hocket.errors import HocketError
from hocket.launch.control import Guest, connect
from hocket.runtime.ps.wire import training_messages
from hocket.runtime.ps.wire.layout import Frame, frames_of
from hocket.runtime.ps.wire.make_transport import make_transport
from hocket.runtime.ps.wire.model_spec import Spec, TensorSpec
from hocket.runtime.ps.wire.order_statistics import Direction
from hocket.runtime.ps.wire.outbox import Outbox
from hocket.runtime.ps.wire.packing import PackedValues, pack, unpack
from hocket.runtime.ps.wire.rendezvous import Rendezvous
from hocket.runtime.ps.wire.training_messages import FrameLayout
from hocket.runtime.ps.wire.transport import BULK, STATE, Header, Kind, Transport, TransportError

if TYPE_CHECKING:
    from hocket.runtime.ps.worker.client import Client

_CLOSED_S = 1.0
_NO_LABEL = -1


class ServerConnection:
    """The worker's end of its pair with server ``index``; ``tensors``: what lives there, in its order.

    Three threads: what the server says, what is sent to it, what it sends. State is the client's lock's.
    """

    def __init__(self, client: Client, index: int, address: str, tensors: list[TensorSpec]) -> None:
        self.index, self.address = index, address
        self.tensors = tensors
        self.pulls: list[Frame] = []
        self.pushes: list[Frame] = []
        self.label = _NO_LABEL
        self.join_answer: training_messages.JoinAnswer | None = None
        self.values: dict[str, torch.Tensor] | None = None
        self.optimizer_state: dict[str, object] | None = None
        self.norms: list[float] | None = None
        self.has_ended = False
        self._client = client
        self._outbox = Outbox(strict=False)
        self._by_tag: dict[int, Frame] = {}
        self._tags_used = 0
        self._filled_pieces: dict[int, int] = {}
        self._last_transfer: dict[Direction, tuple[int, int]] = {"pull": (0, -1), "push": (0, -1)}
        self._since_s = 0.0
        self._buffers_posted = False
        self.threads: list[threading.Thread] = []
        job = client.job
        guest = Guest("worker", client.worker, "")
        self._control = connect(address, job.credentials, guest, job.timeout_s)
        self._rendezvous = Rendezvous(
            lambda key, value: self.send_message(training_messages.RendezvousEntry(key, value)), job.timeout_s
        )
        self._start_thread("hear", self._receive_messages)
        host = self._control.local_host
        try:
            self._transport: Transport = make_transport(job, self._rendezvous, host, server=False)
        except (TransportError, HocketError):
            self.close()
            raise

    def request_join(self, spec: Spec) -> None:
        """Tell the server of the model; its answer comes as ``join_answer``."""
        self._start_thread("send", self._send_tensors)
        self._start_thread("receive", self._receive_tensors)
        self.send_message(training_messages.JoinRequest(spec))

    def send_message(self, message: training_messages.FromWorker) -> None:
        """Say something; a failure here is heard of where the answer is waited for."""
        try:
            self._control.send(message)
        except TransportError as error:
            self._client.handle_loss(self, str(error))

    # A plan, and the steps under it.

    def use_layout(self, layout: FrameLayout) -> None:
        """Both sides cut what travels from the next step on like that."""
        self.pulls, self.pushes = frames_of(layout, self.tensors)
        self._by_tag = {frame.tag: frame for frame in self.pulls}
        self._outbox.set_strict(layout.strict)
        self.send_message(layout)

    def request_pulls(self, *, buffers: torch.Tensor | None) -> None:
        """Ask for the pulls of the next step, and for the model's into ``buffers``."""
        self._filled_pieces = {frame.tag: 0 for frame in self.pushes}
        self.label = _NO_LABEL
        self._since_s = time.perf_counter()
        for frame in self.pulls:
            self._transport.expect(frame.tag, frame.buffer)
        if buffers is not None and not self._buffers_posted:
            self._buffers_posted = True
            self._transport.expect(STATE, buffers)
        self.send_message(training_messages.PullRequest())

    def fill(self, rank: int, index: int, gradient: torch.Tensor | None) -> None:
        """Put a gradient in its place of push ``rank``, which leaves when it is complete and has its turn."""
        frame = self.pushes[rank]
        frame.fill(index, gradient)
        self._filled_pieces[frame.tag] += 1
        if self._filled_pieces[frame.tag] < len(frame.pieces):
            return
        header = Header(
            kind=Kind.PUSH, tag=frame.tag, rank=rank, label=self.label, length=frame.buffer.numel()
        )

        def handover() -> None:
            started_s = time.perf_counter()
            self._count_transfer("push", header)
            self._transport.send(header, frame.buffer)
            self._client.on_transfer("push", self.index, frame, started_s, time.perf_counter())

        self._outbox.put(self.label, rank, handover)

    def send_buffers(self, payload: torch.Tensor) -> None:
        """Send the model's buffers as this worker has them."""
        header = Header(kind=Kind.STATE, tag=STATE, label=self.label, length=payload.numel())
        self._outbox.put_first(lambda: self._transport.send(header, payload))

    def send_values(self, values: PackedValues) -> None:
        """Send initial values, and the optimizer's state."""
        payload = pack(*values)
        header = Header(kind=Kind.VALUES, tag=BULK, length=payload.numel())
        self._outbox.put_first(lambda: self._transport.send(header, payload))

    def finish(self) -> None:
        """Say farewell once everything has gone; the server's comes as ``has_ended``."""
        self._outbox.put_last(lambda: self._transport.send(Header(kind=Kind.END)))
        self.send_message(training_messages.Farewell())

    def close(self) -> None:
        """End the connection, and what waits on it."""
        self._rendezvous.fail("this worker has ended its training")
        if not self.has_ended:
            self._outbox.put_first(lambda: self._transport.send(Header(kind=Kind.END)))
        self._outbox.close()
        self._control.close()

    def join(self, deadline_s: float) -> None:
        """Wait for the threads: one that is inside torch when the interpreter ends aborts it."""
        for thread in self.threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        self._transport.close()
        for thread in self.threads:
            thread.join(_CLOSED_S)

    def _count_transfer(self, direction: Direction, header: Header) -> None:
        label, rank = self._last_transfer[direction]
        self._client.order.note(direction, overtaken=header.label == label and header.rank < rank)
        self._last_transfer[direction] = max((label, rank), (header.label, header.rank))

    # Its threads.

    def _start_thread(self, name: str, work: Callable[[], None]) -> None:
        def run_guarded() -> None:
            try:
                work()
            except (TransportError, HocketError) as error:
                self._client.handle_loss(self, str(error), on_control=name == "hear")
            except Exception as error:
                self._client.handle_loss(self, repr(error), on_control=name == "hear")
                raise

        thread_name = f"hocket-{name}-server-{self.index}"
        thread = threading.Thread(target=run_guarded, name=thread_name, daemon=True)
        self.threads.append(thread)
        thread.start()

    def _send_tensors(self) -> None:
        while (handover := self._outbox.take()) is not None:
            handover()

    def _receive_messages(self) -> None:
        try:
            while True:
                message = self._control.receive(training_messages.FromServer)
                if isinstance(message, training_messages.RendezvousEntry):
                    self._rendezvous.put(message.key, message.value)
                else:
                    self._client.handle_message(self, message)
        except TransportError as error:
            self._rendezvous.fail(str(error))
            raise

    def _receive_tensors(self) -> None:
        while True:
            header, payload = self._transport.receive()
            if header.kind is Kind.END:
                with self._client.condition:
                    self.has_ended = True
                    self._client.condition.notify_all()
                return
            assert payload is not None
            self._handle_tensor(header, payload)

    def _handle_tensor(self, header: Header, payload: torch.Tensor) -> None:
        client, now_s = self._client, time.perf_counter()
        with client.condition:
            if header.kind is Kind.PULL and header.tag in self._by_tag:
                frame = self._by_tag[header.tag]
                self.label = header.label
                self._count_transfer("pull", header)
                client.handle_pull(self, frame)
                started_s, self._since_s = self._since_s, now_s
                client.on_transfer("pull", self.index, frame, started_s, now_s)
            elif header.kind is Kind.STATE:
                self._buffers_posted = False
                client.handle_buffers()
            elif header.kind is Kind.VALUES:
                self.values, _ = unpack(payload)
            elif header.kind is Kind.OPTIMIZER:
                tensors, others = unpack(payload)
                self.optimizer_state = {**tensors, **others}
            else:
                raise TransportError(f"it sent what nobody asked for ({header})")
            client.condition.notify_all()
