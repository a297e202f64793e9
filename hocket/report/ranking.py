"""Which result is best, and by how much."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hocket.graph.result import ResultRow
from hocket.report.load import Entry


def ranked(entries: Iterable[Entry]) -> list[Entry]:
    """The fastest first: by throughput, then by step time; ties stay in the order they came.

    Throughput comes first because results may differ in their number of workers; where they do not, it ranks
    as the step time does.
    """
    return sorted(entries, key=lambda entry: (-entry.row.throughput, entry.row.iteration_s))


class Setup(NamedTuple):
    """What two results must share for one policy's gain over the other to mean anything."""

    model: str
    architecture: str
    workers: int
    servers: int


def setup_of(row: ResultRow) -> Setup:
    """The setup that ``row`` was run on."""
    return Setup(row.model, row.architecture, row.workers, row.servers)


def worst_like(best: ResultRow, ranking: Sequence[Entry]) -> ResultRow:
    """The last of ``ranking`` on the setup of ``best``."""
    return next(entry.row for entry in reversed(ranking) if setup_of(entry.row) == setup_of(best))


def num_level_with(best: ResultRow, ranking: Sequence[Entry]) -> int:
    """How many other results are as fast as ``best``, to four digits."""
    return sum(math.isclose(entry.row.throughput, best.throughput, rel_tol=1e-4) for entry in ranking) - 1


def over_bound(row: ResultRow) -> float | None:
    """How far the step time is above its proven lower limit, as a fraction of the limit."""
    return row.iteration_s / row.bound_s - 1.0 if row.bound_s > 0 else None
