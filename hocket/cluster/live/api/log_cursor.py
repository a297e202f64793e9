"""A place in what a rank prints, from attempt to attempt, for whoever follows it."""

from __future__ import annotations

from typing import Literal

from hocket.cluster.live.manager_messages import AskLog, JobLog


class LogCursor:
    """A place in the output of a job's rank, from a first request on: in one attempt if that names it.

    Else it goes on with the attempts that follow.
    """

    def __init__(self, begin: AskLog) -> None:
        self._wanted = begin.attempt
        self._next = begin

    @property
    def request(self) -> AskLog:
        """The request for what comes next."""
        return self._next

    def take(self, found: JobLog) -> Literal["more", "next", "wait", "over"]:
        """Go on behind an answer to :attr:`request`; what to do when its text is read.

        ``more``: there may be more at once, ``next``: of another attempt, from its beginning; ``wait``: some
        may come; ``over``: nothing will.
        """
        asked = self._next
        if found.attempt == 0:
            return "over" if found.over else "wait"
        place = found.part.next
        self._next = AskLog(asked.job, asked.rank, found.attempt, place.moved, place.offset)
        if found.part.text:
            return "more"
        if not found.ended:
            return "wait"
        if self._wanted is None and found.attempts > found.attempt:
            # Also where the job is over: the attempt behind this one may have ended since the last look.
            self._next = AskLog(asked.job, asked.rank, found.attempt + 1)
            return "next"
        return "over" if found.over or self._wanted is not None else "wait"
