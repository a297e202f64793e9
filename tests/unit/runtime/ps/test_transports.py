"""The transports: messages of the length that is expected, and an error for whatever else comes."""

from __future__ import annotations

import contextlib
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import torch

from hocket.launch import Rule, ServedJob
from hocket.launch.job import split_address
from hocket.launch.tls import Identity, Tls, Wire, new_identity
from hocket.runtime.ps.wire import gloo_transport
from hocket.runtime.ps.wire.make_transport import make_transport
from hocket.runtime.ps.wire.rendezvous import Rendezvous
from hocket.runtime.ps.wire.transport import BULK, FIRST_FRAME, Header, Kind, Transport, TransportError
from tests.tokens import TOKEN

Ends = tuple[Transport, Transport]
"""The server's and the worker's."""


def made(kind: str) -> Ends:
    if kind == "grpc":
        pytest.importorskip("grpc")
    timeout_s = 30.0
    job = ServedJob(address="x:1", token=TOKEN, rule=Rule(), transport=kind, timeout_s=timeout_s)  # type: ignore[arg-type]
    meetings: list[Rendezvous] = []
    meetings.append(Rendezvous(lambda key, value: meetings[1].put(key, value), timeout_s))
    meetings.append(Rendezvous(lambda key, value: meetings[0].put(key, value), timeout_s))
    ends: dict[int, Transport] = {}

    def make(rank: int) -> None:
        ends[rank] = make_transport(job, meetings[rank], "127.0.0.1", server=rank == 0)

    threads = [threading.Thread(target=make, args=[rank]) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return ends[0], ends[1]


@pytest.fixture(params=["gloo", "grpc"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["pulls", "pushes"])
def ends(kind: str, request: pytest.FixtureRequest) -> Iterator[Ends]:
    """Who sends and who receives."""
    server, worker = made(kind)
    yield (server, worker) if request.param == "pulls" else (worker, server)
    worker.close()
    server.close()


def message(length: int, tag: int = FIRST_FRAME) -> tuple[Header, torch.Tensor]:
    payload = torch.arange(length, dtype=torch.int64).to(torch.uint8)
    return Header(kind=Kind.PUSH, tag=tag, label=3, length=length), payload


def in_background(send: Callable[[], object]) -> threading.Thread:
    """Send while the test receives, which may end the sender with an error of its own."""

    def run() -> None:
        with contextlib.suppress(TransportError):
            send()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_messages_arrive_in_their_buffers(ends: Ends) -> None:
    sender, receiver = ends
    buffers = {FIRST_FRAME + k: torch.zeros(100_000 * k + 1, dtype=torch.uint8) for k in range(4)}
    for tag, buffer in buffers.items():
        receiver.expect(tag, buffer)

    def send() -> None:
        for k in (2, 0, 3, 1):
            sender.send(*message(buffers[FIRST_FRAME + k].numel(), FIRST_FRAME + k))
        sender.send(Header(kind=Kind.VALUES, tag=BULK, length=7), torch.full((7,), 9, dtype=torch.uint8))

    thread = in_background(send)
    came = {}
    for _ in range(5):
        header, payload = receiver.receive()
        assert payload is not None
        came[header.tag] = payload
    assert came.pop(BULK).tolist() == [9] * 7
    assert came.keys() == buffers.keys()
    for tag, payload in came.items():
        assert payload is buffers[tag]
        assert torch.equal(payload, message(len(payload))[1])
    thread.join(30)
    in_background(lambda: sender.send(Header(kind=Kind.END)))
    assert receiver.receive() == (Header(kind=Kind.END), None)


def test_gloo_keeps_the_senders_order() -> None:
    sender, receiver = made("gloo")
    order = [FIRST_FRAME + k for k in (3, 0, 2, 1)]
    for tag in sorted(order):
        receiver.expect(tag, torch.zeros(5, dtype=torch.uint8))
    thread = in_background(lambda: [sender.send(*message(5, tag)) for tag in order])
    assert [receiver.receive()[0].tag for _ in order] == order
    thread.join(30)


def test_gloo_sends_many_messages_before_the_first_is_received() -> None:
    sender, receiver = made("gloo")
    tags = range(FIRST_FRAME, FIRST_FRAME + 60)
    for tag in tags:
        receiver.expect(tag, torch.zeros(5, dtype=torch.uint8))
    for tag in tags:  # a receiver whose words are late says nothing meanwhile
        sender.send(*message(5, tag))
    assert [receiver.receive()[0].tag for _ in tags] == list(tags)


def test_a_message_of_another_length_is_refused(ends: Ends) -> None:
    sender, receiver = ends
    receiver.expect(FIRST_FRAME, torch.zeros(10, dtype=torch.uint8))
    in_background(lambda: sender.send(*message(12)))
    with pytest.raises(TransportError, match="has 12 bytes where 10 are expected"):
        receiver.receive()


def test_a_message_that_nobody_expects_is_an_error_after_the_timeout(kind: str) -> None:
    receiver, sender = made(kind)
    receiver._timeout_s = 0.5  # to connect may take longer
    in_background(lambda: sender.send(*message(12, 77)))
    with pytest.raises(TransportError, match="nobody here expects message 77"):
        receiver.receive()


def test_a_peer_that_does_not_come_is_an_error_after_the_timeout() -> None:
    job = ServedJob(address="x:1", token=TOKEN, rule=Rule(), timeout_s=0.2)
    with pytest.raises(TransportError, match="did not say where it is"):
        make_transport(job, Rendezvous(lambda *_: None, 0.2), "127.0.0.1", server=True)


def test_a_peer_that_is_known_to_be_lost_is_not_waited_for(kind: str) -> None:
    if kind == "grpc":
        pytest.importorskip("grpc")
    job = ServedJob(address="x:1", token=TOKEN, rule=Rule(), transport=kind)  # type: ignore[arg-type]
    meeting = Rendezvous(lambda *_: None, 30.0)
    meeting.fail("its connection was closed")
    with pytest.raises(TransportError, match="its connection was closed"):
        make_transport(job, meeting, "127.0.0.1", server=False)


def grpc_server(told: list[Any]) -> Transport:
    job = ServedJob(address="x:1", token=TOKEN, rule=Rule(), transport="grpc", timeout_s=30.0)
    place = Rendezvous(lambda _, value: told.append(msgspec.json.decode(value)), 30.0)
    return make_transport(job, place, "127.0.0.1", server=True)


def test_grpc_refuses_calls_without_the_pairs_key() -> None:
    """Whoever knows the certificate, as everybody who connects does, knows no key."""
    grpc = pytest.importorskip("grpc")
    told: list[Any] = []
    server = grpc_server(told)
    address = told[0]["address"]
    theirs = ssl.get_server_certificate(split_address(address)).encode()
    own = new_identity()
    options = [("grpc.ssl_target_name_override", "hocket")]
    for channel in (
        grpc.insecure_channel(address),
        grpc.secure_channel(address, grpc.ssl_channel_credentials(theirs), options),
        grpc.secure_channel(address, grpc.ssl_channel_credentials(theirs, own.key, own.certificate), options),
    ):
        with channel as stranger:
            for method in ("Push", "Pull"):
                with pytest.raises(grpc.RpcError) as refused:
                    stranger.unary_unary(f"/hocket/{method}")(b"\0\0\0\0", timeout=30)
                assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    server.close()
    with pytest.raises(TransportError, match="was closed"):
        server.receive()


def test_grpc_workers_leave_a_server_that_has_another_key() -> None:
    """Somebody in between who ends TLS with a certificate of its own is told nothing."""
    pytest.importorskip("grpc")
    told: list[Any] = []
    impostor = grpc_server(told)
    place = told[0] | {"identity": new_identity()}
    meeting = Rendezvous(lambda *_: None, 30.0)
    meeting.put("grpc", msgspec.json.encode(place))
    job = ServedJob(address="x:1", token=TOKEN, rule=Rule(), transport="grpc", timeout_s=2.0)
    worker = make_transport(job, meeting, "127.0.0.1", server=False)
    with pytest.raises(TransportError, match="a push did not arrive"):
        worker.send(Header(kind=Kind.END))
    worker.close()
    impostor.close()


def test_grpc_servers_let_silent_callers_go_and_take_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("grpc")
    monkeypatch.setattr("hocket.runtime.ps.wire.grpc_transport._HANDSHAKE_MS", 500)
    told: list[Any] = []
    server = grpc_server(told)
    host_and_port = split_address(told[0]["address"])
    with contextlib.ExitStack() as stack:
        for number in range(40):
            silent = stack.enter_context(socket.create_connection(host_and_port, 20.0))
            with contextlib.suppress(ConnectionError):
                silent.sendall(b"PRI * HTTP/2.0" if number % 2 else b"")
        with contextlib.suppress(ConnectionError):
            assert silent.recv(100) == b""
    meeting = Rendezvous(lambda *_: None, 30.0)
    meeting.put("grpc", msgspec.json.encode(told[0]))
    job = ServedJob(address="x:1", token=TOKEN, rule=Rule(), transport="grpc", timeout_s=30.0)
    worker = make_transport(job, meeting, "127.0.0.1", server=False)
    worker.send(Header(kind=Kind.END))
    assert server.receive() == (Header(kind=Kind.END), None)
    worker.close()
    server.close()


def test_grpc_has_the_window_that_the_job_says_and_keeps_it() -> None:
    pytest.importorskip("grpc")
    window, length = 1 << 18, 2 << 20
    job = ServedJob(
        address="x:1", token=TOKEN, rule=Rule(), transport="grpc", timeout_s=30.0, window_bytes=window
    )
    said = bytearray(), bytearray()
    theirs = Rendezvous(lambda *_: None, 30.0)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def tell(key: str, value: bytes) -> None:
            """Where the server can be reached: by way of us, who know the pair's key."""
            place = msgspec.json.decode(value)
            here = Overheard(place, listening)
            threading.Thread(target=here.listen, args=said, daemon=True).start()
            theirs.put(key, msgspec.json.encode(place | {"address": here.address}))

        server = make_transport(job, Rendezvous(tell, 30.0), "127.0.0.1", server=True)
        worker = make_transport(job, theirs, "127.0.0.1", server=False)
        # An estimate would come with what has been received.
        for sender, receiver in [(worker, server), (server, worker)] * 3:
            receiver.expect(FIRST_FRAME, torch.zeros(length, dtype=torch.uint8))
            thread = in_background(lambda sender=sender: sender.send(*message(length)))  # type: ignore[misc]
            receiver.receive()
            thread.join(30)
        worker.close()
        server.close()
    assert [windows_of(bytes(frames)) for frames in said] == [[window], [window]]


class Overheard:
    """Stands between a worker and the server at ``place``, whose key it knows."""

    def __init__(self, place: Any, listening: socket.socket) -> None:
        self._identity = msgspec.convert(place["identity"], Identity)
        self._place, self._listening = place, listening
        self.address = f"127.0.0.1:{listening.getsockname()[1]}"

    def listen(self, caller_said: bytearray, called_said: bytearray) -> None:
        """Keep what each of them says."""
        caller = self._secured(self._listening.accept()[0], server_side=True)
        called = self._secured(socket.create_connection(split_address(self._place["address"])), False)

        def pump(source: Tls, target: Tls, kept: bytearray) -> None:
            with contextlib.suppress(OSError):
                while data := source.receive(1 << 16):
                    kept += data
                    target.send(data)

        back = threading.Thread(target=pump, args=[called, caller, called_said], daemon=True)
        back.start()
        pump(caller, called, caller_said)

    def _secured(self, plain: socket.socket, server_side: bool) -> Tls:
        protocol = ssl.PROTOCOL_TLS_SERVER if server_side else ssl.PROTOCOL_TLS_CLIENT
        context = ssl.SSLContext(protocol)
        context.check_hostname = False
        context.load_verify_locations(cadata=self._identity.certificate.decode())
        context.set_alpn_protocols(["h2"])
        with tempfile.NamedTemporaryFile() as file:
            file.write(self._identity.key + self._identity.certificate)
            file.flush()
            context.load_cert_chain(file.name)
        context.verify_mode = ssl.CERT_REQUIRED
        tls = Tls(Wire(plain), context, server_side=server_side)
        tls.handshake()
        return tls


def windows_of(data: bytes) -> list[int]:
    """The streams' initial windows (RFC 9113, section 6.5) that one side of a connection has announced."""
    at, found = 24 if data.startswith(b"PRI * HTTP/2.0") else 0, []
    while at + 9 <= len(data):
        length, kind, flags = int.from_bytes(data[at : at + 3], "big"), data[at + 3], data[at + 4]
        body = data[at + 9 : at + 9 + length]
        if kind == 4 and not flags & 1:
            settings = [body[k : k + 6] for k in range(0, len(body), 6)]
            found += [int.from_bytes(each[2:], "big") for each in settings if each[:2] == b"\0\4"]
        at += 9 + length
    return found


def test_grpc_asks_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """What machines of a cluster are told to reach the world by does not lead from one to another."""
    for name in ("grpc_proxy", "https_proxy", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_grpc_proxy", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    server, worker = made("grpc")
    worker.send(Header(kind=Kind.END))
    assert server.receive() == (Header(kind=Kind.END), None)
    worker.close()
    server.close()


def test_gloo_says_in_one_line_that_a_peer_is_lost() -> None:
    for reason in (
        "Read error [10.77.0.2]:4321: Connection reset by peer",
        "Connection closed by peer [::1]:9",
    ):
        error = RuntimeError(f"[/somewhere/pair.cc:537] {reason}. This may indicate a crash on rank 1.")
        assert gloo_transport._line(error) == "its connection was closed"
    assert gloo_transport._line(RuntimeError("Timed out waiting\nfor a send")) == "Timed out waiting"
