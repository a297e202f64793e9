"""Commands' way to a cluster's manager: a file in the cluster's folder says where it is, and the token."""

from __future__ import annotations

import fcntl
import http.client
import io
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import msgspec

from hocket.cluster.live.api.operations import HttpCall, call_of
from hocket.cluster.live.kept_credentials import CERTIFICATE
from hocket.cluster.live.manager_messages import MOST_BYTES, FromClient, ManagerAnswer
from hocket.document import convert_document, read_document
from hocket.errors import HocketError
from hocket.launch.control import Connection, NobodyError, TransportError, TurnedAwayError, decoded, reach
from hocket.launch.credentials import Credentials, credentials_of
from hocket.launch.tls import NAME

ADDRESS_VARIABLE = "HOCKET_CLUSTER"
TOKEN_VARIABLE = "HOCKET_CLUSTER_TOKEN"
CURL_OPTIONS = "curl.conf"
"""The file beside the contact with which curl asks https://hocket/, whatever the manager's address is."""

_START = "starting.lock"
_STARTING = "is starting, which takes minutes where it compiles; try again when it says 'manager at'"

_CONNECT_S = 12.0  # a busy manager is asked again when it has not answered in time
_ANSWER_S = 60.0


class Contact(msgspec.Struct, frozen=True, kw_only=True):
    """A manager's address, and the secret for commands; ``page``: where browsers find it, "" for nowhere."""

    address: str
    token: str
    page: str = ""


def leave_contact(folder: Path, contact: Contact) -> None:
    """Leave the contact in ``folder`` for commands on this machine, and for curl in ``curl.conf``."""
    _leave(folder / "contact.json", msgspec.json.encode(contact))
    certificate = str((folder / CERTIFICATE).resolve()).translate({ord("\\"): r"\\", ord('"'): r"\""})
    host, _, port = contact.address.rpartition(":")
    address = f"[{host}]:{port}" if ":" in host else contact.address
    options = [
        f'cacert = "{certificate}"',
        f'connect-to = "{NAME}:443:{address}"',
        f'header = "Authorization: Bearer {contact.token}"',
    ]
    _leave(folder / CURL_OPTIONS, "".join(f"{option}\n" for option in options).encode())


@contextmanager
def starting(folder: Path) -> Iterator[None]:
    """Let commands see in ``folder`` that a manager of its cluster is starting while this is open."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(folder / _START, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield
    finally:
        os.close(lock)


def is_starting(folder: Path) -> bool:
    """True while a manager of the cluster in ``folder`` is alive and does not listen yet."""
    try:
        lock = os.open(folder / _START, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _leave(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, whole or not at all; HocketError where that fails."""
    new = path.with_name(f"{path.name}.new")
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
        os.replace(new, path)
    except OSError as error:  # one of writing names no file
        raise HocketError(f"{path}: cannot be written: {error.strerror or error}") from None


def contact_of(folder: Path | None) -> Contact:
    """The manager of the cluster in ``folder``; without one, that of the environment.

    Raises
    ------
    HocketError
        When nothing says where the manager is.
    """
    if folder is None:
        address, token = os.environ.get(ADDRESS_VARIABLE), os.environ.get(TOKEN_VARIABLE)
        if not address or not token:
            raise HocketError(
                f"which cluster? give --state FOLDER, or set {ADDRESS_VARIABLE} and {TOKEN_VARIABLE}"
            )
        checked_token(token, TOKEN_VARIABLE)
        return Contact(address=address, token=token)
    path = folder / "contact.json"
    if not path.exists():
        if is_starting(folder):
            raise HocketError(f"{folder}: its manager {_STARTING}")
        raise HocketError(
            f"{folder}: no manager is there yet; start one, hocket cluster serve --state {folder}, or wait"
            " until it says 'manager at'"
        )
    contact = convert_document(read_document(path), Contact, str(path))
    checked_token(contact.token, str(path))
    return contact


def checked_token(token: str, source: str) -> Credentials:
    """The credentials that a cluster's token holds; HocketError that names ``source`` where it is none."""
    return credentials_of(token, source, "copy what is in the file 'token' of the manager's --state FOLDER")


