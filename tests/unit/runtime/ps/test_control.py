"""Who is let in: processes that know the token, and nobody else, whatever they send."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from hocket.errors import HocketError
from hocket.launch import control
from hocket.launch.control import Connection, Guest, accept, connect, refuse, welcome
from hocket.runtime.ps.transport import TransportError

TOKEN = "a token of the test"


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
    guest = accept(connection, TOKEN)
    welcome(connection)
    return guest


def test_both_sides_know_each_other_afterwards(listener: socket.socket) -> None:
    thread, found = host(listener, let_in)
    guest = Guest("worker", 3, "")
    connect(address_of(listener), TOKEN, guest, 5.0).close()
    thread.join(30)
    assert found == [guest]


def test_who_does_not_know_the_token_is_refused_and_so_is_who_pretends_to_be_a_server(
    listener: socket.socket,
) -> None:
    thread, found = host(listener, let_in)
    with pytest.raises(TransportError, match="closed"):
        connect(address_of(listener), "another token", Guest("worker", 0, ""), 5.0)
    thread.join(30)
    assert found == ["it does not know the token"]
    thread, _ = host(listener, lambda connection: accept(connection, "a third token of ours"))
    with pytest.raises(TransportError):
        connect(address_of(listener), TOKEN, Guest("worker", 0, ""), 5.0)
    thread.join(30)


def test_a_server_that_proves_nothing_is_left(listener: socket.socket) -> None:
    def impostor(connection: Connection) -> None:
        connection.send(control.Challenge("x"))
        connection.receive(dict)
        connection.send(control.Challenge("not a proof"))

    host(listener, impostor)
    with pytest.raises(TransportError, match="does not know the token"):
        connect(address_of(listener), TOKEN, Guest("worker", 0, ""), 5.0)


def test_a_reason_to_be_sent_away_is_told(listener: socket.socket) -> None:
    def send_away(connection: Connection) -> None:
        accept(connection, TOKEN)
        refuse(connection, "worker 0 is here already")

    host(listener, send_away)
    with pytest.raises(TransportError, match="worker 0 is here already"):
        connect(address_of(listener), TOKEN, Guest("worker", 0, ""), 5.0)


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "a message of 542393671 bytes"),
        (struct.pack("<I", 1 << 31), "bytes; at most 4096"),
        (struct.pack("<I", 7) + b"garbage", "no message of Hocket's"),
        (struct.pack("<I", 2) + b"{}", "no message of Hocket's"),
        (b"", "closed"),
        (struct.pack("<I", 100) + b"cut", "closed"),
    ],
)
def test_a_stranger_is_refused_whatever_it_sends(listener: socket.socket, sent: bytes, told: str) -> None:
    thread, found = host(listener, let_in)
    with socket.create_connection(listener.getsockname()) as stranger:
        stranger.sendall(sent)
        with contextlib.suppress(OSError):  # it may have been refused already
            stranger.shutdown(socket.SHUT_WR)
        thread.join(30)
    assert len(found) == 1
    assert told in found[0]


def test_a_stranger_that_says_nothing_is_left_alone(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "HANDSHAKE_S", 0.1)
    thread, found = host(listener, let_in)
    with socket.create_connection(listener.getsockname()):
        thread.join(30)
    assert "timed out" in found[0]


def test_a_proof_is_good_for_one_challenge(listener: socket.socket) -> None:
    """What somebody overheard does not let anybody in."""
    heard: list[Any] = []

    def overheard(connection: Connection) -> Guest:
        plain = connection.receive
        connection.receive = lambda *a: heard.append(plain(*a)) or heard[-1]  # type: ignore[method-assign]
        return let_in(connection)

    thread, _ = host(listener, overheard)
    connect(address_of(listener), TOKEN, Guest("worker", 0, ""), 5.0).close()
    thread.join(30)
    thread, found = host(listener, let_in)
    with socket.create_connection(listener.getsockname()) as stranger:
        data = msgspec.json.encode(heard[0])
        stranger.sendall(struct.pack("<I", len(data)) + data)
        thread.join(30)
    assert found == ["it does not know the token"]


def test_a_proof_may_hold_any_text(listener: socket.socket) -> None:
    thread, found = host(listener, let_in)
    with socket.create_connection(listener.getsockname()) as stranger:
        hello = {"role": "worker", "index": 0, "address": "", "nonce": "\u00e9", "proof": "\u00e9"}
        data = msgspec.json.encode(control.Hello(**hello))
        stranger.sendall(struct.pack("<I", len(data)) + data)
        thread.join(30)
    assert found == ["it does not know the token"]


def test_nobody_at_the_address_is_said_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = address_of(gone)
    with pytest.raises(TransportError, match=f"nobody answers at {address}"):
        connect(address, TOKEN, Guest("worker", 0, ""), 0.3)


def test_a_stranger_that_sends_a_byte_now_and_then_is_not_heard_for_ever(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "HANDSHAKE_S", 0.5)
    thread, found = host(listener, let_in)
    with socket.create_connection(listener.getsockname()) as stranger:
        stranger.sendall(struct.pack("<I", 4000))
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
    connection = connect(address_of(listener), TOKEN, Guest("worker", 0, ""), 5.0)
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
