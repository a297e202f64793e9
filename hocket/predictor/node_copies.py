"""A copy of the parameters in each node (HSDP): said where that is faster than one copy among all workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from hocket.graph import StepGraph
from hocket.network import Network
from hocket.predictor.configurations import predict
from hocket.predictor.prediction import Prediction
from hocket.predictor.prediction_curves import is_faster
from hocket.text import digits, rate_text

_DECIDES = 1.1  # times the throughput
_KEEPING = ("fsdp-zero2", "search", "exact")  # keep units gathered, or choose which


class NodeCopies(NamedTuple):
    """Most workers with a copy in each node of ``gpus`` GPUs, and the best row with one copy among all."""

    row: Prediction
    gpus: int
    best: Prediction

    @property
    def decides(self) -> bool:
        """True if these copies are so much faster that nothing else is the answer."""
        return self.row.throughput >= _DECIDES * self.best.throughput

    @property
    def text(self) -> str:
        """A sentence on what these copies reach."""
        said = f"With a copy of the parameters in each node (--shards {self.gpus}) {self.row.machines} reach"
        times = digits(self.row.throughput / self.best.throughput)
        said += f" {rate_text(self.row.throughput)}, {times} times as many"
        return f"{said} as {self.best.machines} with one copy among all"


def gathers_twice(row: Prediction) -> bool:
    """Tell whether the network is busiest in a sharded step that gathers its parameters for each pass."""
    return row.architecture == "fsdp" and row.policy not in _KEEPING and "processors" not in row.bottleneck


def copy_a_node(
    graph: StepGraph, network: Network, asked: dict[str, Any], rows: Sequence[Prediction]
) -> NodeCopies | None:
    """Copies in nodes, simulated with the most workers; None where that is no faster.

    None as well where workers do not fill several nodes, or where groups or a plan were chosen. ``asked``:
    what :func:`hocket.predict` was asked beside workers for ``rows``.
    """
    nodes = network.nodes
    if nodes is None or network.shards is not None or asked["plan"] is not None:
        return None
    in_nodes = [row for row in rows if nodes.fills_several(row.workers)]
    if not in_nodes or not gathers_twice(most := max(in_nodes, key=lambda row: row.workers)):
        return None
    (found,) = predict(graph, replace(network, shards=nodes.gpus), workers=most.workers, **asked)
    best = max(rows, key=lambda row: row.throughput)
    return NodeCopies(found, nodes.gpus, best) if is_faster(found, best) else None
