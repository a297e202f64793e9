"""A connection of the manager's loop: bytes within TLS, or as they are on a socket in the file system.

asyncio's own TLS keeps a buffer of 256 KiB for each connection, and its ``drain`` does not wait for what has
been encrypted.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl

from hocket.launch.control import TransportError, check_user, no_tls

_PART_BYTES = 1 << 16


class Stream:
    """Bytes read and written, by one task each; EOFError at the other side's end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._tls: ssl.SSLObject | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ahead = b""

    @classmethod
    async def of(cls, connection: socket.socket) -> Stream:
        """The stream of a connection that was accepted; :class:`TransportError` for another user's."""
        if connection.family == socket.AF_UNIX:
            check_user(connection)
        else:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, connection)
        return cls(reader, asyncio.StreamWriter(transport, protocol, reader, loop))

    async def secure(self, context: ssl.SSLContext) -> None:
        """Go on within TLS; :class:`TransportError` where the other side does not."""
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                await self._read_part()
            except ssl.SSLError as error:
                self._flush()  # it is told what was wrong
                raise TransportError(no_tls(error)) from None
            else:
                self._flush()
                return

    async def exactly(self, count: int) -> bytes:
        """So many bytes."""
        found = bytearray()
        while len(found) < count:
            found += await self.some(count - len(found))
        return bytes(found)

    async def peek(self, count: int) -> bytes:
        """The first so many bytes, which are read again."""
        self._ahead = await self.exactly(count)
        return self._ahead

    async def some(self, most: int) -> bytes:
        """The bytes that have come, at least one and at most so many."""
        if self._ahead:
            found, self._ahead = self._ahead[:most], self._ahead[most:]
            return found
        while self._tls is not None:
            try:
                if found := self._tls.read(most):
                    return found
                raise EOFError
            except ssl.SSLWantReadError:
                await self._read_part()
            except ssl.SSLZeroReturnError:
                raise EOFError from None
        if not (found := await self._reader.read(most)):
            raise EOFError
        return found

    async def _read_part(self) -> None:
        data = await self._reader.read(_PART_BYTES)
        if not data:
            raise EOFError
        self._incoming.write(data)

    def write(self, data: bytes) -> None:
        """Send ``data``, once it can be."""
        if self._tls is None:
            self._writer.write(data)
            return
        left = memoryview(data)
        while left:
            left = left[self._tls.write(left) :]
            self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._writer.write(self._outgoing.read())

    async def drain(self) -> None:
        """Until not much is left to be sent."""
        await self._writer.drain()

    @property
    def unsent_bytes(self) -> int:
        """The bytes that are left to be sent."""
        return self._writer.transport.get_write_buffer_size()

    @property
    def closes(self) -> bool:
        """Tell whether nothing more can be sent."""
        return self._writer.is_closing()

    def close(self) -> None:
        """End it once everything is sent, and say so within TLS."""
        if self._tls is not None and not self.closes:
            with contextlib.suppress(ssl.SSLError):  # the other side says so later, or never
                self._tls.unwrap()
            self._flush()
        self._writer.close()

    def abort(self) -> None:
        """End it now."""
        self._writer.transport.abort()
