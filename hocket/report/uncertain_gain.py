"""Gains that are less than a step may be off by, as the profile's steps differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hocket.graph import StepGraph
from hocket.graph.result import ResultRow, is_level
from hocket.predictor.prediction_range import RANGE_WORDS, computing_error
from hocket.report.verdicts import usual_row
from hocket.text import percent_text


def uncertain_gain(
    graph: StepGraph, rows: Sequence[ResultRow], alike_s: Mapping[str, float] | None = None
) -> list[str]:
    """A sentence on a gain over the usual policy that measuring ``graph`` may have made up; none elsewhere.

    ``rows``: of one setup, the first of those that none beats is judged; ``alike_s``: as
    :class:`hocket.tuner.Tuning` has it: a gain that is smaller if all steps were alike counts as that.
    """
    best, usual, alike = min(rows, key=lambda row: row.iteration_s), usual_row(rows), alike_s or {}
    error = computing_error(graph)
    if usual is None or error is None or error.source != "recorded":
        return []
    gain, off = 1 - best.iteration_s / usual.iteration_s, error.seconds / usual.iteration_s
    if best.policy in alike and usual.policy in alike:
        gain = min(gain, 1 - alike[best.policy] / alike[usual.policy])
    if is_level(best.iteration_s, usual.iteration_s) or gain >= off:
        return []
    return [
        f"{best.policy}'s gain over {usual.policy} ({percent_text(max(gain, 0.0))}) is less than the mean"
        f" step of the profile may be off by ({percent_text(off)}, {RANGE_WORDS['recorded']}), so it may be"
        " zero"
    ]
