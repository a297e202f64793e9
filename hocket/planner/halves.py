"""Reductions in halves for steps that clip by norm: which go whole, and which are gathered after the norm.

A step that clips waits for a norm of all gradients, and so for whole reductions, or for reduce-scatters; then
the all-gathers of the scattered ones run on into the next forward pass, each before its first reader. What
keeps up with that pass is gathered beside it. The rest goes whole: it fits beside the backward pass as far as
the network stands still there.

That is weighed by one number, for how long the forward pass may wait for gathers: several are tried, and the
one with the shortest step wins, of several as short the one with most halves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hocket.graph import StepGraph
from hocket.graph.flat_plan import Transfers
from hocket.graph.step import Seconds
from hocket.graph.update_operations import is_update
from hocket.network import Network, halves_s, number_s, reduction_s
from hocket.planner.worker_processor import SerialTimes

_Mask = npt.NDArray[np.bool_]
_TRIED = 40  # waits of the forward pass for gathers
# Of a step's computing: of choices this close the one with most halves. Steps are longer than their oracle,
# and the longer a forward pass, the more is gathered beside it.
_LEVEL = 0.01


@dataclass(frozen=True, eq=False, kw_only=True)
class HalvedTimes:
    """Reductions, arrays of shape (b,) in seconds.

    ``ready_s``: when the last gradient is complete; ``read_s``: when the next step first needs one of them,
    both from the step's beginning. ``whole_s``, ``scatter_s``, ``gather_s``: how long it takes, and its
    halves. ``update_s``: what its updates compute. ``number_s``: the norm's own reduction; ``compute_s``: how
    long the step computes beside updates.
    """

    ready_s: Seconds
    read_s: Seconds
    whole_s: Seconds
    scatter_s: Seconds
    gather_s: Seconds
    update_s: Seconds
    number_s: float
    compute_s: float

    def delay_s(self, halves: _Mask) -> float:
        """For how long forward and backward pause in a step: for the norm, for updates, and before reads."""
        first_s = np.where(halves, self.scatter_s, self.whole_s)
        by_ready = np.argsort(self.ready_s, kind="stable")
        left_s = np.cumsum(first_s[by_ready][::-1])[::-1]
        over_s = float((self.ready_s[by_ready] + left_s).max(initial=0.0)) + self.number_s * bool(
            halves.any()
        )
        by_read = np.argsort(self.read_s, kind="stable")
        by_read = by_read[halves[by_read]]
        # Gathers end before the next step's first gradient is ready, so that steps do not mix.
        limits = np.minimum(self.read_s[by_read], self.ready_s.min(initial=np.inf))
        # A late gather's update, and those of later ones, are still to come when it is there.
        updates_s = np.cumsum(self.update_s[by_read][::-1])[::-1]
        late_s = float((np.cumsum(self.gather_s[by_read]) + updates_s - limits).max(initial=0.0))
        return max(0.0, over_s - self.compute_s) + max(float(self.update_s.sum()), late_s)


def halved_times(
    graph: StepGraph,
    network: Network,
    times: SerialTimes,
    batches: Sequence[Sequence[int]],
    sizes: Sequence[float],
    chunks: Sequence[int],
) -> HalvedTimes:
    """The times of reductions, each of a batch of gradients (parameter indices).

    ``sizes``: the bytes that travel, a part of the batch where it is sliced; ``chunks``: in how many.
    """
    each_s, update = np.zeros(graph.num_parameters), is_update(graph)[graph.reads.row_of_entry()]
    np.add.at(each_s, graph.reads.indices[update], graph.oracle_s[graph.reads.row_of_entry()[update]])
    batches = [list(batch) for batch in batches]
    parts = [halves_s(network, size, count) for size, count in zip(sizes, chunks, strict=True)]
    return HalvedTimes(
        ready_s=np.array([times.ready_s[batch].max() for batch in batches]),
        read_s=np.array([times.read_s[batch].min() for batch in batches]),
        whole_s=np.array([reduction_s(network, *each) for each in zip(sizes, chunks, strict=True)]),
        scatter_s=np.array([scatter_s for scatter_s, _ in parts]),
        gather_s=np.array([gather_s for _, gather_s in parts]),
        update_s=np.array(
            [
                each_s[batch].sum() * size / max(1, graph.parameter_bytes[batch].sum())
                for batch, size in zip(batches, sizes, strict=True)
            ]
        ),
        number_s=number_s(network),
        compute_s=times.total_s,
    )


def choose_halves(known: HalvedTimes) -> _Mask:
    """The reductions to cut in halves, (b,)."""
    num_reductions = len(known.whole_s)
    waits_s = np.linspace(0.0, float(known.gather_s.sum()), _TRIED)
    tried = [_keeping_up(known, wait_s) for wait_s in waits_s.tolist()]
    tried += [np.zeros(num_reductions, bool), np.ones(num_reductions, bool)]
    delays_s = [known.delay_s(halves) for halves in tried]
    level_s = min(delays_s) + _LEVEL * known.compute_s
    return max((halves for halves, s in zip(tried, delays_s, strict=True) if s <= level_s), key=np.sum)


def _keeping_up(known: HalvedTimes, wait_s: float) -> _Mask:
    """Those whose gathers, in the order of reads, hold up the forward pass by ``wait_s`` at most."""
    halves = np.zeros(len(known.read_s), bool)
    gathered_s = 0.0
    for k in np.argsort(known.read_s, kind="stable").tolist():
        gathered_s += float(known.gather_s[k])
        halves[k] = gathered_s <= known.read_s[k] + wait_s
        gathered_s -= 0.0 if halves[k] else float(known.gather_s[k])
    return halves


def by_first_read(times: SerialTimes, batches: Sequence[Sequence[int]]) -> list[int]:
    """The batches' places, those that the next forward pass reads first in front."""
    read_s = np.array([times.read_s[batch].min() for batch in map(list, batches)])
    return np.argsort(read_s, kind="stable").tolist()  # type: ignore[no-any-return]


def halved_schedule(
    graph: StepGraph, network: Network, times: SerialTimes, batches: Sequence[Sequence[int]]
) -> Transfers:
    """Transfers of ``batches``, those that are read first in front, whole or in halves."""
    batches = [list(batches[k]) for k in by_first_read(times, batches)]
    sizes = [float(graph.parameter_bytes[batch].sum()) for batch in batches]
    halves = choose_halves(halved_times(graph, network, times, batches, sizes, [1] * len(batches)))
    lengths = [len(batch) for batch in batches]
    order = np.array([i for batch in batches for i in batch], np.int64)
    starts = np.zeros(len(order), bool)
    starts[np.cumsum([0, *lengths], dtype=np.int64)[:-1]] = True
    return Transfers(
        order=order,
        starts=starts,
        chunks=np.ones(len(order), np.int64),
        forward=np.ones(len(order), bool),
        halves=np.repeat(halves, lengths),
    )
