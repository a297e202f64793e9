"""Rounds of an asynchronous row: workers begin at drawn moments, and predictions know these.

The way that asynchronous workers share a link hangs on when each began, for hundreds of steps: runs of one
configuration differ by 10% and more however exactly everything is known. A row is therefore the mean over
rounds, each with moments of its own, and so is what is predicted of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hocket.bench.replay.accuracy_statistics import measured_rate
from hocket.graph import StepGraph
from hocket.predictor.kernel_run import run_steps
from hocket.predictor.prediction_request import Request
from hocket.predictor.prepared import prepare

_SEEDS = 10
_ENDS = 2  # times as many steps are simulated as are replayed: some workers have more than their share


def drawn_begins_s(
    graph: StepGraph, *, workers: int, rounds: int, transfer_s: float, rho: float, seed: int
) -> list[list[float]]:
    """Seconds from when all are ready until each worker begins, for each round; (rounds, workers).

    Anywhere in the length of a step alone, and not before the last pushes of an earlier round, at
    ``transfer_s`` each, have come.
    """
    alone_s = float(graph.durations_s.sum(axis=0).mean()) * (1.0 + rho)
    drawn = np.random.default_rng(seed).uniform(0.0, alone_s, (rounds, workers))
    begins_s: list[list[float]] = (workers * transfer_s + drawn).tolist()
    return begins_s


def rate_of_rounds(
    request: Request, begins_s: Sequence[Sequence[float]], *, servers: int, seed: int
) -> float:
    """Steps a second over all workers, the mean over rounds that begin so; counted as they are replayed.

    ``request``: one of asynchronous training.

    Raises
    ------
    FormatError, HocketError
        When the request does not fit together.
    """
    workers, num_steps = len(begins_s[0]), request.steps
    prepared = prepare(request, workers, servers)
    assert prepared.step is not None
    rates = []
    for number, starts_s in enumerate(begins_s):
        for again in range(_SEEDS):
            ends_s, who = run_steps(
                prepared.step,
                prepared.topology,
                _ENDS * workers * num_steps,
                replace(prepared.run_settings(seed + number * _SEEDS + again), start_s=starts_s),
            )
            own = [ends_s[who == worker][:num_steps].tolist() for worker in range(workers)]
            rates.append(measured_rate(own, request.skip))
    return math.fsum(rates) / len(rates)
