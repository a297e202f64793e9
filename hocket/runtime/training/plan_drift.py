"""The drift of settled steps: whether they have come to take another time than when their plan was chosen."""

from __future__ import annotations

from collections.abc import Generator
from statistics import median

from hocket.runtime.observe.recorder import Moment, SpanRecorder
from hocket.runtime.transfers.gloo_group import GlooGroup, broadcast_number

WINDOW_STEPS = 50
"""Steps of which the median counts; at the end ranks hear whether the plan is looked at again."""
REST_STEPS = 1000
"""Steps from one look at the choice to the next, at least."""
_WINDOWS = 4  # so many in a row, 200 steps
_MOVED = 1.15  # times what it was, or as many times less


class Drift:
    """The drift of the medians of windows of steps from the first of them."""

    def __init__(self) -> None:
        self._first_s = 0.0
        self._moved: list[float] = []

    def add(self, seconds: float) -> None:
        """Count a window of steps whose median is ``seconds``."""
        if not self._first_s:
            self._first_s = seconds
            return
        ratio = seconds / self._first_s
        side = (ratio > _MOVED) - (ratio < 1 / _MOVED)
        if not side or (self._moved and (self._moved[-1] > 1) != (ratio > 1)):
            self._moved.clear()
        if side:
            self._moved.append(ratio)

    @property
    def ratio(self) -> float:
        """The time of the last windows over the first one's, where they have moved for long; else 0."""
        return median(self._moved) if len(self._moved) >= _WINDOWS else 0.0


def steps_until_drift(rest: int, recorder: SpanRecorder, control: GlooGroup) -> Generator[None, None, float]:
    """Train until steps have drifted, and for ``rest`` steps at least; by how many times, as rank 0 has it.

    No step waits for another rank but the last one of each window, for one number.
    """
    drift, done = Drift(), 0
    windows: list[list[Moment]] = []
    while True:
        windows.append([recorder.now()])
        for _ in range(WINDOW_STEPS):
            yield
            windows[-1].append(recorder.now())
        done += WINDOW_STEPS
        while len(windows) > recorder.is_behind:  # of a device the last one may not be over
            drift.add(median(recorder.seconds_between(windows.pop(0))))
        ratio = broadcast_number(drift.ratio if done >= rest else 0.0, control)
        if ratio:
            return ratio
