"""Errors of predictions against replays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby

import msgspec

from hocket.bench.replay.accuracy_request import Configuration, Mode, Transport
from hocket.confidence import interval_95
from hocket.errors import HocketError
from hocket.planner import Architecture
from hocket.predictor import Prediction


class AccuracyRow(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration; rates are examples a second over all workers, errors predicted / measured - 1.

    ``measured``: the mean of ``rounds``, with its 95% confidence interval, null of a single one.
    ``lin`` and ``cynthia``: what those models say, null where they say nothing, as their errors are.
    ``out_of_order``: of pulls, the fraction that one of a later rank overtook; of the worst worker.
    ``stolen``: the share of processor time that other virtual machines had while it was replayed.
    """

    step: str
    policy: str
    architecture: Architecture
    mode: Mode
    workers: int
    servers: int
    transport: Transport
    measured: float
    measured_low: float | None
    measured_high: float | None
    rounds: int
    predicted: float
    error: float
    lin: float | None
    lin_error: float | None
    cynthia: float | None
    cynthia_error: float | None
    out_of_order: float | None
    stolen: float


class AccuracyGroup(msgspec.Struct, frozen=True, kw_only=True):
    """All rows of an architecture, mode and transport, or all; |error|, the mean and the largest.

    Those of a model are null where it says nothing of these rows.
    """

    architecture: Architecture | None
    mode: Mode | None
    transport: Transport | None
    rows: int
    mean_error: float
    largest_error: float
    lin_mean_error: float | None
    cynthia_mean_error: float | None


def measured_rate(ends_s: Sequence[Sequence[float]], skip: int) -> float:
    """Steps a second over all workers; ``ends_s``: when each worker's steps ended, ascending.

    Counted from the moment at which everybody has done ``skip`` steps to the one at which the first has done
    all of its own, for each worker between its own first and last end in between.

    Raises
    ------
    HocketError
        When a worker has fewer than two ends in between.
    """
    from_s, to_s = max(ends[skip - 1] for ends in ends_s), min(ends[-1] for ends in ends_s)
    rate = 0.0
    for ends in ends_s:
        counted = [end_s for end_s in ends if from_s <= end_s <= to_s]
        if len(counted) < 2:
            raise HocketError("workers differ so much that too few steps count; raise --steps")
        rate += (len(counted) - 1) / (counted[-1] - counted[0])
    return rate


def row_of(
    asked: Configuration,
    prediction: Prediction,
    rounds: Sequence[float],
    *,
    out_of_order: float,
    stolen: float,
) -> AccuracyRow:
    """The row of a configuration of which so many examples a second were replayed in each of ``rounds``."""
    measured = math.fsum(rounds) / len(rounds)
    low, high = interval_95(rounds)

    def error(rate: float | None) -> float | None:
        return None if rate is None else rate / measured - 1

    return AccuracyRow(
        **msgspec.structs.asdict(asked),
        measured=measured,
        measured_low=low,
        measured_high=high,
        rounds=len(rounds),
        predicted=prediction.throughput,
        error=prediction.throughput / measured - 1,
        lin=prediction.lin,
        lin_error=error(prediction.lin),
        cynthia=prediction.cynthia,
        cynthia_error=error(prediction.cynthia),
        out_of_order=out_of_order if asked.servers else None,
        stolen=stolen,
    )


def groups_of(rows: Sequence[AccuracyRow]) -> list[AccuracyGroup]:
    """A group for each architecture, mode and transport, and one for all rows if there are several."""

    def kind(row: AccuracyRow) -> tuple[Architecture, Mode, Transport]:
        return row.architecture, row.mode, row.transport

    found = [_group(list(own), *key) for key, own in groupby(sorted(rows, key=kind), kind)]
    return found if len(found) == 1 else [*found, _group(rows, None, None, None)]


def _group(
    rows: Sequence[AccuracyRow],
    architecture: Architecture | None,
    mode: Mode | None,
    transport: Transport | None,
) -> AccuracyGroup:
    errors = [abs(row.error) for row in rows]
    return AccuracyGroup(
        architecture=architecture,
        mode=mode,
        transport=transport,
        rows=len(rows),
        mean_error=math.fsum(errors) / len(errors),
        largest_error=max(errors),
        lin_mean_error=_mean(row.lin_error for row in rows),
        cynthia_mean_error=_mean(row.cynthia_error for row in rows),
    )


def _mean(errors: Iterable[float | None]) -> float | None:
    found = list(errors)
    if None in found:
        return None
    return math.fsum(abs(error) for error in found if error is not None) / len(found)
