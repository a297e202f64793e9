"""A cluster's page that is served as a manager does, of a status that a test gives."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hocket.cluster.live.api.application import Backend, HttpService, api_application
from hocket.cluster.live.api.page_door import PageDoor, page_door
from hocket.cluster.live.manager_messages import FromClient, ManagerAnswer, Status
from hocket.cluster.live.manager_server import ManagerServer
from tests.tokens import CREDENTIALS


class ServedPage:
    """A page at :attr:`url`; ``status``: what it shows; ``said``: lines for the log."""

    token = CREDENTIALS.without_key.text

    def __init__(self, page: bytes, host: str) -> None:
        self.status: Status | None = None
        self.said: list[str] = []
        self._loop = asyncio.new_event_loop()
        self.backend = Backend(serve=self._serve, metrics=str, token=self.token, refuse=self.said.append)
        self.door: PageDoor = page_door(host, 0, page, self.backend)
        self.url = self.door.url
        ranks: Any = None
        http = HttpService(api_application(self.backend), self.said.append)
        self.server = ManagerServer(CREDENTIALS.served, ranks, http, self.said.append, 10_000)
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._do(self.server.open_page(self.door.listener, self.door.service, is_tls=self.door.is_open))

    async def _serve(self, _: FromClient) -> ManagerAnswer:
        return ManagerAnswer(status=self.status)

    def _do(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    def close(self) -> None:
        """Serve no longer."""
        if not self._loop.is_closed():
            self._do(self.server.close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(20)
            self._loop.close()


@contextmanager
def page_served(page: bytes, host: str = "127.0.0.1") -> Iterator[ServedPage]:
    """The page, until the block ends."""
    served = ServedPage(page, host)
    try:
        yield served
    finally:
        served.close()
