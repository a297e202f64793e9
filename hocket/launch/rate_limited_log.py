"""A rate-limited log: the first message at once, repeats once a minute with a count."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from hocket.errors import one_line

_TOGETHER_S = 60.0
_MOST_LINES = 16
_LONGEST_LINE = 300
_FURTHER = "more is refused, and for other reasons, than is written down here"


@dataclass
class _Line:
    until_s: float
    again: int = 0


class RateLimitedLog:
    """Calls ``note`` with the lines that it is called with; any thread may.

    One that comes again within a minute is counted, and :meth:`tell` says how often it has come when the
    minute is over. 16 different lines are told apart, others are one line: however many connections a host
    makes, what happened to jobs stays in the log.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._lines: dict[str, _Line] = {}
        self._lock = threading.Lock()

    def __call__(self, what: str) -> None:
        """Say it, or count it."""
        what = one_line(what)[:_LONGEST_LINE]
        with self._lock:
            if what not in self._lines and len(self._lines) >= _MOST_LINES:
                what = _FURTHER
            if what in self._lines:
                self._lines[what].again += 1
                return
            self._lines[what] = _Line(time.monotonic() + _TOGETHER_S)
        self._note(what)

    def tell(self, *, ends: bool = False) -> None:
        """Say how often each line came again whose minute is over; all of them when the log ``ends``."""
        now_s, told = time.monotonic(), []
        with self._lock:
            for what, line in list(self._lines.items()):
                if now_s < line.until_s and not ends:
                    continue
                if line.again:
                    told.append(f"{what} ({line.again} times more within a minute)")
                    self._lines[what] = _Line(now_s + _TOGETHER_S)
                else:
                    del self._lines[what]
        for what in told:
            self._note(what)
