"""The manager's HTTP API as an application of aiohttp's, for those who know the token; and the page's.

A request without the token is answered before anything of its body is read, and its connection is ended.
"""

from __future__ import annotations

import asyncio
import gzip
import hmac
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import cast

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from hocket.cluster.live.api.followers import follow_events, follow_log
from hocket.cluster.live.api.http_visit import HttpVisit
from hocket.cluster.live.api.openapi import description
from hocket.cluster.live.api.operations import (
    OPERATIONS,
    STATUS,
    SUBMIT,
    Operation,
    message_of,
)
from hocket.cluster.live.manager_messages import MOST_BYTES, AskEvents, AskLog, FromClient, ManagerAnswer
from hocket.errors import HocketError, UnknownNameError, one_line

IDLE_S = 20.0
_BODY_S = 60.0
_LINGER_S = 2.0
_SAFE = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Server": "Hocket"}

Serve = Callable[[FromClient], Awaitable[ManagerAnswer]]
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, kw_only=True)
class Backend:
    """The calls behind an API: ``serve`` answers a request or raises HocketError; ``metrics``: as text.

    ``token``: the one that clients have to say; ``refuse`` is told who did not, and why.
    """

    serve: Serve
    metrics: Callable[[], str]
    token: str
    refuse: Callable[[str], None]


def api_application(backend: Backend, page: bytes | None = None) -> web.Application:
    """The API, for those who know the token; with a ``page`` that is at / for everybody."""
    application = web.Application(
        client_max_size=MOST_BYTES, middlewares=[_answering(backend), _known(backend)]
    )
    for operation in OPERATIONS:
        application.router.add_route(operation.method, operation.path, _handler(operation, backend))
    described = msgspec.json.encode(description())

    async def openapi(_: web.Request) -> web.Response:
        return _json(described)

    async def metrics(_: web.Request) -> web.Response:
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return web.Response(body=backend.metrics().encode(), headers={**_SAFE, "Content-Type": kind})

    application.router.add_get("/openapi.json", openapi)
    application.router.add_get("/metrics", metrics)
    if page is not None:
        application.router.add_get("/", _page_handler(page))
    return application


def page_application(backend: Backend, page: bytes, names: Collection[str]) -> web.Application:
    """The page and the status that it shows, for everybody who asks by one of ``names``; nothing else."""

    @web.middleware
    async def named(request: web.Request, handler: _Handler) -> web.StreamResponse:
        if request.headers.get("Host", "") not in names:
            return _refused(403, f"this is {' or '.join(sorted(names))}; ask for it by that name")
        response = await handler(request)
        response.force_close()
        return response

    application = web.Application(middlewares=[named, _answering(backend)])
    application.router.add_get("/", _page_handler(page))
    application.router.add_get(STATUS.path, _handler(STATUS, backend))
    return application


