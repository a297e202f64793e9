"""Sockets that a cluster's manager listens at, and the streams of whoever connects there."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import stat
from pathlib import Path
from typing import Any

from hocket.errors import HocketError
from hocket.launch.control import HANDSHAKE_S, TransportError, check_user, no_tls

_BACKLOG = 256  # as many are accepted before the first of them is looked at
_GOODBYE_S = 1.0


def listening(host: str, port: int, path: Path) -> tuple[socket.socket, socket.socket]:
    """A socket at ``host`` and ``port``, and one at ``path``; HocketError where that is not possible."""
    try:
        tcp = _tcp_socket(host, port)
        try:
            return tcp, _unix_socket(path)
        except BaseException:
            tcp.close()
            raise
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise HocketError(f"cannot listen at {host}:{port}: {reason}") from None


async def streams(
    connected: socket.socket, context: ssl.SSLContext
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The streams of a connection, within TLS of ``context``; in the file system as it is.

    Raises
    ------
    TransportError
        For another user's, and for what is no TLS.
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    timeouts: dict[str, Any] = {}
    try:
        if connected.family == socket.AF_UNIX:
            check_user(connected)
        else:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Whoever calls has a shorter timeout of its own.
            timeouts = {"ssl": context, "ssl_handshake_timeout": 4 * HANDSHAKE_S}
            timeouts["ssl_shutdown_timeout"] = _GOODBYE_S
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, connected, **timeouts)
    except ssl.SSLError as error:
        raise TransportError(no_tls(error)) from None
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


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
        path.chmod(0o600)  # before anybody can connect
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening
