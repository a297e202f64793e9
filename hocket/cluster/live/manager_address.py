"""Commands' way to a cluster's manager: a file in the cluster's folder says where it is, and the token."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from hocket.cluster.live.manager_messages import MOST_BYTES, FromClient, ManagerAnswer
from hocket.document import convert_document, read_document
from hocket.errors import HocketError
from hocket.launch.control import Connection, Guest, NobodyError, TransportError, connect
from hocket.launch.credentials import Credentials, credentials_of

ADDRESS_VARIABLE = "HOCKET_CLUSTER"
TOKEN_VARIABLE = "HOCKET_CLUSTER_TOKEN"

_CONNECT_S = 12.0  # a busy manager is asked again when it has not answered in time
_ANSWER_S = 60.0


class Contact(msgspec.Struct, frozen=True, kw_only=True):
    """A manager's address, and the secret for commands; ``page``: where browsers find it, "" for nowhere."""

    address: str
    token: str
    page: str = ""


def leave_contact(folder: Path, contact: Contact) -> None:
    """Leave the contact in ``folder`` for commands on this machine."""
    new = folder / "contact.json.new"
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(msgspec.json.encode(contact))
    os.replace(new, folder / "contact.json")


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
        raise HocketError(
            f"{folder}: no manager was started there; start one: hocket cluster serve --state {folder}"
        )
    contact = convert_document(read_document(path), Contact, str(path))
    checked_token(contact.token, str(path))
    return contact


def checked_token(token: str, source: str) -> Credentials:
    """The credentials that a cluster's token holds; HocketError that names ``source`` where it is none."""
    return credentials_of(token, source, "copy what is in the file 'token' of the manager's --state FOLDER")


class ManagerLine:
    """A connection with a manager for several requests; one that was lost between two is made anew."""

    def __init__(self, contact: Contact) -> None:
        self._contact = contact
        self._connection: Connection | None = None

    def ask(self, request: FromClient) -> ManagerAnswer:
        """The manager's answer.

        Raises
        ------
        HocketError
            When it cannot be reached, or refuses, and for a request that is longer than it takes.
        """
        size = len(msgspec.json.encode(request))
        if size > MOST_BYTES:
            raise HocketError(
                f"a request of {size} bytes; a manager takes {MOST_BYTES}: submit fewer jobs at once"
            )
        try:
            answer = self._exchange(request)
        except NobodyError as error:
            raise HocketError(
                f"the cluster's manager: {error}; start it again (hocket cluster serve): it goes on with its"
                " jobs"
            ) from None
        except TransportError as error:
            raise HocketError(f"the cluster's manager at {self._contact.address}: {error}") from None
        if answer.refused:
            raise HocketError(answer.refused)
        return answer

    def _exchange(self, request: FromClient) -> ManagerAnswer:
        fresh = self._connection is None
        if self._connection is None:
            credentials = checked_token(self._contact.token, "the cluster's contact")
            self._connection = connect(self._contact.address, credentials, Guest("client", 0, ""), _CONNECT_S)
        try:
            self._connection.set_timeout(_ANSWER_S)
            self._connection.send(request)
            answer: ManagerAnswer = self._connection.receive(ManagerAnswer)
        except TransportError:
            self.close()
            if fresh:
                raise
            return self._exchange(
                request
            )  # it was let go since the last request, or the manager is another one
        return answer

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def ask_manager(contact: Contact, request: FromClient) -> ManagerAnswer:
    """The manager's answer to one request; raises as :meth:`ManagerLine.ask` does."""
    line = ManagerLine(contact)
    try:
        return line.ask(request)
    finally:
        line.close()
