"""The best of several results, and by how much."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hocket.graph.result import ResultRow, is_level
from hocket.planner.named_planners import BEST_BUCKETS, SEARCH, USUAL
from hocket.report.result_files import Entry


def rank_entries(entries: Iterable[Entry]) -> list[Entry]:
    """The fastest first: by throughput, then by step time; ties stay in the order they came.

    Throughput comes first because results may differ in their number of workers; where they do not, it ranks
    as the step time does. Where nothing beats the usual policy, or else DDP's best bucket, that comes first,
    and else one that a search has found no better plan than.
    """
    ranked = sorted(entries, key=lambda entry: (-entry.row.throughput, entry.row.iteration_s))
    if not ranked:
        return ranked
    first = ranked[0].row
    policies = [entry.row.policy for entry in ranked if entry.row.policy != SEARCH]
    for name in (USUAL.get(first.architecture), BEST_BUCKETS, *policies):
        for entry in ranked:
            row = entry.row
            if (
                row.policy == name
                and is_level(row.throughput, first.throughput)
                and is_level(row.iteration_s, first.iteration_s)
            ):
                return [entry, *(other for other in ranked if other is not entry)]
    return ranked


class ComparableSetup(NamedTuple):
    """The set-up that two results must share for one policy's gain over the other to mean anything."""

    model: str
    architecture: str
    workers: int
    servers: int


def setup_of(row: ResultRow) -> ComparableSetup:
    """The setup that ``row`` was run on."""
    return ComparableSetup(row.model, row.architecture, row.workers, row.servers)


def usual_like(row: ResultRow, ranking: Sequence[Entry]) -> ResultRow | None:
    """The usual policy's row on the setup of ``row``: DDP's, or of servers file order; None without it."""
    usual = USUAL.get(row.architecture)
    like = (entry.row for entry in ranking if setup_of(entry.row) == setup_of(row))
    return next((other for other in like if other.policy == usual), None)


def num_level_with(best: ResultRow, ranking: Sequence[Entry]) -> int:
    """The number of other results that are as fast as ``best``, to four digits."""
    return sum(math.isclose(entry.row.throughput, best.throughput, rel_tol=1e-4) for entry in ranking) - 1


def over_bound(row: ResultRow) -> float | None:
    """The step time above its proven lower limit, as a fraction of the limit; None without a limit."""
    return row.iteration_s / row.bound_s - 1.0 if row.bound_s > 0 else None
