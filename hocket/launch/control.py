"""A control connection: both sides prove that they know the job's token, then talk JSON.

A worker and its server have one, and so have a rank and the gate of a cluster's manager. Imports no torch.

The proof is an HMAC over a number that the other side has just drawn, so that nothing said before helps a
stranger, and the token itself never travels. It shows at once when the process at the other end has gone.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
import socket
import struct
import threading
import time
from typing import Any, Literal

import msgspec

from hocket.errors import HocketError
from hocket.launch.job import split_address

LENGTH = struct.Struct("<I")
_LONGEST = 64 << 20
LONGEST_HELLO = 4096
HANDSHAKE_S = 5.0
_RETRY_S = 0.1

UNIX = "unix:"
"""What the address of a socket in the file system begins with; others are host:port."""

Role = Literal["worker", "server", "rank", "client", "leader"]


class TransportError(Exception):
    """A peer that is gone, is late, or breaks the protocol."""


class NobodyError(TransportError):
    """Nobody answers at an address."""


class Challenge(msgspec.Struct, frozen=True):
    """A number that the other side has to know the token for; then the proof that we know it."""

    nonce: str


class Hello(msgspec.Struct, frozen=True):
    """Who comes, and the proof."""

    role: Role
    index: int
    address: str
    nonce: str
    proof: str


class Welcome(msgspec.Struct, frozen=True):
    """Whether the guest may stay: "" where it may, else why not."""

    refused: str


def framed(message: msgspec.Struct) -> bytes:
    """A message as it travels: its length, then JSON."""
    data = msgspec.json.encode(message)
    return LENGTH.pack(len(data)) + data


class Connection:
    """One end; any thread may send, one receives. ``local_host``: our address that the other talks to."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._lock = threading.Lock()
        self._deadline_s: float | None = None
        self.local_host = ""
        if connected.family == socket.AF_UNIX:
            return
        self.local_host = str(connected.getsockname()[0])
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A machine that vanishes says nothing; its silence ends the connection within half a minute.
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, option):
                connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)

    def detach(self) -> socket.socket:
        """The socket, for what is no message."""
        return self._socket

    def set_timeout(self, seconds: float | None) -> None:
        """For how long from now on all messages may take; None: for as long as the other side lives."""
        self._deadline_s = None if seconds is None else time.monotonic() + seconds
        self._socket.settimeout(seconds)

    def send(self, message: msgspec.Struct) -> None:
        """Send one message; raises TransportError when the other side is gone."""
        data = framed(message)
        try:
            with self._lock:
                self._socket.sendall(data)
        except OSError as error:
            raise TransportError(f"its connection ended ({error.strerror or error})") from None

    def receive(self, type_: Any, longest: int = _LONGEST) -> Any:
        """The next message, of ``type_``; raises TransportError at the end, or where it is none."""
        try:
            (length,) = LENGTH.unpack(self._exactly(LENGTH.size))
            if length > longest:
                raise TransportError(f"a message of {length} bytes; at most {longest} are taken")
            return msgspec.json.decode(self._exactly(length), type=type_)
        except OSError as error:
            raise TransportError(f"its connection ended ({error.strerror or error})") from None
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise TransportError(f"what came is no message of Hocket's ({error})") from None

    def close(self) -> None:
        """End the connection; the other side, and a thread that waits here, see its end."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _exactly(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            if self._deadline_s is not None:
                # Whoever sends a byte now and then must not hold us up for ever.
                left_s = self._deadline_s - time.monotonic()
                if left_s <= 0:
                    raise TransportError("it took too long")
                self._socket.settimeout(left_s)
            part = self._socket.recv(min(length - len(data), 1 << 20))
            if not part:
                raise TransportError("its connection was closed")
            data += part
        return bytes(data)


class Guest(msgspec.Struct, frozen=True):
    """Who has connected and proved to be of the job."""

    role: Role
    index: int
    address: str


def accept(connection: Connection, token: str) -> Guest:
    """The server's side of the handshake; TransportError for a stranger, who learns nothing.

    The guest is to be told :func:`welcome` or :func:`refuse`.
    """
    connection.set_timeout(HANDSHAKE_S)
    nonce = secrets.token_hex(16)
    connection.send(Challenge(nonce))
    hello: Hello = connection.receive(Hello, LONGEST_HELLO)
    proof = proof_of(token, "guest", nonce, hello.nonce, said_by(hello))
    if not hmac.compare_digest(hello.proof.encode(errors="replace"), proof.encode()):
        raise TransportError("it does not know the token")
    connection.send(Challenge(proof_of(token, "host", hello.nonce, nonce, "")))
    return Guest(hello.role, hello.index, hello.address)


def welcome(connection: Connection) -> None:
    """Let the guest in."""
    connection.send(Welcome(""))
    connection.set_timeout(None)


def refuse(connection: Connection, why: str) -> None:
    """Send a guest away, and tell it why."""
    connection.send(Welcome(why))


def connect(address: str, token: str, guest: Guest, timeout_s: float) -> Connection:
    """Reach a server, which may still be about to start, and prove who we are.

    Raises
    ------
    TransportError
        When there is none within ``timeout_s``, it does not know the token, or it refuses us.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        left_s = deadline_s - time.monotonic()
        try:
            connected = _reached(address, max(0.1, min(left_s, 30.0)))
            break
        except OSError as error:
            if left_s < _RETRY_S:
                raise NobodyError(f"nobody answers at {address} ({error.strerror or error})") from None
            time.sleep(_RETRY_S)
    connection = Connection(connected)
    try:
        connection.set_timeout(HANDSHAKE_S)
        theirs: str = connection.receive(Challenge, LONGEST_HELLO).nonce
        nonce = secrets.token_hex(16)
        proof = proof_of(token, "guest", theirs, nonce, f"{guest.role} {guest.index} {guest.address}")
        connection.send(Hello(guest.role, guest.index, guest.address, nonce, proof))
        answer = _answer(connection)
        proof = proof_of(token, "host", nonce, theirs, "")
        if not hmac.compare_digest(answer.encode(errors="replace"), proof.encode()):
            raise TransportError("it does not know the token")
        # It may still wait for other servers.
        connection.set_timeout(max(HANDSHAKE_S, deadline_s - time.monotonic()))
        refused: str = connection.receive(Welcome, LONGEST_HELLO).refused
        if refused:
            raise TransportError(refused)
    except TransportError:
        connection.close()
        raise
    connection.set_timeout(None)
    return connection