def _answering(backend: Backend) -> Middleware:
    """The middleware that answers in JSON whatever there is to say."""

    @web.middleware
    async def answer(request: web.Request, handler: _Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except UnknownNameError as error:
            return _refused(404, str(error))
        except HocketError as error:
            return _refused(400, str(error))
        except web.HTTPRequestEntityTooLarge:
            return _refused(413, f"a body of more than {MOST_BYTES} bytes; submit fewer jobs at once")
        except web.HTTPException as error:
            return _refused(error.status, f"{request.method} {one_line(request.path)}: {error.reason}")
        except TimeoutError:
            return _refused(408, f"the body did not come within {_BODY_S:g} s")
        except ConnectionError:
            raise  # it has gone
        except Exception as error:  # a client is told, and so is the log: the others are served
            backend.refuse(f"{request.method} {request.path} failed: {type(error).__name__}: {error}")
            return _refused(500, f"the manager failed at it: {type(error).__name__}; its log says more")

    return answer


def _known(backend: Backend) -> Middleware:
    """The middleware that lets nobody in who does not know the token."""
    expected = f"Bearer {backend.token}".encode()

    @web.middleware
    async def known(request: web.Request, handler: _Handler) -> web.StreamResponse:
        visit = cast(HttpVisit, request.transport)
        said = request.headers.get("Authorization", "").encode(errors="replace")
        if not hmac.compare_digest(said, expected):
            if request.path == "/" and request.match_info.http_exception is None:
                response = await handler(request)
                response.force_close()
                return response
            backend.refuse(f"{visit.host} was refused: it does not know the token")
            return _refused(
                401,
                "the token is missing, or it is another cluster's; the header is Authorization: Bearer TOKEN,"
                " and the token is in the file 'token' of the manager's --state FOLDER",
                {"WWW-Authenticate": "Bearer"},
            )
        if not visit.admit():
            return _refused(503, visit.full, {"Retry-After": "1"})
        return await handler(request)

    return known


def _handler(operation: Operation, backend: Backend) -> _Handler:
    """The handler of an operation's requests."""

    async def handle(request: web.Request) -> web.StreamResponse:
        message = await _message(operation, request)
        if operation.follows and isinstance(message, AskLog):
            return await follow_log(request, backend.serve, message)
        if operation.follows and isinstance(message, AskEvents):
            return await follow_events(request, backend.serve, message)
        return _json(msgspec.json.encode(await backend.serve(message)))

    return handle


async def _message(operation: Operation, request: web.Request) -> FromClient:
    if (request.content_length or 0) > MOST_BYTES:
        raise web.HTTPRequestEntityTooLarge(MOST_BYTES, request.content_length or 0)
    async with asyncio.timeout(_BODY_S):
        body = await request.read()
    if operation is SUBMIT:  # steps and plans are files
        return await asyncio.to_thread(message_of, operation, request.match_info, request.query, body)
    return message_of(operation, request.match_info, request.query, body)


def _page_handler(page: bytes) -> _Handler:
    packed = gzip.compress(page)

    async def give(request: web.Request) -> web.Response:
        headers = {**_SAFE, "Content-Type": "text/html; charset=utf-8", "Vary": "Accept-Encoding"}
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            return web.Response(body=packed, headers={**headers, "Content-Encoding": "gzip"})
        return web.Response(body=page, headers=headers)

    return give


def _json(data: bytes, status: int = 200) -> web.Response:
    headers = {**_SAFE, "Content-Type": "application/json"}
    return web.Response(body=data + b"\n", status=status, headers=headers)


def _refused(status: int, why: str, headers: dict[str, str] | None = None) -> web.Response:
    """An answer that says why not; who has not said the token is let go with it."""
    response = _json(msgspec.json.encode(ManagerAnswer(refused=one_line(why))), status)
    response.headers.update(headers or {})
    if status in (401, 403, 408, 413, 503):
        response.force_close()
    return response


class _NotedLog(logging.Handler):
    """A log of aiohttp's, of which one is told a line a message, however much there is to each."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__()
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        """Tell it."""
        error = record.exc_info[1] if record.exc_info else None
        kind = "" if error is None else f": {type(error).__name__}"
        self._tell(f"{record.getMessage()}{kind}")


class HttpService:
    """An application that is served: :meth:`protocol` for each connection, once it has begun.

    ``note`` is told what went wrong below the application: of requests that are no HTTP.
    """

    def __init__(self, application: web.Application, note: Callable[[str], None]) -> None:
        logger = logging.Logger("hocket.http")  # nobody's child: strangers fill no log of this process
        logger.addHandler(_NotedLog(note))
        self._runner = web.AppRunner(
            application,
            access_log=None,
            logger=logger,
            handle_signals=False,
            handler_cancellation=True,
            keepalive_timeout=IDLE_S,
            lingering_time=_LINGER_S,
            tcp_keepalive=False,
            auto_decompress=False,
            shutdown_timeout=0.0,
        )

    async def begin(self) -> None:
        """Begin."""
        await self._runner.setup()

    def protocol(self) -> asyncio.Protocol:
        """The protocol of one more connection."""
        assert self._runner.server is not None
        return self._runner.server()

    async def end(self) -> None:
        """Serve no longer."""
        await self._runner.cleanup()
