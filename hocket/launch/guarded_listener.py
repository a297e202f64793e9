"""A listening socket with a thread for each caller whom nobody knows yet, and a bound on how many those are.

A guest that finds no place is sent away, and comes again. Strangers' doings are logged once a minute.
"""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable

from hocket.launch.capacity import Capacity
from hocket.launch.control import Connection, Guest, TransportError, accept
from hocket.launch.credentials import Credentials
from hocket.launch.open_files import allow_all, most_strangers
from hocket.launch.rate_limited_log import RateLimitedLog

_SHORT_S = 0.1
_TELL_EVERY_S = 1.0
_CLOSED = (errno.EBADF, errno.EINVAL, errno.ENOTSOCK)

Placed = Callable[[Guest, Connection], Callable[[], None] | None]
"""Takes a guest in, or raises TransportError; what it returns runs in the guest's thread, without a place."""


class GuardedListener:
    """Lets in at ``listener`` callers with the secret, and hands them to ``placed``; ``note``: for the log.

    HocketError for ``credentials`` without a private key.
    """

    def __init__(
        self,
        listener: socket.socket,
        credentials: Credentials,
        placed: Placed,
        note: Callable[[str], None],
    ) -> None:
        _ = credentials.served
        self._listener, self._credentials, self._placed = listener, credentials, placed
        self._note = RateLimitedLog(note)
        strangers = most_strangers(allow_all())
        self._strangers = Capacity(strangers, "connections that have yet to say who they are", self._note)

    def run(self) -> None:
        """Accept until the socket is shut down, or closed."""
        try:
            self._listener.settimeout(_TELL_EVERY_S)
            while True:
                self._note.tell()
                try:
                    connected, address = self._listener.accept()
                except (ConnectionError, TimeoutError):
                    continue  # the caller has gone already, or there was none
                except OSError as error:
                    if error.errno in _CLOSED:
                        return
                    # A firewall, or too few files: the next one may come.
                    time.sleep(_SHORT_S)
                    continue
                self._begin(connected, str(address[0]))
        except OSError:
            pass  # it was closed before
        finally:
            self._note.tell(ends=True)

    def _begin(self, connected: socket.socket, host: str) -> None:
        if not self._strangers.take():
            connected.close()
            return
        try:
            greeting = threading.Thread(
                target=self._greet, args=[connected, host], name="hocket-greet", daemon=True
            )
            greeting.start()
        except RuntimeError:  # short of threads
            self._strangers.leave()
            connected.close()
            time.sleep(_SHORT_S)

    def _greet(self, connected: socket.socket, host: str) -> None:
        try:
            goes_on = self._admitted(connected, host)
        finally:
            self._strangers.leave()
        if goes_on is not None:
            goes_on()

    def _admitted(self, connected: socket.socket, host: str) -> Callable[[], None] | None:
        try:
            connection = Connection(connected)
        except OSError:  # it has gone
            connected.close()
            return None
        try:
            return self._placed(accept(connection, self._credentials), connection)
        except TransportError as error:
            self._note(f"{host} was refused: {error}")
            connection.close()
            return None
