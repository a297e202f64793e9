"""iBatch as published: two greedy batchings of the layers, then the better one (iBatch section 4).

:func:`algorithm_1` cuts from the first layer on, :func:`algorithm_2` from the last one back. Both keep a
batch's compute no longer than the next batch's transfer (Eq. 5) where they can, and as long as that allows.
:mod:`hocket.planner.ibatch` has the problem and its optimum.

Differs from the paper
----------------------
Points that the text leaves open:

* Algorithm 1: what lines 4 and 5 leave tied goes to the second batch of fewest layers, then to the shortest
  first one; what line 11 leaves tied, to the first such layer.
* Algorithm 2: what lines 4 and 5 leave tied, or line 11, goes to the latest split. The sum in line 5 starts
  after layer l_{N-1}, as the last batch does in Eq. 3; printed, it starts at that layer.
* No pair meets Eq. 5: one batch. No layer meets line 10: in Algorithm 1 the batch runs to L, in Algorithm 2
  it has one layer. l_k = 0 in the first step already ends Algorithm 2.
* The better batching is the one that ends first when transfers and computation are played through; Eq. 4 is
  wrong where Eq. 5 is broken. Equals: Algorithm 1's.
* Pushes are batched too, by the same algorithms on the mirrored chain.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import numpy.typing as npt

from hocket.graph import Plan, StepGraph
from hocket.network import Network
from hocket.planner.ibatch import batched_plan, batches_end, in_ticks


def ibatch_greedy(graph: StepGraph, network: Network) -> Plan:
    """Plan the batches of Algorithm 1 or Algorithm 2, of pulls and of pushes each what ends first."""
    return batched_plan("ibatch-greedy", graph, network, greedy_batches)


def greedy_batches(transfer_s: npt.ArrayLike, compute_s: npt.ArrayLike, startup_s: float) -> list[int]:
    """The better of the two algorithms' batches; all three take and return what ``optimal_batches`` does."""
    chain = (transfer_s, compute_s, startup_s)
    return min(algorithm_1(*chain), algorithm_2(*chain), key=lambda ends: batches_end(ends, *chain))


def algorithm_1(transfer_s: npt.ArrayLike, compute_s: npt.ArrayLike, startup_s: float) -> list[int]:
    """Batches from first to last (iBatch, Algorithm 1): the last layer of each, counted from 1."""
    chain = in_ticks(transfer_s, compute_s, startup_s)
    transfer, compute, startup = chain.transfer.tolist(), chain.compute.tolist(), chain.startup
    num_layers = len(transfer) - 1

    def covering(before: int, last: int) -> int:
        """The first layer after ``last`` up to which a transfer covers the compute of before+1 to last."""
        needed = compute[last] - compute[before] - startup + transfer[last]
        return bisect_left(transfer, needed, lo=last + 1)  # past L when there is none

    pairs = [
        (-compute[first], transfer[first], second - first, first)
        for first in range(1, num_layers)
        if (second := covering(0, first)) <= num_layers
    ]
    if not pairs:
        return [num_layers] if num_layers else []
    _, _, size, first = min(pairs)
    ends = [first, first + size]
    while ends[-1] < num_layers:
        ends.append(min(covering(ends[-2], ends[-1]), num_layers))
    return ends


def algorithm_2(transfer_s: npt.ArrayLike, compute_s: npt.ArrayLike, startup_s: float) -> list[int]:
    """Batches from last to first (iBatch, Algorithm 2): the last layer of each, counted from 1."""
    chain = in_ticks(transfer_s, compute_s, startup_s)
    transfer, compute, startup = chain.transfer.tolist(), chain.compute.tolist(), chain.startup
    num_layers = len(transfer) - 1

    def before(split: int, last: int) -> int:
        """The layer before the longest batch up to ``split`` that the transfer of split+1 to last covers.

        It is ``split`` itself when not even one layer is covered.
        """
        covered = startup + transfer[last] - transfer[split]
        first = bisect_left(compute, compute[split] - covered, hi=split)
        return first if first == split else bisect_right(compute, compute[first], hi=split) - 1

    pairs = [
        (compute[split] - compute[start], compute[split], split, start)
        for split in range(1, num_layers)
        if (start := before(split, num_layers)) < split
    ]
    if not pairs:
        return [num_layers] if num_layers else []
    _, _, split, start = max(pairs)
    ends = [num_layers, split]
    while start > 0:
        ends.append(start)
        start = min(before(start, ends[-2]), start - 1)
    return ends[::-1]
