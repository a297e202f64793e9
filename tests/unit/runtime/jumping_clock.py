"""A clock that is where somebody sleeps until, and messages that come by a timetable."""

from __future__ import annotations

from collections.abc import Sequence


class JumpingClock:
    def __init__(self) -> None:
        self._now_s = 0.0

    def now_s(self) -> float:
        return self._now_s

    def sleep_until(self, moment_s: float) -> None:
        self._now_s = max(self._now_s, moment_s)


class Timetable:
    """Messages and when they come, on ``clock``."""

    def __init__(self, clock: JumpingClock, due: Sequence[tuple[int, float]]) -> None:
        self._clock, self._due = clock, sorted(due, key=lambda each: each[1])

    def take(self, *, wait: bool) -> list[tuple[int, float]]:
        if wait:
            self._clock.sleep_until(self._due[0][1])
        came = [each for each in self._due if each[1] <= self._clock.now_s()]
        del self._due[: len(came)]
        return came
