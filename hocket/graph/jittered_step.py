"""A step whose whole length varies: several samples of one, as if it had been recorded as often."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hocket.errors import HocketError
from hocket.graph import StepGraph


def jittered(graph: StepGraph, jitter: float, samples: int, seed: int) -> StepGraph:
    """``graph``, of one sample, with so many ``samples`` that differ in length.

    In each, all durations are multiplied by one draw from the lognormal distribution of mean 1 whose
    logarithm has the standard deviation ``jitter``.

    Raises
    ------
    HocketError
        For fewer than one sample, a jitter below 0, and a step of several samples.
    """
    if samples < 1 or not 0 <= jitter < np.inf:
        raise HocketError(f"samples={samples} and jitter={jitter} must be at least 1 and 0")
    if graph.num_samples > 1:
        raise HocketError(
            f"jitter {jitter:g}: the {graph.num_samples} samples of this step vary by themselves; leave it"
            " out"
        )
    scale = np.random.default_rng(seed).lognormal(-(jitter**2) / 2, jitter, samples)
    return replace(graph, durations_s=graph.durations_s * scale)
