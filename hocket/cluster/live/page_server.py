"""The cluster's page: served on this machine, to browsers that ask it by an address of this machine."""

from __future__ import annotations

import contextlib
import http.server
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from hocket.launch.capacity import Capacity

_MOST_REQUESTS = 64
_REQUEST_S = 10.0
_BUSY = b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\n\r\n"


class PageServer:
    """Serves ``page`` at / and :attr:`state`, JSON, at /state; ``host`` is where it listens.

    Nothing can be changed through it. Requests that name another host are refused: a page from elsewhere
    that lets its own name point here reads nothing. 64 are served at a time, and ended after ten seconds;
    others are told to come back, which ``note`` hears once, from another thread.
    """

    def __init__(self, host: str, port: int, page: bytes, note: Callable[[str], None]) -> None:
        self.state = b"{}"
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            server_version = "Hocket"
            sys_version = ""

            def do_GET(self) -> None:
                """Answer a request."""
                if self.headers.get("Host", "") not in outer.names:
                    self.send_error(403)
                elif self.path == "/":
                    self._give(page, "text/html; charset=utf-8")
                elif self.path == "/state":
                    self._give(outer.state, "application/json")
                else:
                    self.send_error(404)

            def _give(self, data: bytes, kind: str) -> None:
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.send_header("Cache-Control", "no-store")
                self.send_header("X-Content-Type-Options", "nosniff")
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Nothing is printed."""

        self._server = _BoundedHttpServer((host, port), Handler, note)
        bound = self._server.server_address[1]
        self.names = {f"{name}:{bound}" for name in (host, "127.0.0.1", "localhost")}
        self.url = f"http://{host}:{bound}/"
        threading.Thread(target=self._server.serve_forever, name="hocket-page", daemon=True).start()

    def close(self) -> None:
        """Serve no longer."""
        self._server.shutdown()
        self._server.server_close()


class _BoundedHttpServer(http.server.ThreadingHTTPServer):
    """A thread for each of so many requests, which has to be through with it in time."""

    daemon_threads = True
    request_queue_size = 2 * _MOST_REQUESTS

    def __init__(
        self,
        address: tuple[str, int],
        handler: type[http.server.BaseHTTPRequestHandler],
        note: Callable[[str], None],
    ) -> None:
        self._places = Capacity(_MOST_REQUESTS, "requests for the page at once", note)
        self._begun_s: dict[Any, float] = {}  # of each connection that is served
        self._lock = threading.Lock()  # its holder may end a connection
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a request in a thread of its own, if there is a place."""
        if not self._places.take():
            request.setblocking(False)
            with contextlib.suppress(OSError):  # it has gone, or has not come yet with what it asks
                request.send(_BUSY)
                request.recv(1 << 16)  # what is left unread would take our answer back
            self.shutdown_request(request)
            return
        with self._lock:
            self._begun_s[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """End a request's connection."""
        with self._lock:
            served = self._begun_s.pop(request, None) is not None
            super().shutdown_request(request)
        if served:
            self._places.leave()

    def service_actions(self) -> None:
        """Now and then: let those go that take too long; their threads see the end of the connection."""
        now_s = time.monotonic()
        with self._lock:
            for request, begun_s in self._begun_s.items():
                if now_s >= begun_s + _REQUEST_S:
                    with contextlib.suppress(OSError):
                        request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say what went wrong, unless a client has gone, or was let go."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)
