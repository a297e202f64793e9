"""The transport on gRPC: one call for each tensor over HTTP/2, as TensorFlow's parameter servers talk.

A worker pushes with a call that carries the tensor, and has one call open for each pull, which the server
answers in its order. Handing over is all that the sender does: streams are under way side by side, and the
windows of HTTP/2 decide whose bytes go next. That is what the window of the throughput model stands for: a
stream sends what its window lets through, goes behind those that wait, and, since its receiver has read by
then how long its message is and opens the window for all of it, sends the rest at once.

Differs from TensorFlow
-----------------------
* The window is told, not estimated. gRPC's estimate begins at 64 KiB on each connection and follows what the
  link carries in a round trip (4 MiB or more): no number that a prediction could know.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections import defaultdict
from typing import Any

import grpc
import msgspec
import numpy as np
import torch

from hocket.launch.control import decoded
from hocket.launch.tls import NAME, Identity, new_identity
from hocket.runtime.ps.wire.rendezvous import Rendezvous
from hocket.runtime.ps.wire.transport import (
    BULK,
    HEADER_BYTES,
    HEADERS,
    Header,
    Kind,
    TransportError,
    header_of,
)

_ADDRESS = "grpc"
_HANDSHAKE_MS = 5000
_MOST_CONNECTIONS = 16
_RETRY_MS = 1000
_CLOSING_S = 2.0
_LARGEST_FRAME_BYTES = (1 << 24) - 1


def _options(window_bytes: int) -> list[tuple[str, int | str]]:
    return [
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", -1),
        ("grpc.http2.bdp_probe", 0),  # it would put an estimate in place of the window
        ("grpc.http2.lookahead_bytes", window_bytes),
        ("grpc.http2.max_frame_size", min(window_bytes, _LARGEST_FRAME_BYTES)),
        ("grpc.enable_http_proxy", 0),  # it leads out of a cluster, not from one machine to another
        ("grpc.ssl_target_name_override", NAME),  # whatever the machine is called
        ("grpc.max_reconnect_backoff_ms", _RETRY_MS),
    ]


class _GrpcAddress(msgspec.Struct, frozen=True):
    """The address where a server waits for its worker, and the certificate and key that both have."""

    address: str
    identity: Identity


class _Inbox:
    """Messages that have come, and buffers that wait for those to come."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._messages: queue.SimpleQueue[bytes | TransportError] = queue.SimpleQueue()
        self._posted_buffers: dict[int, torch.Tensor] = {}
        self._condition = threading.Condition()

    def expect(self, tag: int, buffer: torch.Tensor) -> None:
        """Post ``buffer`` for the next message on ``tag``; none may be posted there."""
        with self._condition:
            assert tag not in self._posted_buffers
            self._posted_buffers[tag] = buffer
            self._condition.notify_all()

    def receive(self) -> tuple[Header, torch.Tensor | None]:
        """The next message."""
        data = self._messages.get()
        if isinstance(data, TransportError):
            raise data
        header = header_of(data[:HEADER_BYTES])
        if header.kind is Kind.END:
            return header, None
        if len(data) - HEADER_BYTES != header.length:
            raise TransportError(f"a message of {len(data) - HEADER_BYTES} bytes says {header.length}")
        payload = memoryview(data)[HEADER_BYTES:]
        if header.tag == BULK:
            whole = bytearray(payload)
            return header, torch.frombuffer(whole, dtype=torch.uint8) if whole else torch.empty(0).byte()
        buffer = self._take_posted(header)
        buffer.numpy()[:] = np.frombuffer(payload, np.uint8)
        return header, buffer

    def _take_posted(self, header: Header) -> torch.Tensor:
        deadline_s = time.monotonic() + self._timeout_s
        with self._condition:
            while header.tag not in self._posted_buffers:
                if not self._condition.wait(deadline_s - time.monotonic()):
                    raise TransportError(f"nobody here expects message {header.tag}")
            buffer = self._posted_buffers.pop(header.tag)
        if buffer.numel() != header.length:
            raise TransportError(
                f"message {header.tag} has {header.length} bytes where {buffer.numel()} are expected"
            )
        return buffer


def _message_bytes(header: Header, payload: torch.Tensor | None) -> bytes:
    return header.to_bytes() if payload is None else b"".join((header.to_bytes(), payload.numpy().data))


