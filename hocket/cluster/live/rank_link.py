"""The manager's end of a connection with a rank."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from hocket.cluster.live.stream import Stream
from hocket.launch.control import framed
from hocket.launch.gate import GivenUp

_MOST_UNREAD = 1 << 20


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
