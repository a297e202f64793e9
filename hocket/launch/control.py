"""A control connection: TLS 1.3 to the certificate that is known, the token inside of it, then JSON messages.

A worker and its server have one, and so have a rank and the gate of a cluster's manager. Imports no torch.

The side that is connected to is known by its certificate (see :mod:`hocket.launch.tls`), the one that
connects by the token, which it says when it knows who listens. A socket in the file system is guarded by its
mode instead: nothing is encrypted there, and its other end belongs to this user. It shows at once when the
process at the other end has gone.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import socket
import ssl
import struct
import threading
import time
from typing import Annotated, Any, Literal

import msgspec

from hocket.errors import HocketError, one_line
from hocket.launch.credentials import Credentials
from hocket.launch.job import split_address
from hocket.launch.tls import Tls, Wire, client_context, server_context

LENGTH = struct.Struct("<I")
_LONGEST = 64 << 20
LONGEST_HELLO = 4096
HANDSHAKE_S = 5.0
_RETRY_S = 0.1
_CREDENTIALS = struct.Struct("3i")  # of SO_PEERCRED: process, user, group

UNIX = "unix:"
"""The prefix of the address of a socket in the file system; others are host:port."""

Role = Literal["worker", "server", "rank", "leader"]


class TransportError(Exception):
    """A peer that is gone, is late, or breaks the protocol; in a line, whatever it has said."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class NobodyError(TransportError):
    """Nobody answers at an address."""


class TurnedAwayError(TransportError):
    """A peer that hung up or was silent before anything was said: it begins, ends, or has no place left."""


class Hello(msgspec.Struct, frozen=True):
    """A caller's role, and in ``token`` the secret that it knows."""

    role: Role
    index: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    address: str
    token: str


class Welcome(msgspec.Struct, frozen=True):
    """The answer to a guest: "" where it may stay, else why not."""

    refused: str


def framed(message: msgspec.Struct) -> bytes:
    """A message as it travels: its length, then JSON."""
    data = msgspec.json.encode(message)
    return LENGTH.pack(len(data)) + data


def decoded(data: bytes, type_: Any) -> Any:
    """The message of ``type_`` that ``data`` holds; TransportError, in a line, where it is none."""
    try:
        return msgspec.json.decode(data, type=type_)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, HocketError) as error:
        raise TransportError(f"what came is no message of Hocket's ({error})") from None


class Connection:
    """One end; any thread may send, one receives. ``local_host``: our address that the other talks to."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._wire = Wire(connected)
        self._stream: Wire | Tls = self._wire
        self._lock = threading.Lock()
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

    def secure(self, context: ssl.SSLContext, *, server_side: bool) -> Tls:
        """Go on within TLS; OSError where the other side does not."""
        tls = Tls(self._wire, context, server_side=server_side)
        tls.handshake()
        self._stream = tls
        return tls

    def detach(self) -> socket.socket:
        """The socket, for what is no message and travels as it is: neither side sends another message."""
        self._stream = self._wire
        return self._socket

    def set_timeout(self, seconds: float | None) -> None:
        """For how long from now on all messages may take; None: for as long as the other side lives."""
        self._wire.deadline_s = None if seconds is None else time.monotonic() + seconds
        self._socket.settimeout(seconds)

    def send(self, message: msgspec.Struct) -> None:
        """Send one message; raises TransportError when the other side is gone."""
        data = framed(message)
        try:
            with self._lock:
                self._stream.send(data)
        except OSError as error:
            raise TransportError(f"its connection ended ({error.strerror or error})") from None

    def receive(self, type_: Any, longest: int = _LONGEST) -> Any:
        """The next message, of ``type_``; raises TransportError at the end, or where it is none."""
        try:
            (length,) = LENGTH.unpack(self._exactly(LENGTH.size))
            if length > longest:
                raise TransportError(f"a message of {length} bytes; at most {longest} are taken")
            return decoded(self._exactly(length), type_)
        except OSError as error:
            raise TransportError(f"its connection ended ({error.strerror or error})") from None

    def write(self, data: bytes) -> None:
        """Send bytes that are no message; OSError when the other side is gone."""
        with self._lock:
            self._stream.send(data)

    def read(self, most: int) -> bytes:
        """The bytes that have come and are no message, at most so many; b"" at the end."""
        return self._stream.receive(most)

    def close(self) -> None:
        """End the connection; the other side, and a thread that waits here, see its end."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _exactly(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            part = self._stream.receive(min(length - len(data), 1 << 20))
            if not part:
                raise TransportError("its connection was closed")
            data += part
        return bytes(data)


class Guest(msgspec.Struct, frozen=True):
    """A connection that has proved to be of the job."""

    role: Role
    index: int
    address: str


