"""Sockets that a cluster's manager listens at."""

from __future__ import annotations

import contextlib
import socket
import stat
from pathlib import Path

from hocket.errors import HocketError

_BACKLOG = 256  # as many are accepted before the first of them is looked at


def listening(host: str, port: int, path: Path) -> tuple[socket.socket, socket.socket]:
    """A socket at ``host`` and ``port``, and one at ``path``; HocketError where that is not possible."""
    tcp = tcp_listener(host, port)
    try:
        return tcp, _unix_socket(path)
    except BaseException as error:
        tcp.close()
        if isinstance(error, OSError):
            raise HocketError(f"cannot listen at {path}: {error.strerror or error}") from None
        raise


def tcp_listener(host: str, port: int) -> socket.socket:
    """A socket at ``host`` and ``port``; HocketError where that is not possible."""
    try:
        return _tcp_socket(host, port)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise HocketError(f"cannot listen at {host}:{port}: {reason}") from None


def _tcp_socket(host: str, port: int) -> socket.socket:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, *_, address = found[0]
    listening = socket.create_server(address, family=family, backlog=_BACKLOG)
    listening.setblocking(False)
    return listening


def _unix_socket(path: Path) -> socket.socket:
    """A socket that this user alone can connect to; what an ended manager left there is replaced."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.setblocking(False)
        listening.bind(str(path))
        path.chmod(0o600)  # before a connection can be made
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening
