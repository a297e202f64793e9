"""Reduction batches and their chunks, from the cost of the network (Caramel sections 4.2, 4.4).

Differs from the paper
----------------------
* The network's line is fitted through nine sizes from 64 B to 4 MiB, not through two.
* Parameters of different types never share a batch: a reduction adds numbers of one type.
* Without any cost per transfer the threshold is 0 and the rule for the depth would divide by it: any depth is
  free then, and the deepest pays as soon as reducing takes time.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hocket.graph import StepGraph
from hocket.graph.step import Seconds
from hocket.network import Network, reduction_s

_SAMPLED_BYTES = [64 * 4**k for k in range(9)]
_DEEPEST = 8


@dataclass(frozen=True, kw_only=True)
class NetworkModel:
    """f(d) = startup_s + s_per_byte * d: seconds that one reduction of d bytes takes."""

    startup_s: float
    s_per_byte: float

    def seconds(self, size_bytes: int) -> float:
        """f(size_bytes)."""
        return self.startup_s + self.s_per_byte * size_bytes

    @property
    def threshold_bytes(self) -> int:
        """The least x with f(2x) / (2 f(x)) > 0.8, in whole bytes: past it, doubling a batch saves little.

        For a line that is 1.5 startup_s / s_per_byte; no size reaches it where bytes cost nothing.
        """
        if self.startup_s == 0:
            return 0
        if self.s_per_byte == 0:
            return sys.maxsize
        return round(min(1.5 * self.startup_s / self.s_per_byte, float(sys.maxsize)))


def fit_network(network: Network) -> NetworkModel:
    """Fit the line through the costs of whole reductions on ``network`` by least squares."""
    seconds = [reduction_s(network, size) for size in _SAMPLED_BYTES]
    slope, intercept = np.polyfit(_SAMPLED_BYTES, seconds, 1)
    # Rounding may push a cost that is 0 below it.
    return NetworkModel(startup_s=max(0.0, float(intercept)), s_per_byte=max(0.0, float(slope)))


def batch_gradients(
    graph: StepGraph, order: Sequence[int], ready_s: Seconds, model: NetworkModel
) -> list[list[int]]:
    """Put the gradients ``order`` (parameter indices, by completion) into batches.

    One that is larger than the threshold travels alone; a smaller one joins the open batch. That leaves when
    it exceeds the threshold, or when waiting for the next gradient would leave the network idle, because all
    transfers before it are done earlier. ``ready_s`` (p,): when each gradient is complete.
    """
    threshold = model.threshold_bytes
    sizes = graph.parameter_bytes.tolist()
    batches: list[list[int]] = []
    opened: list[int] = []
    free_s = 0.0

    def leave(batch: list[int], now_s: float) -> None:
        nonlocal free_s
        free_s = max(free_s, now_s) + model.seconds(sum(sizes[g] for g in batch))
        batches.append(batch)

    for k, gradient in enumerate(order):
        now_s = float(ready_s[gradient])
        next_s = float(ready_s[order[k + 1]]) if k + 1 < len(order) else np.inf
        if sizes[gradient] > threshold:
            leave([gradient], now_s)
        else:
            if opened and graph.parameter_dtypes[opened[0]] != graph.parameter_dtypes[gradient]:
                leave(opened, now_s)
                opened = []
            opened.append(gradient)
        if opened and (sum(sizes[g] for g in opened) > threshold or max(free_s, now_s) < next_s):
            leave(opened, now_s)
            opened = []
    return batches


def depth_of(size_bytes: int, network: Network, model: NetworkModel) -> int:
    """In how many chunks a batch travels: clamp(size // threshold, 1, 8) (section 4.4)."""
    if model.threshold_bytes == 0:
        return _DEEPEST if network.parse_s_per_byte > 0 else 1
    return max(1, min(_DEEPEST, size_bytes // model.threshold_bytes))
