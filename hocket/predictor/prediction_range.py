"""The range of a predicted step: how far the mean of its computing may be off, and so the step."""

from __future__ import annotations

from typing import Literal, NamedTuple

from hocket.confidence import interval_95
from hocket.datasheets import DEVICES
from hocket.graph import StepGraph

RangeSource = Literal["derived", "recorded"]
RANGE_WORDS: dict[RangeSource, str] = {
    "derived": "by the largest percentage that a caution names",
    "recorded": "95% by the spread of the profile's steps",
}


class ComputingError(NamedTuple):
    """Seconds of a step's computing that its mean may be off by, either way, and how that is known."""

    seconds: float
    source: RangeSource


def computing_error(graph: StepGraph) -> ComputingError | None:
    """The error of a worker's computing; None where nothing says one.

    Derived steps carry the share that nine of ten of their family, and their card, are within. Of a profile
    it is half of the 95% interval of the mean of its steps; what other days or machines bring is not in it.
    """
    lengths_s = graph.durations_s.sum(axis=0)
    if graph.expected_error:
        return ComputingError(graph.expected_error * float(lengths_s.mean()), "derived")
    low, high = (None, None) if graph.device in DEVICES else interval_95(lengths_s)
    if low is None or high is None:
        return None
    return ComputingError((high - low) / 2, "recorded")


def step_range_s(step_s: float, off_s: float, network_s: float) -> tuple[float, float] | None:
    """The shortest and the longest that a step of ``step_s`` may be, its computing being off by ``off_s``.

    A step is a longest path through computing and transfers, so that it changes by no more than computing
    does; and it is never shorter than its network is busy, ``network_s``. None where nothing is left.
    """
    least = max(step_s - off_s, min(step_s, network_s))
    return (least, step_s + off_s) if least > 0 else None
