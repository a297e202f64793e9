"""Larger updates: how many batches to sum up for one exchange, where that decides; found by simulating it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hocket.graph import StepGraph
from hocket.graph.accumulated_step import accumulated
from hocket.graph.step import Phase
from hocket.network import Network
from hocket.predictor.configurations import predict
from hocket.predictor.prediction import Prediction
from hocket.text import counted, digits, rate_text

_MOST_BATCHES = 64
_ENOUGH, _GOOD = 0.8, 0.9
"""The efficiency from which on nothing is said, and the one that larger updates are to reach."""
_DECIDES = 1.25  # times the throughput, from which on larger updates are worth a word
_STEPS, _SKIPPED = 100, 10


def update_sizes(graph: StepGraph, rows: Sequence[Prediction]) -> str:
    """A sentence on how large updates are with the most workers and the fewest; "" for one number of them.

    Also of steps without updates, and of asynchronous ones, whose updates are each of one batch.
    """
    fewest, most = _ends(rows)
    if fewest == most or not _sums_up(graph, rows):
        return ""
    return (
        f"with {most} workers an update is of {most * graph.batch_size:,} examples, with {fewest} of"
        f" {fewest * graph.batch_size:,} (assumed: larger updates do not make training need more examples)"
    )


def update_clause(graph: StepGraph, rows: Sequence[Prediction]) -> str:
    """A clause on how large an update is with the one number of workers above 1; "" for several, or none."""
    fewest, most = _ends(rows)
    if fewest < most or most == 1 or not _sums_up(graph, rows):
        return ""
    update = f"{most * graph.batch_size:,} with {most} workers"
    return f"; an update: {graph.batch_size} examples a worker, so {update}"


def _ends(rows: Sequence[Prediction]) -> tuple[int, int]:
    workers = [row.workers for row in rows]
    return min(workers), max(workers)


def _sums_up(graph: StepGraph, rows: Sequence[Prediction]) -> bool:
    """True if an update is of a batch of each worker."""
    return rows[0].mode == "sync" and bool((graph.phases == Phase.BACKWARD).any())


def larger_update(
    graph: StepGraph, network: Network, asked: dict[str, Any], rows: Sequence[Prediction]
) -> str:
    """A sentence on the row of most workers with several batches an update; "" where they do not decide.

    ``asked``: what :func:`hocket.predict` was asked beside workers for ``rows``, which are synchronous.
    """
    row = max(rows, key=lambda row: row.workers)
    if row.architecture != "allreduce" or row.workers == 1 or row.bottleneck != "network":
        return ""
    if row.efficiency is None or row.efficiency >= _ENOUGH or not (graph.phases == Phase.BACKWARD).any():
        return ""
    asked = {**asked, "steps": min(asked["steps"], _STEPS), "skip": min(asked["skip"], _SKIPPED)}
    tried: tuple[int, Prediction] | None = None
    for batches in _doubled(graph, row):
        (found,) = predict(accumulated(graph, batches), network, workers=row.workers, **asked)
        if tried is not None and (found.efficiency or 0.0) < _GOOD:
            break
        tried = batches, found
    if tried is None or tried[1].throughput < _DECIDES * row.throughput:
        return ""
    return _sentence(graph, row, *tried)


def _doubled(graph: StepGraph, row: Prediction) -> list[int]:
    """Numbers of batches to try, halving: the first is enough if the exchange stays as long as it is."""
    alone_s = float(graph.durations_s[graph.phases != Phase.UPDATE].sum(axis=0).mean())
    exchange_s = max(0.0, row.step_s - alone_s)
    needed = exchange_s / max(alone_s, 1e-12) * _GOOD / (1 - _GOOD)
    power = int(np.ceil(np.log2(min(max(needed, 2.0), _MOST_BATCHES))))
    return [2**k for k in range(power, 0, -1)]


def _sentence(graph: StepGraph, row: Prediction, batches: int, found: Prediction) -> str:
    update = row.workers * graph.batch_size
    said = f"exchanging less often helps most: with the gradients of {counted(batches, 'batch', 'batches')}"
    said += f" summed up before each exchange, {row.machines} reach {rate_text(found.throughput)}"
    said += f", {digits(found.throughput / row.throughput)} times as many. Updates are then of"
    return (
        f"{said} {batches * update:,} examples instead of {update:,}; whether training takes more examples"
        " for that is not in this"
    )
