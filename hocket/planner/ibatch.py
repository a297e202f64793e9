"""iBatch: pull runs of layers as one transfer each, so that startups are few and overlap is large.

Source: iBatch, sections 3 and 4. Layers 1 to L run in order, layer i's parameters take T_t^i to move and it
computes for C^i; every transfer costs a startup T_s besides. Transfers go back to back. A batch computes when
its transfer and the batch before have both ended, and the end of the last batch is minimised.

Differs from the paper
----------------------
* Exact: the paper's two greedy algorithms are in :mod:`hocket.planner.ibatch_greedy`.
* The end is minimised over all batchings. The paper admits those that meet Eq. 5, for which Eq. 4 is the end;
  the best may break it.
* Pushes are batched too, by the same program (:func:`mirrored`); the paper leaves them to others.
* Times are whole picoseconds, so that ties are ties and not rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hocket.graph import Plan, StepGraph
from hocket.graph.csr import Indices
from hocket.graph.step import Seconds
from hocket.kernel import kernel
from hocket.network import Network
from hocket.planner.layer_chain import backward_layers, forward_layers
from hocket.planner.pull_plan import pull_plan

Chooser = Callable[[Seconds, Seconds, float], list[int]]
"""(transfer_s, compute_s, startup_s) to batches: the last layer of each, counted from 1, ascending."""

_MOST_FREE_LAYERS = 5_000  # without startups the program prunes nothing


class ChainTicks(NamedTuple):
    """A chain in whole ticks: ``transfer`` and ``compute`` (L + 1,) are the sums over its first k layers."""

    transfer: Indices
    compute: Indices
    startup: int
    per_s: float


def ibatch(graph: StepGraph, network: Network) -> Plan:
    """Plan the batches that end soonest, of pulls and of pushes (iBatch, Eq. 4)."""
    return batched_plan("ibatch", graph, network, optimal_batches)


def batched_plan(policy: str, graph: StepGraph, network: Network, choose: Chooser) -> Plan:
    """Batch the layers of ``graph`` by ``choose``: pulls in forward order, pushes by the mirrored chain."""
    forward, backward = forward_layers(graph, network), backward_layers(graph, network)
    pulls = choose(forward.transfer_s, forward.compute_s, network.startup_s)
    pushes = mirrored(choose, backward.transfer_s, backward.compute_s, network.startup_s)
    return pull_plan(
        policy, graph, _joined(forward.parameters, pulls), pushes=_joined(backward.parameters, pushes)
    )


def optimal_batches(transfer_s: npt.ArrayLike, compute_s: npt.ArrayLike, startup_s: float) -> list[int]:
    """Batches of a chain of L layers that end soonest: the last layer of each, counted from 1.

    ``transfer_s``, ``compute_s`` (L,) and ``startup_s``: seconds. Of the optimal batchings it is one with the
    fewest batches, of those the one whose last batch is longest, and then the last but one, and so on.
    """
    chain = in_ticks(transfer_s, compute_s, startup_s)
    num_layers = len(chain.transfer) - 1
    if chain.startup == 0 and num_layers > _MOST_FREE_LAYERS:
        # Nothing ends sooner than every layer by itself; the fewest batches that end as soon take too long.
        return list(range(1, num_layers + 1))
    return _optimal(chain)


def batches_end(
    ends: Sequence[int], transfer_s: npt.ArrayLike, compute_s: npt.ArrayLike, startup_s: float
) -> float:
    """Seconds until the last of the batches ``ends`` (as of :func:`optimal_batches`) is computed."""
    chain = in_ticks(transfer_s, compute_s, startup_s)
    computed = 0
    for k, (before, last) in enumerate(pairwise([0, *ends]), start=1):
        arrived = k * chain.startup + int(chain.transfer[last])
        computed = max(computed, arrived) + int(chain.compute[last] - chain.compute[before])
    return computed / chain.per_s


def mirrored(choose: Chooser, transfer_s: Seconds, compute_s: Seconds, startup_s: float) -> list[int]:
    """Batches of gradients by ``choose``: the last layer of each, counted from 1 in order of completion.

    ``transfer_s``, ``compute_s`` (L,): of the layers in order of completion. Layers are computed back to
    back; a batch is sent when its last layer is computed and the batch before has been sent; the end of the
    last transfer counts.
    """
    # The reversed chain is the same problem. With batches 1 to N that compute for c_k and transfer for
    # t_k (startup included), pushes end at the longest path  max over k of  c_1 + .. + c_k + t_k + .. + t_N,
    # and pulls end at  max over k of  t_1 + .. + t_k + c_k + .. + c_N.  Numbering batches from the other end
    # turns one into the other: run backwards in time, a push schedule pulls the layers last to first.
    reversed_ends = choose(transfer_s[::-1], compute_s[::-1], startup_s)
    starts = [0, *reversed_ends][:-1]
    return [len(transfer_s) - start for start in reversed(starts)]


def in_ticks(transfer_s: npt.ArrayLike, compute_s: npt.ArrayLike, startup_s: float) -> ChainTicks:
    """The chain in whole picoseconds, more coarsely where int64 would not hold its sums."""
    transfer, compute = (np.asarray(times, dtype=np.float64) for times in (transfer_s, compute_s))
    total_s = float(transfer.sum() + compute.sum()) + len(transfer) * startup_s
    per_s = min(1e12, 2.0**62 / max(total_s, 1e-300))
    return ChainTicks(
        transfer=_sums(np.rint(transfer * per_s)),
        compute=_sums(np.rint(compute * per_s)),
        startup=round(startup_s * per_s),
        per_s=per_s,
    )


def _sums(ticks: Seconds) -> Indices:
    sums = np.zeros(len(ticks) + 1, dtype=np.int64)
    np.cumsum(ticks.astype(np.int64), out=sums[1:])
    return sums


def _joined(layers: Sequence[Sequence[int]], ends: Sequence[int]) -> list[list[int]]:
    return [[i for layer in layers[a:b] for i in layer] for a, b in pairwise([0, *ends])]


def _optimal(chain: ChainTicks) -> list[int]:
    """The last layer of each batch.

    F(k, j) is the least end of layers 1 to j in at most k batches, the last of which arrives as a k-th does.
    """
    num_layers = len(chain.transfer) - 1
    if num_layers == 0:
        return []
    ends = chain.startup + chain.transfer + chain.compute
    best, fewest, cuts = int(ends[-1]), 1, [np.zeros(num_layers + 1, dtype=np.int32)]
    # No more batches when their startups, all bytes and the last layer take what the best takes.
    last_layer = int(chain.transfer[-1] + chain.compute[-1] - chain.compute[-2])
    for k in range(2, num_layers + 1):
        if k * chain.startup + last_layer >= best:
            break
        ends, cut = _with_one_more_batch(ends, k * chain.startup + chain.transfer, chain.compute)
        cuts.append(cut)
        if ends[-1] < best:
            best, fewest = int(ends[-1]), k
    chosen = [num_layers]
    for cut in cuts[fewest - 1 : 0 : -1]:
        chosen.append(int(cut[chosen[-1]]))
    return chosen[::-1]


@kernel
def _with_one_more_batch(before, arrived, compute):
    """Return F(k, j) and the i after which its last batch begins, from ``before``, F(k - 1, i).

    All are (L + 1,); ``arrived``: when k batches of j layers have been moved. The end is
    max(before[i], arrived[j]) + compute[j] - compute[i]. Neither ``before`` nor ``arrived`` ever falls. So of
    the i whose layers are done by then the last counts, or the first with as much computed; of the others the
    one whose before[i] - compute[i] is least: the head of a queue, in which these only rise.
    """
    num_layers = len(before) - 1
    ends, cut = before.copy(), np.zeros(num_layers + 1, dtype=np.int32)
    queue, head, tail = np.empty(num_layers + 1, dtype=np.int64), 0, 0
    done = first = 0
    for j in range(2, num_layers + 1):
        new = before[j - 1] - compute[j - 1]
        while tail > head and before[queue[tail - 1]] - compute[queue[tail - 1]] > new:
            tail -= 1
        queue[tail] = j - 1
        tail += 1
        while done < j - 1 and before[done + 1] <= arrived[j]:
            done += 1
            if done == 1 or compute[done] > compute[done - 1]:
                first = done
        while tail > head and queue[head] <= done:
            head += 1
        if done and arrived[j] + compute[j] - compute[done] < ends[j]:
            ends[j] = arrived[j] + compute[j] - compute[done]
            cut[j] = first
        if tail > head and before[queue[head]] - compute[queue[head]] + compute[j] < ends[j]:
            ends[j] = before[queue[head]] - compute[queue[head]] + compute[j]
            cut[j] = queue[head]
    return ends, cut
