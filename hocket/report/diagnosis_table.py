"""The tables of a diagnosis, for the terminal and the page alike."""

from __future__ import annotations

from collections.abc import Sequence

from hocket.columns import Column, number_column, percent_column, text_column, time_column
from hocket.diagnosis import Diagnosis
from hocket.interop.kineto.step_times import CollectiveUse, StepTimes
from hocket.predictor import Prediction
from hocket.text import time_unit

MOST_OPERATIONS = 12
_BITS = 8e-9  # of a byte a second, in Gbit/s


def time_parts(times: StepTimes) -> dict[str, float]:
    """The seconds of a step by part, those that nothing was spent on left out."""
    parts = {
        **times.computing_s,
        **{f"exposed {name}": seconds for name, seconds in times.exposed_s.items()},
        "idle: the host": times.host_s,
        "idle: other waits": times.waiting_s,
    }
    return {name: seconds for name, seconds in parts.items() if seconds > 0}


def time_columns(diagnosis: Diagnosis) -> list[Column]:
    """The columns of a step's time, a row a part of it; of several ranks their least and most."""
    mean, every = time_parts(diagnosis.times), [time_parts(rank.times) for rank in diagnosis.per_rank]
    names, unit = list(mean), time_unit([diagnosis.times.elapsed_s])
    columns = [
        text_column("Of a step", names),
        time_column("Time", [mean[name] for name in names], unit),
        percent_column("Share", [mean[name] / diagnosis.times.elapsed_s for name in names]),
    ]
    if len(every) > 1:
        each = [[own.get(name, 0.0) for own in every] for name in names]
        columns.append(time_column("Least", [min(own) for own in each], unit, "Of the traced ranks."))
        columns.append(time_column("Most", [max(own) for own in each], unit, "Of the traced ranks."))
    return columns


def rank_columns(diagnosis: Diagnosis) -> list[Column]:
    """The columns of ranks, a row each."""
    ranks = diagnosis.per_rank
    unit = time_unit([rank.times.elapsed_s for rank in ranks])
    return [
        text_column("Rank", [rank.name for rank in ranks]),
        number_column("Steps", [rank.steps for rank in ranks], decimals=0),
        time_column("Step", [rank.times.elapsed_s for rank in ranks], unit),
        time_column("Computing", [rank.times.computed_s for rank in ranks], unit),
        time_column(
            "Exposed", [rank.times.communication_s for rank in ranks], unit, "Collectives alone run."
        ),
        time_column("Idle", [rank.times.host_s + rank.times.waiting_s for rank in ranks], unit),
    ]


def collective_columns(uses: Sequence[CollectiveUse]) -> list[Column]:
    """The columns of collectives, a row a name."""
    unit = time_unit([use.took_s for use in uses])
    sizes = [None if use.size_bytes is None else use.size_bytes / 2**20 for use in uses]
    return [
        text_column("Collectives of a step", [use.name for use in uses]),
        number_column("Count", [use.count for use in uses], decimals=0),
        number_column("Ranks", [use.ranks for use in uses], decimals=0),
        number_column("Size", sizes, unit="MiB"),
        time_column("Together", [use.took_s for use in uses], unit, "Waiting for other ranks included."),
        time_column("Exposed", [use.exposed_s for use in uses], unit, "While nothing is computed."),
        number_column("Rate", [_rate(use) for use in uses], "Bytes over time.", unit="Gbit/s"),
    ]


def _rate(use: CollectiveUse) -> float | None:
    """Gbit a second that messages go by, waiting included; None where sizes are not known."""
    return None if use.size_bytes is None or not use.took_s else use.size_bytes / use.took_s * _BITS


def operation_columns(diagnosis: Diagnosis) -> list[Column]:
    """The columns of the operations that take longest."""
    uses = diagnosis.operations[:MOST_OPERATIONS]
    total_s = sum(use.took_s for use in diagnosis.operations)
    unit = time_unit([use.took_s for use in uses])
    return [
        text_column("Operations of a step", [use.name for use in uses]),
        number_column("Count", [use.count for use in uses], decimals=0),
        time_column("Time", [use.took_s for use in uses], unit, "On the GPU, streams added up."),
        percent_column(
            "Share", [use.took_s / total_s if total_s else 0.0 for use in uses], "Of all operations."
        ),
    ]


def scaling_columns(rows: Sequence[Prediction]) -> list[Column]:
    """The columns of more ranks, a row a number of them."""
    unit = time_unit([row.step_s for row in rows])
    return [
        number_column("Ranks", [row.workers for row in rows], decimals=0),
        time_column("Step", [row.step_s for row in rows], unit),
        percent_column("Computing", [row.efficiency for row in rows], "Of a step; the rest is exposed."),
        number_column("Examples/s", [row.throughput for row in rows]),
    ]
