"""``hocket cluster why``, ``logs`` and ``events``: why a job is as it is, and what has happened."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hocket.cli import options
from hocket.cli.cluster.client_commands import JobName, State, ask
from hocket.cli.panels import GENERAL, option
from hocket.cli.printing import note, print_json
from hocket.errors import HocketError, one_line

if TYPE_CHECKING:
    from hocket.cluster.live.api.log_cursor import LogCursor
    from hocket.cluster.live.manager_address import ManagerLine
    from hocket.cluster.live.manager_messages import Event, JobLog

_LOOK_EVERY_S = 0.5

Follow = Annotated[
    bool,
    option("--follow", "-f", panel=GENERAL, help="Go on with what comes, until it is over or interrupted."),
]


def why(job: JobName, state: State = None) -> None:
    """Say in a line why a job is as it is: what it waits for, where it computes, why it failed."""
    from hocket.cluster.live.manager_messages import AskWhy

    print(ask(state, AskWhy(job)).notes[0])


def logs(
    job: JobName,
    rank: Annotated[
        int | None, option(panel=GENERAL, metavar="R", help="Of this rank alone.", show_default="all")
    ] = None,
    attempt: Annotated[
        int | None, option(panel=GENERAL, metavar="N", help="Of this attempt.", show_default="the last")
    ] = None,
    lines: Annotated[
        int | None,
        option(panel=GENERAL, metavar="N", min=0, help="The last N of each rank.", show_default="all"),
    ] = None,
    follow: Follow = False,
    state: State = None,
) -> None:
    """Print what a job's ranks printed; of several ranks each line begins with its rank, such as [1]."""
    reader = _Reader(state, job, attempt)
    first = reader.ask(rank or 0)
    if first.attempt == 0 and not (follow and not first.over):
        raise HocketError(f"job '{job}' has not printed anything: it {_verb(first.reason)}")
    ranks = range(first.ranks) if rank is None else range(rank, rank + 1)
    named = len(ranks) > 1
    for each in ranks:
        _write(reader.lines(each), each if named else None, lines)
    while follow and not reader.over:
        time.sleep(_LOOK_EVERY_S)
        for each in ranks:
            _write(reader.lines(each), each if named else None, None)
    if follow:
        note(f"{job} {_verb(reader.reason)}")


class _Reader:
    """Reads what the ranks of a job print, each from where it was left; the next attempt follows on one."""

    def __init__(self, state: Path | None, job: str, attempt: int | None) -> None:
        from hocket.cluster.live.manager_address import ManagerLine, contact_of

        self._manager, self._job, self._wanted = ManagerLine(contact_of(state), state), job, attempt
        self._cursors: dict[int, LogCursor] = {}
        self._rest: dict[int, str] = {}
        self._done: set[int] = set()
        self._asked: set[int] = set()
        self.reason = ""

    @property
    def over(self) -> bool:
        """True when nothing more comes of any rank."""
        return self._asked == self._done

    def ask(self, rank: int) -> JobLog:
        """The next part."""
        found = self._manager.ask(self._cursor(rank).request).log
        assert found is not None
        self.reason = found.reason
        return found

    def lines(self, rank: int) -> Iterator[str]:
        """The lines that came since the last call; one without an end is kept back while more may come."""
        self._asked.add(rank)
        what_next = "more"
        while what_next in ("more", "next"):
            found = self.ask(rank)
            what_next = self._cursor(rank).take(found)
            if found.part.gap:
                note(f"rank {rank}: some output is gone, as it came faster than it was read")
            text = self._rest.pop(rank, "") + found.part.text
            whole, _, rest = text.rpartition("\n")
            if whole or len(text) > len(rest):
                yield from whole.split("\n")
            self._rest[rank] = rest
            if found.attempt and found.ended and not found.part.text and rest:
                yield self._rest.pop(rank)
        if what_next == "over":
            self._done.add(rank)

    def _cursor(self, rank: int) -> LogCursor:
        from hocket.cluster.live.api.log_cursor import LogCursor
        from hocket.cluster.live.manager_messages import AskLog

        if rank not in self._cursors:
            self._cursors[rank] = LogCursor(AskLog(self._job, rank, self._wanted))
        return self._cursors[rank]


def _write(lines: Iterator[str], rank: int | None, most: int | None) -> None:
    for line in lines if most is None else deque(lines, most):
        sys.stdout.write(line + "\n" if rank is None else f"[{rank}] {line}\n")
    sys.stdout.flush()


def _verb(reason: str) -> str:
    """A reason as it follows on a job's name."""
    return reason if not reason.startswith("its ") else f"runs: {reason}"


def events(
    job: Annotated[
        str | None,
        typer.Argument(metavar="JOB", help="Its id; else of the whole cluster.", show_default=False),
    ] = None,
    follow: Follow = False,
    json: options.Json = False,
    state: State = None,
) -> None:
    """Print what happened to a cluster's jobs and nodes, in order."""
    if follow and json:
        raise HocketError("--follow goes on for ever and --json is one document; give one of them")
    from hocket.cluster.live.manager_address import ManagerLine, contact_of
    from hocket.cluster.live.manager_messages import AskWhy

    manager = ManagerLine(contact_of(state), state)
    if json:
        print_json(list(_events(manager, job, 0)))
        return
    number = 0
    while True:
        for event in _events(manager, job, number):
            number = event.number
            when = datetime.fromtimestamp(event.unix_s).strftime("%Y-%m-%d %H:%M:%S")
            whose = "" if event.job is None else f"{event.job}: "
            print(f"{when}  {one_line(whose + event.what)}", flush=follow)
        if not follow:
            if job is not None and not number:
                note(f"no events; {ask(state, AskWhy(job)).notes[0]}")
            return
        time.sleep(_LOOK_EVERY_S)


def _events(manager: ManagerLine, job: str | None, number: int) -> Iterator[Event]:
    """The events behind that of a number, asked for part by part."""
    from hocket.cluster.live.manager_messages import AskEvents

    while found := manager.ask(AskEvents(number, job)).events:
        yield from found
        number = found[-1].number