class _Methods(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Leads calls to ``methods``."""

    def __init__(self, methods: dict[str, Any]) -> None:
        self._methods = methods

    def service(self, handler_call_details: Any) -> Any:
        """The handler of a call; None where there is none."""
        return self._methods.get(handler_call_details.method)


class GrpcServerEnd(_Inbox):
    """The server's end: serves one worker, on ``host`` alone, that has the key in ``rendezvous``.

    A caller without it is let go before it can send a message.
    """

    def __init__(self, rendezvous: Rendezvous, host: str, timeout_s: float, window_bytes: int) -> None:
        super().__init__(timeout_s)
        self._options = [
            *_options(window_bytes),
            ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
            ("grpc.max_allowed_incoming_connections", _MOST_CONNECTIONS),
        ]
        identity = new_identity()
        self._loop = asyncio.new_event_loop()
        self._answers: defaultdict[int, asyncio.Queue[bytes]] = defaultdict(asyncio.Queue)
        threading.Thread(target=self._loop.run_forever, name="hocket-grpc", daemon=True).start()
        port = asyncio.run_coroutine_threadsafe(self._start(host, identity), self._loop).result(timeout_s)
        rendezvous.set(_ADDRESS, msgspec.json.encode(_GrpcAddress(f"{host}:{port}", identity)))

    async def _start(self, host: str, identity: Identity) -> int:
        methods = {
            "/hocket/Push": grpc.unary_unary_rpc_method_handler(self._push),
            "/hocket/Pull": grpc.unary_unary_rpc_method_handler(self._pull),
        }
        self._server = grpc.aio.server(options=self._options)
        self._server.add_generic_rpc_handlers((_Methods(methods),))
        pairs = [(identity.key, identity.certificate)]
        credentials = grpc.ssl_server_credentials(pairs, identity.certificate, require_client_auth=True)
        port: int = self._server.add_secure_port(f"{host}:0", credentials)
        await self._server.start()
        return port

    async def _push(self, request: bytes, _context: Any) -> bytes:
        self._messages.put(request)
        return b""

    async def _pull(self, request: bytes, _context: Any) -> bytes:
        return await self._answers[int.from_bytes(request, "little")].get()

    def send(self, header: Header, payload: torch.Tensor | None = None) -> None:
        """Answer the call that the worker has open for this tag."""
        tag = HEADERS if header.kind is Kind.END else header.tag
        answer = self._answer(tag, _message_bytes(header, payload))
        try:
            asyncio.run_coroutine_threadsafe(answer, self._loop).result(self._timeout_s)
        except TimeoutError:
            raise TransportError(f"nothing was sent within {self._timeout_s:g} s") from None

    async def _answer(self, tag: int, data: bytes) -> None:
        await self._answers[tag].put(data)

    def close(self) -> None:
        """End the server; what was handed over still goes."""
        self._messages.put(TransportError("the connection was closed"))
        with contextlib.suppress(RuntimeError):  # closed already
            asyncio.run_coroutine_threadsafe(self._stop(), self._loop)

    async def _stop(self) -> None:
        await self._server.stop(_CLOSING_S)
        self._loop.stop()


class GrpcWorkerEnd(_Inbox):
    """The worker's end."""

    def __init__(self, rendezvous: Rendezvous, timeout_s: float, window_bytes: int) -> None:
        super().__init__(timeout_s)
        try:
            place: _GrpcAddress = decoded(rendezvous.get(_ADDRESS), _GrpcAddress)
        except RuntimeError as error:
            raise TransportError(str(error)) from None
        key, certificate = place.identity.key, place.identity.certificate
        credentials = grpc.ssl_channel_credentials(certificate, key, certificate)
        self._channel = grpc.secure_channel(place.address, credentials, options=_options(window_bytes))
        self._push = self._channel.unary_unary("/hocket/Push")
        self._pull = self._channel.unary_unary("/hocket/Pull")
        self._under_way: list[Any] = []
        for tag in (HEADERS, BULK):
            self._ask(tag)

    def expect(self, tag: int, buffer: torch.Tensor) -> None:
        """Post ``buffer``, and have a call open that the server answers."""
        super().expect(tag, buffer)
        self._ask(tag)

    def send(self, header: Header, payload: torch.Tensor | None = None) -> None:
        """Start a call that carries the message; the farewell waits for all calls before it."""
        if header.kind is Kind.END:
            for call in self._under_way:
                self._wait(call)
        self._under_way = [call for call in self._under_way if not call.done() or call.code() is not _OK]
        for call in self._under_way:
            if call.done():
                self._wait(call)
        # Strangers may have the places for a moment; the control connection says whether the server lives.
        data = _message_bytes(header, payload)
        call = self._push.future(data, timeout=self._timeout_s, wait_for_ready=True)
        self._under_way.append(call)
        if header.kind is Kind.END:
            self._wait(call)

    def close(self) -> None:
        """End the channel."""
        self._messages.put(TransportError("the connection was closed"))
        self._channel.close()

    def _ask(self, tag: int) -> None:
        # As long as the server takes: its control connection says whether it lives.
        call = self._pull.future(tag.to_bytes(4, "little"), wait_for_ready=True)
        call.add_done_callback(lambda call: self._handle_answer(tag, call))

    def _handle_answer(self, tag: int, call: Any) -> None:
        if call.cancelled() or call.code() is not _OK:
            why = "cancelled" if call.cancelled() else call.details()
            self._messages.put(TransportError(f"its gRPC server is gone ({why})"))
            return
        self._messages.put(call.result())
        if tag == BULK:
            self._ask(tag)

    def _wait(self, call: Any) -> None:
        try:
            call.result(self._timeout_s)
        except (grpc.RpcError, grpc.FutureTimeoutError, grpc.FutureCancelledError) as error:
            raise TransportError(f"a push did not arrive ({getattr(error, 'details', str)()})") from None


_OK = grpc.StatusCode.OK
