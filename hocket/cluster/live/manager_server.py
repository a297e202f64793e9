"""The manager's server for ranks and HTTP clients: one loop, bounded messages, nobody makes others wait.

A client that connects has some seconds to agree on TLS, by the cluster's certificate, and to prove that it
knows a token: the cluster's for HTTP, its attempt's for a rank. The first bytes tell the two apart: those of
HTTP would be the length of a message that nobody takes. This machine's ranks come by a socket that only this
user can open. After that a message that has begun has to end as soon, and a client that does not take our
answers is let go.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from hocket.cluster.live.api.application import HttpService
from hocket.cluster.live.api.http_visit import HttpVisit
from hocket.cluster.live.listeners import listening
from hocket.cluster.live.rank_link import RankLink
from hocket.cluster.live.stream import Stream
from hocket.launch.capacity import Capacity
from hocket.launch.control import (
    HANDSHAKE_S,
    LENGTH,
    LONGEST_HELLO,
    Guest,
    Hello,
    TransportError,
    Welcome,
    check_token,
    decoded,
    framed,
)
from hocket.launch.gate import GIVEN_UP, MOST_BYTES, FromRank, Join
from hocket.launch.tls import Identity, server_context

_MOST_STRANGERS = 256
_MOST_CLIENTS = 256
_MOST_READERS = 64
_READER_S = 10.0  # the page is some hundred kilobytes
_PATIENCE_S = 4 * HANDSHAKE_S
_HTTP = {b"GET ", b"HEAD", b"POST", b"PUT ", b"PATC", b"DELE", b"OPTI"}
_RANKS_PER_OTHER = 15  # where few files may be open, strangers and commands get fewer places, too
_FILES = "ranks connected, as many as the files that may be open here (ulimit -Hn) allow"
_GOODBYE_S = 1.0
_SHORT_S = 0.1


class RefusedError(Exception):
    """A guest is sent away for this reason; an empty one where it was said already."""


@dataclass(frozen=True, kw_only=True)
class _Door:
    """A socket that is listened at; ``strangers``: places of those that have yet to say who they are.

    ``http`` serves HTTP; ``within_s``: of time to say who one is; ``ranks``: they are let in, too.
    """

    listener: socket.socket
    strangers: Capacity
    http: HttpService
    within_s: float
    is_tls: bool
    ranks: bool


class RankHandler(Protocol):
    """Calls of the server about ranks; never from two places at once."""

    def token_of(self, guest: Guest) -> str:
        """The token that the guest has to know."""
        ...

    def is_current(self, attempt: str, rank: int) -> bool:
        """True if the rank takes part."""
        ...

    def add_rank(self, link: RankLink, message: Join) -> None:
        """A rank has come."""
        ...

    def handle_message(self, link: RankLink, message: FromRank) -> None:
        """A rank says something."""
        ...

    def remove_rank(self, link: RankLink) -> None:
        """A rank has gone."""
        ...


class ManagerServer:
    """Serves at a TCP address, at a socket in the file system for this machine's ranks, and at the page's.

    ``identity``: the cluster's; ``http`` serves HTTP clients; ``note`` is told what there is for the log,
    however often it is the same; ``most_ranks``: how many can be connected at a time.
    """

    def __init__(
        self,
        identity: Identity,
        ranks: RankHandler,
        http: HttpService,
        note: Callable[[str], None],
        most_ranks: int,
    ) -> None:
        self._ranks, self._http, self._note = ranks, http, note
        self._context = server_context(identity)
        self._doors: list[_Door] = []
        self._accepting: list[asyncio.Task[None]] = []
        others = max(1, most_ranks // _RANKS_PER_OTHER)
        # Strangers elsewhere take no place from this machine's ranks.
        unknown = "connections that have yet to say who they are"
        strangers = min(_MOST_STRANGERS, others)
        self._strangers, self._neighbours = (Capacity(strangers, unknown, note) for _ in range(2))
        self._readers = Capacity(min(_MOST_READERS, others), "requests for the page at once", note)
        self._clients = Capacity(min(_MOST_CLIENTS, others), "commands that are being answered", note)
        # Ranks for which there is no place go ahead and say so.
        self._rank_places = Capacity(most_ranks, _FILES, note)
        self._serving: set[asyncio.Task[None]] = set()

    async def open(self, host: str, port: int, path: str) -> str:
        """Listen; the TCP address. Raises HocketError where that is not possible."""
        tcp, local = listening(host, port, Path(path))
        for listener, strangers in ((tcp, self._strangers), (local, self._neighbours)):
            door = _Door(
                listener=listener,
                strangers=strangers,
                http=self._http,
                within_s=HANDSHAKE_S,
                is_tls=listener is tcp,
                ranks=True,
            )
            await self._open(door)
        bound = tcp.getsockname()
        return f"{bound[0]}:{bound[1]}"

    async def open_page(self, listener: socket.socket, http: HttpService, *, is_tls: bool) -> None:
        """Serve HTTP alone at one more socket, which is listened at."""
        await self._open(
            _Door(
                listener=listener,
                strangers=self._readers,
                http=http,
                within_s=_READER_S,
                is_tls=is_tls,
                ranks=False,
            )
        )

    async def _open(self, door: _Door) -> None:
        await door.http.begin()
        self._doors.append(door)
        self._accepting.append(asyncio.create_task(self._accept(door)))

    async def close(self) -> None:
        """Listen no longer, and let everybody go."""
        tasks = [*self._accepting, *self._serving]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for door in self._doors:
            door.listener.close()
            await door.http.end()

    async def _accept(self, door: _Door) -> None:
        """Give each client a place and a task; without a free place it is sent away at once."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(0)  # to accept one that waits already would let nobody else run
            try:
                connected, address = await loop.sock_accept(door.listener)
            except ConnectionError:
                continue  # the caller has gone already
            except OSError:  # a firewall, or too few files: the next one may come
                await asyncio.sleep(_SHORT_S)
                continue
            if not door.strangers.take():
                connected.close()
                continue
            host = str(address[0]) if address else "this machine"  # no port: each connection has another one
            task = asyncio.create_task(self._serve_guest(door, connected, host))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)

    async def _serve_guest(self, door: _Door, connection: socket.socket, host: str) -> None:
        try:
            found = await self._admit_guest(door, connection, host)
        except RefusedError as error:
            if str(error):
                self._note(f"{host} was refused: {error}")
            return
        except (OSError, EOFError, asyncio.CancelledError):
            return  # it has gone, or we do
        finally:
            door.strangers.leave()
        if isinstance(found, HttpVisit):
            try:
                await found.until_ended()
            finally:
                await found.finish()
            return
        guest, stream = found
        try:
            await self._serve_rank(guest, stream, host)
        except RefusedError as error:
            self._note(f"{host} was refused: {error}")
        except (OSError, EOFError, asyncio.CancelledError):
            pass  # it has gone, or we do
        finally:
            self._rank_places.leave()
            stream.abort()

    async def _admit_guest(
        self, door: _Door, connection: socket.socket, host: str
    ) -> HttpVisit | tuple[Guest, Stream]:
        """Meet the client that has connected; nothing of it is left where that raises."""
        stream: Stream | None = None
        try:
            async with asyncio.timeout(door.within_s):
                stream = await Stream.of(connection)
                if door.is_tls:
                    await stream.secure(self._context)
                if not door.ranks or await stream.peek(LENGTH.size) in _HTTP:
                    return await self._visit(door, stream, host)
                return await self._greet(stream), stream
        except BaseException as error:
            if stream is None:
                connection.close()
            else:
                stream.abort()
            if isinstance(error, TimeoutError):
                raise RefusedError(f"did not say who it is within {door.within_s:g} s") from None
            if isinstance(error, TransportError):
                raise RefusedError(str(error)) from None
            raise

    async def _visit(self, door: _Door, stream: Stream, host: str) -> HttpVisit:
        """The visit of an HTTP client that knows the token and has a place; EOFError when others end."""
        visit = HttpVisit(
            stream, host, self._clients, lambda why: self._note(f"{host} was refused: {why}"), _PATIENCE_S
        )
        known = False
        try:
            visit.begin(door.http.protocol())
            known = await visit.until_known()
        finally:
            if not known:
                await visit.finish()
        if not known:
            raise EOFError
        return visit

    async def _greet(self, stream: Stream) -> Guest:
        """The handshake of :func:`hocket.launch.control.accept`; the guest has a place then."""
        hello: Hello = await _message(stream, Hello, LONGEST_HELLO)
        guest = Guest(hello.role, hello.index, hello.address)
        check_token(hello, self._ranks.token_of(guest))
        if not self._ranks.is_current(guest.address, guest.index):
            await _send_away(stream, GIVEN_UP)
            raise RefusedError(f"rank {guest.index} of attempt {guest.address}: {GIVEN_UP}")
        if not self._rank_places.take():
            await _send_away(stream, self._rank_places.full)
            raise RefusedError
        stream.write(framed(Welcome("")))
        return guest

    async def _serve_rank(self, guest: Guest, stream: Stream, host: str) -> None:
        link = RankLink(
            guest.address, guest.index, stream, lambda why: self._note(f"{host} was refused: {why}")
        )
        join: Join = await _message(stream, Join, MOST_BYTES, HANDSHAKE_S)
        if not self._ranks.is_current(link.attempt, link.rank):
            return
        self._ranks.add_rank(link, join)
        try:
            while True:
                self._ranks.handle_message(link, await _message(stream, FromRank, MOST_BYTES))
        finally:
            self._ranks.remove_rank(link)


async def _send_away(stream: Stream, why: str) -> None:
    """Tell a guest why it may not stay; it leaves when it has read that."""
    stream.write(framed(Welcome(why)))
    with contextlib.suppress(OSError, EOFError):
        async with asyncio.timeout(_GOODBYE_S):
            await stream.drain()
            await stream.exactly(1)


async def _message(stream: Stream, type_: Any, longest: int, begins_within_s: float | None = None) -> Any:
    """The next message, which has to end soon once it has begun; RefusedError for what is none."""
    try:
        async with asyncio.timeout(begins_within_s):
            head = await stream.exactly(1)
        async with asyncio.timeout(HANDSHAKE_S):
            head += await stream.exactly(LENGTH.size - 1)
            (length,) = LENGTH.unpack(head)
            if length > longest:
                raise RefusedError(f"a message of {length} bytes; at most {longest} are taken")
            data = await stream.exactly(length)
    except TimeoutError:
        raise RefusedError("it is too slow") from None
    try:
        return decoded(data, type_)
    except TransportError as error:
        raise RefusedError(str(error)) from None
