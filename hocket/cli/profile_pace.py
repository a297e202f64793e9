"""The pace of steps that are measured: a word on ``--steps`` where they take long or are stopped."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from hocket.cli.printing import note, warn
from hocket.signals import Stop
from hocket.text import digits, duration_text

_SETTLED_S, _LONG_S = 10.0, 30.0  # after which a step's time is known, and what is long for all that are left
_FEWER = 5


class StepPace:
    """The pace of ``steps`` sampled steps of what is called ``name``."""

    def __init__(self, name: str, steps: int) -> None:
        self._fewer = _FEWER if steps > _FEWER else 1
        self._can_be_fewer = steps > 1
        self._name, self._told = name, False
        self._began_s = time.monotonic()
        self._first: tuple[int, float] | None = None  # steps over at first, which take longer, and when
        self._done, self._total = 0, 0

    def report(self, done: int, total: int) -> None:
        """Take how many steps were run, of how many; say once that all of them take long, if they do."""
        self._done, self._total = done, total
        now_s = time.monotonic()
        if self._first is None:
            self._first = done, now_s
        steps, gone_s = done - self._first[0], now_s - self._first[1]
        if self._told or not self._can_be_fewer or steps < 1 or gone_s < _SETTLED_S:
            return
        left_s = gone_s / steps * (total - done)
        if left_s < _LONG_S:
            return
        self._told = True
        each, all_of_them = duration_text(gone_s / steps), duration_text(now_s - self._began_s + left_s)
        fewer = f"--steps {self._fewer} measures fewer"
        note(f"{self._name}: a step takes {each}, so {total} take about {all_of_them}; {fewer}")

    @contextmanager
    def told_when_stopped(self) -> Iterator[None]:
        """Context in which a stop, as of ``timeout``, says what was measured and how to be in time."""
        try:
            yield
        except Stop:
            gone = f"after {digits(time.monotonic() - self._began_s)} s"
            of_all = f"{self._done} of {self._total} steps" if self._total else "no step whole"
            fewer = f"give --steps {self._fewer}, or" if self._can_be_fewer else "give a smaller batch, or"
            warn(f"hocket: {self._name}: stopped {gone}, {of_all}: nothing is written; {fewer} more time")
            raise
