"""The cluster's page: served on this machine, to browsers that ask it by an address of this machine."""

from __future__ import annotations

import http.server
import threading
from typing import Any

_SLOW_S = 10.0


class PageServer:
    """Serves ``page`` at / and :attr:`state`, JSON, at /state; ``host`` is where it listens.

    Nothing can be changed through it. Requests that name another host are refused: a page from elsewhere
    that lets its own name point here reads nothing.
    """

    def __init__(self, host: str, port: int, page: bytes) -> None:
        self.state = b"{}"
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            timeout = _SLOW_S
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

        self._server = http.server.ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        bound = self._server.server_address[1]
        self.names = {f"{name}:{bound}" for name in (host, "127.0.0.1", "localhost")}
        self.url = f"http://{host}:{bound}/"
        threading.Thread(target=self._server.serve_forever, name="hocket-page", daemon=True).start()

    def close(self) -> None:
        """Serve no longer."""
        self._server.shutdown()
        self._server.server_close()
