"""Who is let in: processes that know the token, and nobody else, whatever they send."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from hocket.errors import HocketError
from hocket.launch import control
from hocket.launch.control import Connection, Guest, accept, connect, refuse, welcome
from hocket.launch.credentials import Credentials, new_credentials
from hocket.launch.tls import client_context
from hocket.runtime.ps.wire.transport import TransportError
from tests.tokens import CREDENTIALS, FINGERPRINT


@pytest.fixture
def listener() -> Any:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def address_of(listener: socket.socket) -> str:
    return f"127.0.0.1:{listener.getsockname()[1]}"


def host(listener: socket.socket, greet: Callable[[Connection], Any]) -> tuple[threading.Thread, list[Any]]:
    """A server that greets one guest; what came of it."""
    found: list[Any] = []

    def run() -> None:
        connection = Connection(listener.accept()[0])
        try:
            found.append(greet(connection))
        except TransportError as error:
            found.append(str(error))
            connection.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, found


def let_in(connection: Connection) -> Guest:
    guest = accept(connection, CREDENTIALS)
    welcome(connection)
    return guest


def test_both_sides_know_each_other_afterwards(listener: socket.socket) -> None:
    thread, found = host(listener, let_in)
    guest = Guest("worker", 3, "")
    connect(address_of(listener), CREDENTIALS, guest, 5.0).close()
    thread.join(30)
    assert found == [guest]


def test_who_does_not_know_the_token_is_refused_and_so_is_who_pretends_to_be_a_server(
    listener: socket.socket,
) -> None:
    thread, found = host(listener, let_in)
    stranger = Credentials("another token", FINGERPRINT)
    with pytest.raises(TransportError, match="closed; perhaps its token is another one"):
        connect(address_of(listener), stranger, Guest("worker", 0, ""), 5.0)
    thread.join(30)
    assert found == ["it does not know the token"]
    thread, found = host(listener, lambda connection: accept(connection, new_credentials()))
    with pytest.raises(TransportError, match=r"another certificate than the token's \(sha256 [0-9a-f]{16}"):
        connect(address_of(listener), CREDENTIALS, Guest("worker", 0, ""), 5.0)
    thread.join(30)
    assert found == ["its connection was closed"]  # it was not told the token


def test_a_server_that_speaks_no_tls_is_left(listener: socket.socket) -> None:
    def impostor(connection: Connection) -> None:
        connection.send(Guest("worker", 0, ""))
        connection.receive(dict)

    host(listener, impostor)
    with pytest.raises(TransportError, match=r"no TLS 1\.3 .*is it a server of Hocket's"):
        connect(address_of(listener), CREDENTIALS, Guest("worker", 0, ""), 5.0)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_nothing_older_than_tls_1_3_is_spoken(listener: socket.socket, version: ssl.TLSVersion) -> None:
    thread, found = host(listener, let_in)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = version
    with socket.create_connection(listener.getsockname()) as plain:
        if version == ssl.TLSVersion.TLSv1_3:
            with context.wrap_socket(plain) as secured:
                assert secured.version() == "TLSv1.3"
            return
        with pytest.raises(ssl.SSLError):
            context.wrap_socket(plain)
    thread.join(30)
    assert "no TLS 1.3 (unsupported protocol)" in found[0]


def test_a_reason_to_be_sent_away_is_told(listener: socket.socket) -> None:
    def send_away(connection: Connection) -> None:
        accept(connection, CREDENTIALS)
        refuse(connection, "worker 0 is here already")

    host(listener, send_away)
    with pytest.raises(TransportError, match="worker 0 is here already"):
        connect(address_of(listener), CREDENTIALS, Guest("worker", 0, ""), 5.0)


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "no TLS 1.3 (http request)"),
        (b"\x16\x03\x01\xff\xff" + bytes(1 << 16), "no TLS 1.3"),
        (struct.pack("<I", 7) + b"garbage", "no TLS 1.3"),
        (b"", "hung up"),
        (b"\x16\x03\x01\x00", "hung up"),
    ],
)
def test_a_stranger_is_refused_whatever_it_sends(listener: socket.socket, sent: bytes, told: str) -> None:
    thread, found = host(listener, let_in)
    with socket.create_connection(listener.getsockname()) as stranger:
        with contextlib.suppress(OSError):  # it may have been refused already
            stranger.sendall(sent)
            stranger.shutdown(socket.SHUT_WR)
        thread.join(30)
    assert len(found) == 1
    assert told in found[0]


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "a message of 542393671 bytes"),
        (struct.pack("<I", 1 << 31), "bytes; at most 4096"),
        (struct.pack("<I", 7) + b"garbage", "no message of Hocket's"),
        (struct.pack("<I", 2) + b"{}", "no message of Hocket's"),
        (
            struct.pack("<I", 3806) + b'{"x":' + b"[" * 1900 + b"]" * 1900 + b"}",
            "recursion depth",
        ),
        (struct.pack("<I", 9) + b'{"x":"\xff"}'[:9], "no message of Hocket's"),
        (b"", "closed"),
        (struct.pack("<I", 100) + b"cut", "closed"),
    ],
)
def test_a_stranger_within_tls_is_refused_whatever_it_sends(
    listener: socket.socket, sent: bytes, told: str
) -> None:
    thread, found = host(listener, let_in)
    with socket.create_connection(listener.getsockname()) as plain:
        connection = Connection(plain)
        tls = connection.secure(client_context(), server_side=False)
        with contextlib.suppress(OSError):  # it may have been refused already
            tls.send(sent)
            plain.shutdown(socket.SHUT_WR)
        thread.join(30)
    assert len(found) == 1
    assert told in found[0]
    assert "\n" not in found[0]


def test_a_stranger_that_says_nothing_is_left_alone(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "HANDSHAKE_S", 0.1)
    thread, found = host(listener, let_in)
    with socket.create_connection(listener.getsockname()):
        thread.join(30)
    assert "timed out" in found[0]


def test_a_stranger_may_say_any_text(listener: socket.socket) -> None:
    thread, found = host(listener, let_in)
    stranger = Credentials("\u00e9" * 16, FINGERPRINT)
    with pytest.raises(TransportError, match="closed"):
        connect(address_of(listener), stranger, Guest("worker", 0, ""), 5.0)
    thread.join(30)
    assert found == ["it does not know the token"]


def test_nobody_at_the_address_is_said_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = address_of(gone)
    with pytest.raises(TransportError, match=f"nobody answers at {address}"):
        connect(address, CREDENTIALS, Guest("worker", 0, ""), 0.3)


def test_a_stranger_that_sends_a_byte_now_and_then_is_not_heard_for_ever(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "HANDSHAKE_S", 0.5)
    thread, found = host(listener, let_in)
    with socket.create_connection(listener.getsockname()) as stranger:
        stranger.sendall(b"\x16\x03\x01\x0f\xa0\x01\x00\x0f\x9c")  # what begins TLS, and is long
        sent = 0
        with contextlib.suppress(OSError):
            while thread.is_alive() and sent < 200:
                stranger.sendall(b" ")
                sent += 1
                thread.join(0.1)
    assert sent < 100
    assert "took too long" in found[0] or "timed out" in found[0]


def test_sending_to_a_peer_that_is_gone_is_an_error(listener: socket.socket) -> None:
    thread, _ = host(listener, let_in)
    connection = connect(address_of(listener), CREDENTIALS, Guest("worker", 0, ""), 5.0)
    thread.join(30)
    # The other end has no owner any more, and what is sent first may still find room.

    def send() -> None:
        for _ in range(1000):
            connection.send(Guest("worker", 0, "x" * 100_000))

    with pytest.raises(TransportError, match="its connection ended"):
        send()
    connection.close()


def test_an_address_that_leads_nowhere_is_said_in_one_line() -> None:
    with pytest.raises(HocketError, match=r"no way leads to 'nowhere\.invalid' .*; give an address"):
        control.host_towards("nowhere.invalid:29500")


def test_who_is_sent_away_at_once_comes_again(listener: socket.socket) -> None:
    """It has not been looked at: there were too many others."""
    found: list[Guest] = []

    def run() -> None:
        for _ in range(2):
            listener.accept()[0].close()
        found.append(let_in(Connection(listener.accept()[0])))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    connect(address_of(listener), CREDENTIALS, Guest("worker", 0, ""), 20.0).close()
    thread.join(30)
    assert found == [Guest("worker", 0, "")]


def test_both_sides_talk_at_once_and_much(listener: socket.socket) -> None:
    """One thread sends while another one receives, on each side, more than a network holds."""
    sent = Guest("worker", 0, "x" * (1 << 20))

    def work(connection: Connection) -> list[Guest]:
        def send() -> None:
            for _ in range(16):
                connection.send(sent)

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        came = [connection.receive(Guest) for _ in range(16)]
        sender.join(30)
        return came

    def greet(connection: Connection) -> list[Guest]:
        let_in(connection)
        return work(connection)

    thread, found = host(listener, greet)
    connection = connect(address_of(listener), CREDENTIALS, Guest("worker", 0, ""), 5.0)
    assert work(connection) == [sent] * 16
    thread.join(30)
    assert found == [[sent] * 16]
    connection.close()


def test_another_users_socket_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        control.check_user(ours)
        monkeypatch.setattr("os.geteuid", lambda: 4321)
        monkeypatch.setattr(control, "_CREDENTIALS", SimpleNamespace(size=12, unpack=lambda _: (1, 1234, 1)))
        with pytest.raises(TransportError, match="it belongs to user 1234, not to 4321"):
            control.check_user(ours)


@pytest.mark.slow
def test_a_server_that_takes_long_to_begin_is_waited_for(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its launcher has listened for it already."""
    monkeypatch.setattr(control, "HANDSHAKE_S", 0.5)
    found: list[Guest] = []

    def begin() -> None:
        kept = [listener.accept()[0] for _ in range(2)]
        monkeypatch.setattr(control, "HANDSHAKE_S", 30.0)
        found.append(let_in(Connection(listener.accept()[0])))
        for each in kept:
            each.close()

    thread = threading.Thread(target=begin, daemon=True)
    thread.start()
    connect(address_of(listener), CREDENTIALS, Guest("worker", 0, ""), 30.0).close()
    thread.join(30)
    assert found == [Guest("worker", 0, "")]
