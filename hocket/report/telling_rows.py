"""The rows of a long prediction that a terminal shows: those that are asked for singly or tell most."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from hocket.predictor.prediction import Prediction
from hocket.predictor.prediction_curves import cheapest, curves, network_bound, saturation

_FEW = 20  # rows that are all shown
_FEW_NODES = 10  # whole nodes that are all shown; of more, twice as many each time


def telling_rows(rows: Sequence[Prediction], named: AbstractSet[int], gpus: int = 1) -> list[Prediction]:
    """All of a few ``rows``; of many those of each curve that tell most, in the order given.

    These are ``named`` numbers of workers, whole nodes of so many ``gpus`` each, below one node powers of
    two, and where the curve saturates, is highest or cheapest, and where the network comes to decide. Of many
    nodes, or of machines with one GPU, it is twice as many each time.
    """
    if len(rows) <= _FEW:
        return list(rows)
    kept: set[int] = set()
    for curve in curves(rows):
        whole = {row.workers for row in curve if gpus > 1 and row.workers % gpus == 0}
        shown = named | whole if len(whole) <= _FEW_NODES else named
        kept |= {id(row) for row in curve if row.workers in shown or _is_doubled(row.workers, gpus)}
        decisive = [saturation(curve), max(curve, key=lambda row: row.throughput), cheapest(curve)]
        decisive += network_bound(curve)[:1]
        kept |= {id(row) for row in decisive if row is not None}
    return [row for row in rows if id(row) in kept]


def _is_doubled(workers: int, gpus: int) -> bool:
    """Tell whether so many workers are one node's, doubled some times; below one node: powers of two."""
    nodes, rest = divmod(workers, gpus)
    number = nodes if nodes and not rest else workers if workers < gpus else 0
    return number > 0 and number & (number - 1) == 0
