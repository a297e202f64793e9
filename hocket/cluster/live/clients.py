"""Commands' way to a cluster's manager: a file in the cluster's folder says where it is, and the token."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import msgspec

from hocket.cluster.live.messages import MOST_BYTES, Answer, FromClient
from hocket.document import convert_document, read_document
from hocket.errors import HocketError
from hocket.launch.control import Guest, NobodyError, TransportError, connect

ADDRESS_VARIABLE = "HOCKET_CLUSTER"
TOKEN_VARIABLE = "HOCKET_CLUSTER_TOKEN"

_CONNECT_S = 12.0  # a busy manager is asked again when it has not answered in time
_ANSWER_S = 60.0


class Contact(msgspec.Struct, frozen=True, kw_only=True):
    """Where a manager is and what commands have to know; ``page``: where browsers find it, "" for nowhere."""

    address: str
    token: str
    page: str = ""


def token_of(folder: Path) -> str:
    """The token of the cluster in ``folder``, made where there is none; nobody else can read its file."""
    path = folder / "token"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
    except FileExistsError:
        pass
    if folder.stat().st_mode & 0o022:
        raise HocketError(f"{folder}: others can write there, jobs too; chmod go-w it")
    if path.stat().st_mode & 0o077:
        raise HocketError(f"{path}: others can read the cluster's token; chmod 600 it, after changing it")
    token = path.read_text().strip()
    if len(token) < 16:
        raise HocketError(
            f"{path}: a token of {len(token)} characters can be guessed; remove it for another one"
        )
    return token


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
        return Contact(address=address, token=token)
    path = folder / "contact.json"
    if not path.exists():
        raise HocketError(
            f"{folder}: no manager was started there; start one: hocket cluster serve --state {folder}"
        )
    return convert_document(read_document(path), Contact, str(path))


def asked(contact: Contact, request: FromClient) -> Answer:
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
        connection = connect(contact.address, contact.token, Guest("client", 0, ""), _CONNECT_S)
        try:
            connection.set_timeout(_ANSWER_S)
            connection.send(request)
            answer: Answer = connection.receive(Answer)
        finally:
            connection.close()
    except NobodyError as error:
        raise HocketError(
            f"the cluster's manager: {error}; start it again (hocket cluster serve): it goes on with its jobs"
        ) from None
    except TransportError as error:
        raise HocketError(f"the cluster's manager at {contact.address}: {error}") from None
    if answer.refused:
        raise HocketError(answer.refused)
    return answer