class ManagerLine:
    """A connection with a manager for several requests; one that was lost between two is made anew.

    ``folder``: the cluster's, where it is known.
    """

    def __init__(self, contact: Contact, folder: Path | None = None) -> None:
        self._contact, self._folder = contact, folder
        self._headers: dict[str, str] = {}
        self._connection: http.client.HTTPConnection | None = None

    def ask(self, request: FromClient) -> ManagerAnswer:
        """The manager's answer.

        Raises
        ------
        HocketError
            When it cannot be reached, or refuses, and for a request that is longer than it takes.
        """
        call = call_of(request)
        size = len(call.body or b"")
        if size > MOST_BYTES:
            raise HocketError(
                f"a request of {size} bytes; a manager takes {MOST_BYTES}: submit fewer jobs at once"
            )
        try:
            answer = self._exchange(call)
        except NobodyError as error:
            raise HocketError(f"the cluster's manager: {error}; {self._way_out()}") from None
        except TransportError as error:
            again = isinstance(error, TurnedAwayError)
            hint = "; it is busy, hangs or is about to end: try again" if again else ""
            raise HocketError(f"the cluster's manager at {self._contact.address}: {error}{hint}") from None
        if answer.refused:
            raise HocketError(answer.refused)
        return answer

    def _way_out(self) -> str:
        """The way out where nobody answers."""
        if self._folder is None:
            return (
                "start it again (hocket cluster serve), or wait if it is starting: it goes on with its jobs"
            )
        if is_starting(self._folder):
            return f"it {_STARTING}"
        return "start it again (hocket cluster serve): it goes on with its jobs"

    def _exchange(self, call: HttpCall) -> ManagerAnswer:
        fresh = self._connection is None or self._connection.sock is None
        if self._connection is None or self._connection.sock is None:
            self._connection = self._connected()
        try:
            self._connection.sock.settimeout(_ANSWER_S)
            self._connection.request(call.method, call.target, call.body, self._headers)
            return _answer(self._connection.getresponse())
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if fresh:
                late = isinstance(error, TimeoutError)
                why = (
                    f"it did not answer within {_ANSWER_S:g} s" if late else f"its connection ended ({error})"
                )
                raise TurnedAwayError(why) from None
            return self._exchange(call)  # it was let go since the last request, or the manager is another one
        except TransportError:
            self.close()
            raise

    def _connected(self) -> http.client.HTTPConnection:
        credentials = checked_token(self._contact.token, "the cluster's contact")
        self._headers = {"Authorization": f"Bearer {credentials.without_key.text}"}
        made = http.client.HTTPConnection(NAME)
        made.auto_open = 0  # it would be to a host of that name, and not encrypted
        made.sock = cast(socket.socket, _Pinned(self._contact.address, credentials))
        return made

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _answer(response: http.client.HTTPResponse) -> ManagerAnswer:
    if (response.length or 0) > MOST_BYTES:
        raise TransportError(f"an answer of {response.length} bytes; at most {MOST_BYTES} are taken")
    answer: ManagerAnswer = decoded(response.read(), ManagerAnswer)
    return answer


class _Pinned:
    """The connection with a manager whose certificate is the token's, in the place of a socket."""

    def __init__(self, address: str, credentials: Credentials) -> None:
        self._connection = reach(address, credentials.fingerprint, _CONNECT_S)

    def makefile(self, _: str) -> io.BufferedReader:
        """The bytes that come."""
        return io.BufferedReader(_Incoming(self._connection))

    def sendall(self, data: bytes) -> None:
        """Send all of ``data``."""
        self._connection.write(data)

    def settimeout(self, seconds: float) -> None:
        """For how long from now on all may take."""
        self._connection.set_timeout(seconds)

    def close(self) -> None:
        """End it."""
        self._connection.close()


class _Incoming(io.RawIOBase):
    """The bytes that come on a connection, which stays when this is closed."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def readable(self) -> bool:
        """True: it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Put what has come into ``buffer``; 0 at the end."""
        data = self._connection.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def ask_manager(contact: Contact, request: FromClient, folder: Path | None = None) -> ManagerAnswer:
    """The manager's answer to one request; raises as :meth:`ManagerLine.ask` does."""
    line = ManagerLine(contact, folder)
    try:
        return line.ask(request)
    finally:
        line.close()