def accept(connection: Connection, credentials: Credentials) -> Guest:
    """The server's side of the handshake; TransportError for a stranger, who learns nothing.

    The guest is to be told :func:`welcome` or :func:`refuse`.
    """
    connection.set_timeout(HANDSHAKE_S)
    try:
        connection.secure(server_context(credentials.served), server_side=True)
    except OSError as error:
        raise TransportError(no_tls(error)) from None
    hello: Hello = connection.receive(Hello, LONGEST_HELLO)
    check_token(hello, credentials.secret)
    return Guest(hello.role, hello.index, hello.address)


def no_tls(error: OSError) -> str:
    """A line that says why a TLS handshake failed."""
    if isinstance(error, ssl.SSLError):
        return f"what came is no TLS 1.3 ({(error.reason or str(error)).replace('_', ' ').lower()})"
    return f"its connection ended ({error.strerror or error})"


def check_token(hello: Hello, secret: str) -> None:
    """Refuse a guest that does not know the secret; TransportError."""
    if not hmac.compare_digest(hello.token.encode(errors="replace"), secret.encode(errors="replace")):
        raise TransportError("it does not know the token")


def check_user(connected: socket.socket) -> None:
    """Refuse the other end of a socket in the file system where it is another user's; TransportError."""
    found = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(found)
    if user not in (0, os.geteuid()):
        raise TransportError(f"it belongs to user {user}, not to {os.geteuid()}")


def welcome(connection: Connection) -> None:
    """Let the guest in."""
    connection.send(Welcome(""))
    connection.set_timeout(None)


def refuse(connection: Connection, why: str) -> None:
    """Send a guest away, and tell it why."""
    connection.send(Welcome(why))


def reach(address: str, fingerprint: str, timeout_s: float) -> Connection:
    """A connection to a server, which may still be about to start; it has the certificate of ``fingerprint``.

    Raises
    ------
    TransportError
        When there is none within ``timeout_s``, or its certificate is another one.
    HocketError
        For an address that can be none.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        left_s = deadline_s - time.monotonic()
        try:
            return _met(address, fingerprint, max(0.1, min(left_s, 30.0)))
        except TurnedAwayError:
            if left_s < _RETRY_S:
                raise
        except OSError as error:
            if left_s < _RETRY_S:
                raise NobodyError(f"nobody answers at {address} ({error.strerror or error})") from None
        time.sleep(_RETRY_S)


def connect(address: str, credentials: Credentials, guest: Guest, timeout_s: float) -> Connection:
    """Reach a server as :func:`reach` does, and prove who we are; TransportError where it refuses us."""
    deadline_s = time.monotonic() + timeout_s
    connection = reach(address, credentials.fingerprint, timeout_s)
    try:
        connection.set_timeout(HANDSHAKE_S)
        connection.send(Hello(guest.role, guest.index, guest.address, credentials.secret))
        # It may still wait for other servers.
        connection.set_timeout(max(HANDSHAKE_S, deadline_s - time.monotonic()))
        refused = _answer(connection)
        if refused:
            raise TransportError(refused)
    except TransportError:
        connection.close()
        raise
    connection.set_timeout(None)
    return connection


def _answer(connection: Connection) -> str:
    try:
        return str(connection.receive(Welcome, LONGEST_HELLO).refused)
    except TransportError as error:
        # A host says nothing to strangers.
        raise TransportError(f"{error}; perhaps its token is another one") from None


def _met(address: str, fingerprint: str, timeout_s: float) -> Connection:
    """A connection to a process with the certificate of ``fingerprint``; OSError where none listens."""
    connection = Connection(_reached(address, timeout_s))
    try:
        if address.startswith(UNIX):
            check_user(connection.detach())
            return connection
        connection.set_timeout(HANDSHAKE_S)
        theirs = connection.secure(client_context(), server_side=False).fingerprint
        if not hmac.compare_digest(theirs, fingerprint):
            raise TransportError(
                f"it has another certificate than the token's (sha256 {theirs[:16]}..., not "
                f"{fingerprint[:16]}...): give the token it was started with, unless another host is in"
                " between"
            )
    except ssl.SSLError as error:
        connection.close()
        raise TransportError(f"{no_tls(error)}; is it a server of Hocket's?") from None
    except ConnectionError as error:
        connection.close()
        raise TurnedAwayError(f"its connection was closed at once ({error.strerror or error})") from None
    except TimeoutError:
        connection.close()
        raise TurnedAwayError(f"it did not say who it is within {HANDSHAKE_S:g} s") from None
    except (TransportError, OSError):
        connection.close()
        raise
    return connection


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
