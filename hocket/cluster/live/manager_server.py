"""The manager's server for ranks and commands: one loop, messages of bounded size, nobody makes others wait.

A client that connects has some seconds to agree on TLS, by the cluster's certificate, and to prove that it
knows a token: the cluster's for commands, its attempt's for a rank. This machine's ranks come by a socket
that only this user can open. After that a message that has begun has to end as soon, and a client that does
not take our answers is let go.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from hocket.cluster.live.listeners import listening
from hocket.cluster.live.manager_messages import MOST_BYTES as MOST_OF_CLIENT
from hocket.cluster.live.manager_messages import FromClient, ManagerAnswer
from hocket.cluster.live.stream import Stream
from hocket.errors import HocketError
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
from hocket.launch.gate import GIVEN_UP, MOST_BYTES, FromRank, GivenUp, Join
from hocket.launch.tls import Identity, server_context

_MOST_STRANGERS = 256
_MOST_CLIENTS = 256
_RANKS_PER_OTHER = 15  # where few files may be open, strangers and commands get fewer places, too
_FILES = "ranks connected, as many as the files that may be open here (ulimit -Hn) allow"
_MOST_UNREAD = 1 << 20
_GOODBYE_S = 1.0
_SHORT_S = 0.1


class RefusedError(Exception):
    """A guest is sent away for this reason; an empty one where it was said already."""


_GuestStream = tuple[Guest, Stream]


class RankLink:
    """A connection with a rank."""

    def __init__(self, attempt: str, rank: int, stream: Stream, refuse: Callable[[str], None]) -> None:
        self.attempt, self.rank = attempt, rank
        self._stream, self._refuse = stream, refuse

    def send(self, message: msgspec.Struct) -> None:
        """Send one message; a rank that does not take them is let go."""
        if self._stream.closes:
            return
        self._stream.write(framed(message))
        if self._stream.unsent_bytes > _MOST_UNREAD:
            self._refuse("does not take what it is told")
            self.close()

    def give_up(self) -> None:
        """Tell it that its attempt was given up, and let it go."""
        if not self._stream.closes:
            self._stream.write(framed(GivenUp()))
            self._stream.close()

    def close(self) -> None:
        """Let it go."""
        self._stream.abort()


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
    """Serves at a TCP address, and at a socket in the file system for this machine's ranks.

    ``identity``: the cluster's; ``serve`` answers commands, or raises HocketError; ``note`` is told what
    there is for the log, however often it is the same; ``most_ranks``: how many can be connected at a time.
    """

    def __init__(
        self,
        identity: Identity,
        ranks: RankHandler,
        serve: Callable[[FromClient], Awaitable[ManagerAnswer]],
        note: Callable[[str], None],
        most_ranks: int,
    ) -> None:
        self._ranks, self._serve, self._note = ranks, serve, note
        self._context = server_context(identity)
        self._listening: tuple[socket.socket, ...] = ()
        self._accepting: list[asyncio.Task[None]] = []
        others = max(1, most_ranks // _RANKS_PER_OTHER)
        # Strangers elsewhere take no place from this machine's ranks.
        unknown = "connections that have yet to say who they are"
        strangers = min(_MOST_STRANGERS, others)
        self._strangers, self._neighbours = (Capacity(strangers, unknown, note) for _ in range(2))
        self._clients = Capacity(min(_MOST_CLIENTS, others), "commands that are being answered", note)
        # Ranks for which there is no place go ahead and say so.
        self._rank_places = Capacity(most_ranks, _FILES, note)
        self._serving: set[asyncio.Task[None]] = set()

    async def open(self, host: str, port: int, path: str) -> str:
        """Listen; the TCP address. Raises HocketError where that is not possible."""
        self._listening = tcp, local = listening(host, port, Path(path))
        for each, strangers in ((tcp, self._strangers), (local, self._neighbours)):
            self._accepting.append(asyncio.create_task(self._accept(each, strangers)))
        bound = tcp.getsockname()
        return f"{bound[0]}:{bound[1]}"

    async def close(self) -> None:
        """Listen no longer, and let everybody go."""
        tasks = [*self._accepting, *self._serving]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for each in self._listening:
            each.close()

    async def _accept(self, listener: socket.socket, strangers: Capacity) -> None:
        """Give each client a place and a task; without a free place it is sent away at once."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(0)  # to accept one that waits already would let nobody else run
            try:
                connected, address = await loop.sock_accept(listener)
            except ConnectionError:
                continue  # the caller has gone already
            except OSError:  # a firewall, or too few files: the next one may come
                await asyncio.sleep(_SHORT_S)
                continue
            if not strangers.take():
                connected.close()
                continue
            host = str(address[0]) if address else "this machine"  # no port: each connection has another one
            task = asyncio.create_task(self._serve_guest(strangers, connected, host))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)

    async def _serve_guest(self, strangers: Capacity, connection: socket.socket, host: str) -> None:
        try:
            guest, stream = await self._admit_guest(strangers, connection)
        except RefusedError as error:
            if str(error):
                self._note(f"{host} was refused: {error}")
            return
        except (OSError, EOFError, asyncio.CancelledError):
            return  # it has gone, or we do
        finally:
            strangers.leave()
        try:
            if guest.role == "rank":
                await self._serve_rank(guest, stream, host)
            else:
                await self._serve_client(stream)
        except RefusedError as error:
            self._note(f"{host} was refused: {error}")
        except (OSError, EOFError, asyncio.CancelledError):
            pass  # it has gone, or we do
        finally:
            self._places_of(guest).leave()
            stream.abort()

    async def _admit_guest(self, strangers: Capacity, connection: socket.socket) -> _GuestStream:
        """Meet the client that has connected; nothing of it is left where that raises."""
        stream: Stream | None = None
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                stream = await Stream.of(connection)
                if connection.family != socket.AF_UNIX:
                    await stream.secure(self._context)
                return await self._greet(stream), stream
        except BaseException as error:
            if stream is None:
                connection.close()
            else:
                stream.abort()
            if isinstance(error, TimeoutError):
                raise RefusedError(f"did not say who it is within {HANDSHAKE_S:g} s") from None
            if isinstance(error, TransportError):
                raise RefusedError(str(error)) from None
            raise

    async def _greet(self, stream: Stream) -> Guest:
        """The handshake of :func:`hocket.launch.control.accept`; the guest has a place then."""
        hello: Hello = await _message(stream, Hello, LONGEST_HELLO)
        guest = Guest(hello.role, hello.index, hello.address)
        check_token(hello, self._ranks.token_of(guest))
        if guest.role == "rank" and not self._ranks.is_current(guest.address, guest.index):
            await _send_away(stream, GIVEN_UP)
            raise RefusedError(f"rank {guest.index} of attempt {guest.address}: {GIVEN_UP}")
        places = self._places_of(guest)
        if not places.take():
            await _send_away(stream, places.full)
            raise RefusedError
        stream.write(framed(Welcome("")))
        return guest

    def _places_of(self, guest: Guest) -> Capacity:
        return self._rank_places if guest.role == "rank" else self._clients

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

    async def _serve_client(self, stream: Stream) -> None:
        while True:
            request: FromClient = await _message(stream, FromClient, MOST_OF_CLIENT, 4 * HANDSHAKE_S)
            try:
                answer = await self._serve(request)
            except HocketError as error:
                answer = ManagerAnswer(refused=str(error))
            stream.write(framed(answer))
            try:
                async with asyncio.timeout(4 * HANDSHAKE_S):
                    await stream.drain()
            except TimeoutError:
                raise RefusedError("does not take its answer") from None


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
