"""Gains that are less than a step may be off by, or than training was seen to have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hocket.graph import StepGraph
from hocket.graph.result import ResultRow, is_level
from hocket.graph.step import MEASURE_AGAIN
from hocket.predictor.prediction_range import RANGE_WORDS, computing_error
from hocket.report.compared_rows import best_row, gained, usual_row
from hocket.text import percent_text, rho_text

RHO_OF_GAINS = 0.5
"""Transfers over computing: here training gained nothing over DDP's best bucket, above it did."""


def uncertain_gain(
    graph: StepGraph, rows: Sequence[ResultRow], alike_s: Mapping[str, float] | None = None
) -> list[str]:
    """A sentence on a gain over the usual policy that measuring ``graph`` may have made up; none elsewhere.

    ``rows``: of one setup, the first of those that none beats is judged; ``alike_s`` as in
    :func:`hocket.report.compared_rows.gained`.
    """
    best, usual, error = best_row(rows), usual_row(rows), computing_error(graph)
    if usual is None or error is None or error.source != "recorded":
        return []
    gain, off = gained(rows, alike_s), error.seconds / usual.iteration_s
    if is_level(best.iteration_s, usual.iteration_s) or gain >= off:
        return []
    return [
        f"{best.policy}'s gain over {usual.policy} ({percent_text(gain)}) is less than the profile's own"
        f" error ({percent_text(off)}, {RANGE_WORDS['recorded']}), so it may be zero"
    ]


def below_gains(graph: StepGraph, rows: Sequence[ResultRow]) -> list[str]:
    """A sentence on a rho below that of all gains that were measured, for a step that is trained on CPUs.

    None where nothing is said to gain, nor of a step that is to be measured again: its rho may be too small.
    """
    best, usual = best_row(rows), usual_row(rows)
    if MEASURE_AGAIN in graph.caveat or best.architecture != "allreduce" or best.rho >= RHO_OF_GAINS:
        return []
    if usual is None or is_level(best.iteration_s, usual.iteration_s):
        return []
    return [
        f"rho is {rho_text(best.rho)}: in training at rho {RHO_OF_GAINS}, where there is more to gain, no"
        " order gained over DDP with its best bucket, so take the gain over that as zero"
    ]
