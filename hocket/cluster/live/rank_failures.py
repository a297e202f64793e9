"""Failures of ranks: what a rank's end says about its cause, and the line that names it."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import signal

from hocket.cluster.live.nodes import Node, NodeError
from hocket.launch.guard import NOT_STARTED, PREFIX
from hocket.launch.lost_peers import LOST_PEER, line_of
from hocket.launch.rank_processes import LOST

_OUTPUT_S = 2.0  # what is asked beside the watch, which waits for it
_SHELL = 128


class Cause(enum.IntEnum):
    """A cause that a rank's end shows; where ranks of an attempt show several, the greatest is the first one.

    A rank that failed or was killed takes its peers' connections with it, and one that was killed may make
    its peers fail.
    """

    LOST_PEER = 1
    OWN = 2
    KILLED = 3


def greatest_cause(status: int) -> Cause:
    """The greatest cause that a rank's ``status``, other than 0, may show."""
    return Cause.OWN if status != LOST and signal_of(status) is None else Cause.KILLED


async def failure_of(rank: int, node: Node, key: str, status: int) -> tuple[Cause, str]:
    """The cause of the end of a rank of ``node`` with a ``status`` other than 0, and a line that names it."""
    place, output = f"rank {rank} on {node.name}", ""
    with contextlib.suppress(NodeError, TimeoutError):
        async with asyncio.timeout(_OUTPUT_S):
            output = (await node.output(key)).strip()
    if status == LOST_PEER and (lost := line_of(output)) is not None:
        return Cause.LOST_PEER, f"{place} {_printable(lost)}"
    said = _printable(output.splitlines()[-1]) if output else ""
    if status == NOT_STARTED and said.startswith(PREFIX):
        return Cause.OWN, f"{place} cannot run its command: {said.removeprefix(PREFIX)}"
    return greatest_cause(status), f"{place} {ended_text(status)}" + (f": {said}" if said else "")


def ended_text(status: int) -> str:
    """The way a rank ended, in words."""
    if status == LOST:
        return "ended without a status: its guard, the process that watches it, was killed"
    number = signal_of(status)
    return f"ended with status {status}" if number is None else f"was killed by {number.name}"


def signal_of(status: int) -> signal.Signals | None:
    """The signal that ended a rank, or what a shell says of its last command: 128 and its number."""
    number = -status if status < 0 else status - _SHELL
    try:
        return signal.Signals(number) if number > 0 else None
    except ValueError:
        return None


def _printable(text: str) -> str:
    """``text``, not too long, without what would move a terminal's cursor or colour it."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text[:300])
