"""Server-sent events for those who follow a log, or what happens in a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from hocket.cluster.live.api.log_cursor import LogCursor
from hocket.cluster.live.manager_messages import AskEvents, AskLog, FromClient, ManagerAnswer
from hocket.errors import HocketError

_LOOK_EVERY_S = 0.5
_SIGN_EVERY_S = 15.0
_HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-store"}

Ask = Callable[[FromClient], Awaitable[ManagerAnswer]]


class _EventStream:
    """An answer of server-sent events; a comment now and then shows whether the client is there."""

    def __init__(self, request: web.Request) -> None:
        self.response = web.StreamResponse(headers=_HEADERS)
        self._request = request
        self._silent_s = 0.0

    async def open(self) -> None:
        """Say that it begins."""
        await self.response.prepare(self._request)

    async def send(self, event: str, data: Any, number: int | None = None) -> None:
        """Send an event, by its number if it has one."""
        self._silent_s = 0.0
        head = f"event: {event}\n" if number is None else f"event: {event}\nid: {number}\n"
        await self.response.write(head.encode() + b"data: " + msgspec.json.encode(data) + b"\n\n")

    async def wait(self) -> None:
        """Wait for what may come."""
        await asyncio.sleep(_LOOK_EVERY_S)
        self._silent_s += _LOOK_EVERY_S
        if self._silent_s >= _SIGN_EVERY_S:
            self._silent_s = 0.0
            await self.response.write(b": still here\n\n")


async def follow_log(request: web.Request, ask: Ask, message: AskLog) -> web.StreamResponse:
    """The parts of a rank's log as events ``log``, and ``end`` with the reason when nothing more comes."""
    cursor = LogCursor(message)
    stream = _EventStream(request)
    found = (await ask(cursor.request)).log  # before the stream begins: a refusal has a status of its own
    await stream.open()
    while True:
        assert found is not None
        what_next = cursor.take(found)
        if found.part.text or found.part.gap:
            await stream.send("log", found)
        if what_next == "over":
            await stream.send("end", {"reason": found.reason})
            return stream.response
        if what_next == "wait":
            await stream.wait()
        try:
            found = (await ask(cursor.request)).log
        except HocketError as error:  # its node does not answer
            await stream.send("end", {"reason": str(error)})
            return stream.response


async def follow_events(request: web.Request, ask: Ask, message: AskEvents) -> web.StreamResponse:
    """Events as they happen, each with its number; a client that comes again goes on behind its last."""
    last = request.headers.get("Last-Event-ID", "")
    after = int(last) if last.isdecimal() and len(last) < 19 else message.after
    stream = _EventStream(request)
    found = (await ask(AskEvents(after, message.job))).events  # before the stream begins, as of a log
    await stream.open()
    while True:
        for event in found or ():
            await stream.send("event", event, event.number)
            after = event.number
        if not found:
            await stream.wait()
        found = (await ask(AskEvents(after, message.job))).events
