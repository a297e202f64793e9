"""A visit of an HTTP client: a transport of asyncio's over a stream of the manager's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from hocket.cluster.live.stream import Stream
from hocket.launch.capacity import Capacity

_PART_BYTES = 1 << 16
_MOST_UNSENT = 1 << 18


class HttpVisit(asyncio.Transport):
    """Brings what an HTTP client sends to aiohttp's protocol, and back; ``host``: the client's.

    ``places``: of known clients, of which :meth:`admit` takes one when the client has said the token.
    ``patience_s``: until an answer that is not taken ends the visit, which ``refuse`` is told.
    """

    def __init__(
        self,
        stream: Stream,
        host: str,
        places: Capacity,
        refuse: Callable[[str], None],
        patience_s: float,
    ) -> None:
        super().__init__()
        self.host = host
        self._stream, self._places, self._refuse = stream, places, refuse
        self._patience_s = patience_s
        self._protocol: asyncio.Protocol | None = None
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._known, self._ended = asyncio.Event(), asyncio.Event()
        self._finished = False
        self._reading: asyncio.Task[None] | None = None
        self._draining: asyncio.Task[None] | None = None
        self._last_call: asyncio.TimerHandle | None = None

    def begin(self, protocol: asyncio.Protocol) -> None:
        """Serve the client by ``protocol`` from now on."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._reading = asyncio.create_task(self._read())

    def admit(self) -> bool:
        """Let the client stay, who has said the token; False where there is no place."""
        if not self._known.is_set():
            if self._finished or not self._places.take():
                return False
            self._known.set()
        return True

    @property
    def full(self) -> str:
        """A message for those who find no place."""
        return self._places.full

    async def until_known(self) -> bool:
        """Wait until the client is admitted, or has gone; whether it was admitted."""
        waiting = [asyncio.ensure_future(event.wait()) for event in (self._known, self._ended)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()
        return self._known.is_set()

    async def until_ended(self) -> None:
        """Wait until the client has gone, or was let go."""
        await self._ended.wait()

    async def _read(self) -> None:
        assert self._protocol is not None
        try:
            while not self._ended.is_set():
                await self._may_read.wait()
                self._protocol.data_received(await self._stream.some(_PART_BYTES))
        except (OSError, EOFError):
            pass  # it has gone
        finally:
            self._end()

    def _end(self) -> None:
        if not self._ended.is_set():
            self._ended.set()
            assert self._protocol is not None
            self._protocol.connection_lost(None)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send ``data``, once it can be."""
        if self.is_closing():
            return
        try:
            self._stream.write(bytes(data))
        except OSError:  # of TLS
            self.abort()
            return
        if self._stream.unsent_bytes > _MOST_UNSENT and self._draining is None:
            assert self._protocol is not None
            self._protocol.pause_writing()
            self._draining = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        assert self._protocol is not None
        try:
            async with asyncio.timeout(self._patience_s):
                await self._stream.drain()
        except TimeoutError:
            self._refuse("does not take its answer")
            self.abort()
        except OSError:
            self._end()
        else:
            self._draining = None
            self._protocol.resume_writing()

    def pause_reading(self) -> None:
        """Read nothing until :meth:`resume_reading`."""
        self._may_read.clear()

    def resume_reading(self) -> None:
        """Read again."""
        self._may_read.set()

    def is_closing(self) -> bool:
        """Tell whether nothing more can be sent."""
        return self._ended.is_set() or self._stream.closes

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Say nothing of the connection but the host: aiohttp needs no more."""
        return (self.host, 0) if name == "peername" else default

    def close(self) -> None:
        """End the visit once everything is sent, and soon."""
        self._stream.close()
        if self._last_call is None:
            self._last_call = asyncio.get_running_loop().call_later(self._patience_s, self.abort)

    def abort(self) -> None:
        """End the visit now."""
        self._stream.abort()
        self._end()

    async def finish(self) -> None:
        """End what is left of it, and give its place back."""
        self.abort()
        if self._known.is_set() and not self._finished:
            self._places.leave()
        self._finished = True
        if self._last_call is not None:
            self._last_call.cancel()
        tasks = [task for task in (self._reading, self._draining) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
