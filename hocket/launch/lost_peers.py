"""Ends of ranks that have lost their connection with another rank: a status and a line, for the manager.

Such a rank has done nothing wrong. The network may have failed, or the other rank: that one's end says so.
Imports no torch.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from types import TracebackType

from hocket.errors import HocketError

LOST_PEER = os.EX_TEMPFAIL
"""The status of a rank that lost its connection with another one."""
PREFIX = "hocket: lost "
"""The beginning of the line that says with whom; a program that happens to have the status prints none."""

_ERRNOS = (
    errno.ECONNRESET,
    errno.ECONNABORTED,
    errno.EPIPE,
    errno.ETIMEDOUT,
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
    errno.ENETDOWN,
)
# Gloo has no errors of its own: of a connection that ended it says this, or what the system says.
_LOST = ("Connection closed by peer", *map(os.strerror, _ERRNOS))
_PEER = re.compile(r"\[([0-9a-f.:]+)\]:\d+")


class PeerLostError(HocketError):
    """A connection with another rank that was lost."""


def lost_connection(failure: str) -> str | None:
    """A line about the connection that was lost, by the text of gloo's failure; None if it is another one."""
    why = next((text for text in _LOST if text in failure), None)
    if why is None:
        return None
    peer = _PEER.search(failure)
    return f"lost its connection to {peer[1]}: {why}" if peer else f"lost a connection: {why}"


def print_lost(error: PeerLostError) -> None:
    """Print the line that goes with the status LOST_PEER."""
    said = str(error)
    line = said if said.startswith("lost ") else f"lost a connection: {said}"
    print(f"hocket: {line}", file=sys.stderr, flush=True)


def end_as_lost() -> None:
    """From now on a PeerLostError that ends this process ends it with the status LOST_PEER."""
    before = sys.excepthook

    def tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        before(kind, error, trace)
        if isinstance(error, PeerLostError):
            print_lost(error)
            raise SystemExit(LOST_PEER)  # the interpreter ends with the status that its hook asks for

    sys.excepthook = tell


def line_of(output: str) -> str | None:
    """The last line of a rank's ``output`` that begins with PREFIX, without "hocket: "; None without one."""
    lines = [line for line in output.splitlines() if line.startswith(PREFIX)]
    return lines[-1].removeprefix("hocket: ") if lines else None