def _answer(connection: Connection) -> str:
    try:
        return str(connection.receive(Challenge, LONGEST_HELLO).nonce)
    except TransportError as error:
        # A host says nothing to strangers.
        raise TransportError(f"{error}; perhaps its token is another one") from None


def _reached(address: str, timeout_s: float) -> socket.socket:
    if not address.startswith(UNIX):
        return socket.create_connection(split_address(address), timeout=timeout_s)
    connected = socket.socket(socket.AF_UNIX)
    try:
        connected.settimeout(timeout_s)
        connected.connect(address.removeprefix(UNIX))
    except OSError:
        connected.close()
        raise
    return connected


def said_by(hello: Hello) -> str:
    """What a guest's proof is about, beside the numbers."""
    return f"{hello.role} {hello.index} {hello.address}"


def proof_of(token: str, *parts: str) -> str:
    """That whoever says ``parts`` knows the token."""
    said = "\n".join(parts).encode(errors="replace")
    return hmac.new(token.encode(), said, hashlib.sha256).hexdigest()


def host_towards(address: str) -> str:
    """The address of this machine's interface that leads to ``address``."""
    host, port = split_address(address)
    try:
        family = socket.getaddrinfo(host, port)[0][0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((host, port))  # sends nothing
            return str(probe.getsockname()[0])
    except OSError as error:
        raise HocketError(
            f"no way leads to '{host}' ({error.strerror or error});"
            " give an address of server 0's machine in MASTER_ADDR"
        ) from None
