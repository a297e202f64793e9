"""The bound of one machine: no order of its items beats it when an item, once begun, is finished first.

The one-machine sequencing problem 1 | r_j, q_j | Cmax by branch and bound: J. Carlier, The one-machine
sequencing problem, EJOR 11 (1982). Every node is scheduled by Schrage's rule (of the items that are there,
the one with the longest tail). On that schedule's critical path let c be the last item whose tail is shorter
than the path's last one, and J the items after it. Without a c the schedule is the node's best; with one, a
better schedule runs c before all of J, which lengthens c's tail, or after all of J, which raises its head.
Those are the node's two children, bounded by :func:`hocket.sim.bounds.reach.preemptive_bound` on what they
changed; that covers the bounds of J and of J with c, being the maximum over all sets of items. Differences
from the paper: the node with the lowest bound is always next, so the search can stop at any time with a
bound; the incumbent is the schedule's length without the changes; and there is no test that moves items other
than c.
"""

from __future__ import annotations

import heapq
import math

import numpy as np

from hocket.graph.csr import Indices
from hocket.kernel import kernel, look_for_stop
from hocket.sim.bounds.reach import Floats, preemptive_bound

# Lengths that differ by less than this share are the same length.
SAME = 1e-12
# Seconds become whole numbers of which all sums in the search stay below 2 ** 53: floats add those exactly.
BITS = 50


def without_preemption(head: Floats, work: Floats, tail: Floats, max_nodes: int) -> float:
    """The shortest a machine can take that finishes what it begins, or a bound below it after ``max_nodes``.

    head, work, tail (k,): seconds, at least 0: when an item can start, how long it runs, what must follow it.
    An item without work has its place in the order too: it waits for the item that is running. The result is
    at least :func:`one_machine`'s, but for rounding, and never above the length of any order, rounded or not:
    all three are rounded down to multiples of the longest possible schedule / 2 ** 50, and the rest is exact.
    """
    longest_s = float(head.max() + work.sum() + tail.max()) if len(head) else 0.0
    if longest_s == 0.0:
        return 0.0
    shift = BITS - math.frexp(longest_s)[1]
    length: float = _search(
        np.floor(np.ldexp(head, shift)),
        np.floor(np.ldexp(work, shift)),
        np.floor(np.ldexp(tail, shift)),
        max_nodes,
    )
    return math.ldexp(length, -shift)


@kernel
def _search(head: Floats, work: Floats, tail: Floats, max_nodes: int) -> float:
    """Best first; head, work, tail (k,) hold whole numbers."""
    # A node is its parent and what it changes: the head and tail of one item.
    parent = np.zeros(2 * max_nodes + 1, np.int64)
    moved = np.zeros(2 * max_nodes + 1, np.int64)
    new_head = np.zeros(2 * max_nodes + 1)
    new_tail = np.zeros(2 * max_nodes + 1)
    num_nodes = 1
    shortest = np.inf
    # Among equal bounds the latest node: the deepest, and of two children the one with c after J, since c
    # before J is about what Schrage's rule has just tried. On large instances this saves most of the nodes.
    waiting = [(preemptive_bound(head, work, tail), 0)]
    for _ in range(max_nodes):
        if len(waiting) == 0 or waiting[0][0] >= shortest * (1.0 - SAME):
            break
        look_for_stop()
        bound, key = heapq.heappop(waiting)
        heads, tails = head.copy(), tail.copy()
        node = -key
        while node > 0:
            item = moved[node]
            heads[item] = max(heads[item], new_head[node])
            tails[item] = max(tails[item], new_tail[node])
            node = parent[node]
        sequence = _schrage(heads, work, tails)
        shortest = min(shortest, _ends(head, work, tail, sequence)[1])
        before, last = _critical(heads, work, tails, sequence)
        if before < 0:
            continue
        c, together = sequence[before], sequence[before + 1 : last + 1]
        work_of_j = work[together].sum()
        for after in (False, True):
            old_head, old_tail = heads[c], tails[c]
            if after:
                heads[c] = max(old_head, heads[together].min() + work_of_j)
            else:
                tails[c] = max(old_tail, work_of_j + tails[sequence[last]])
            child_bound = max(bound, preemptive_bound(heads, work, tails))
            if child_bound < shortest:
                parent[num_nodes], moved[num_nodes] = -key, c
                new_head[num_nodes], new_tail[num_nodes] = heads[c], tails[c]
                heapq.heappush(waiting, (child_bound, -num_nodes))
                num_nodes += 1
            heads[c], tails[c] = old_head, old_tail
    if len(waiting) == 0:
        return shortest
    lowest: float = waiting[0][0]
    return min(shortest, lowest)


@kernel
def _schrage(head: Floats, work: Floats, tail: Floats) -> Indices:
    """Whenever the machine is free: the item that is there with the longest tail, then the most work."""
    n = len(head)
    order = np.argsort(head)
    sequence = np.empty(n, np.int64)
    ready = [(0.0, 0.0, 0)]
    ready.pop()
    coming = 0
    now = 0.0
    for k in range(n):
        if len(ready) == 0:
            now = max(now, head[order[coming]])
        while coming < n and head[order[coming]] <= now:
            item = order[coming]
            heapq.heappush(ready, (-tail[item], -work[item], item))
            coming += 1
        item = heapq.heappop(ready)[2]
        sequence[k] = item
        now += work[item]
    return sequence


@kernel
def _ends(head: Floats, work: Floats, tail: Floats, sequence: Indices) -> tuple[Floats, float]:
    """Seconds at which each place of the sequence (k,) ends, and the whole length with the tails."""
    ends = np.empty(len(sequence))
    now = 0.0
    length = 0.0
    for k, item in enumerate(sequence):
        now = max(now, head[item]) + work[item]
        ends[k] = now
        length = max(length, now + tail[item])
    return ends, length


@kernel
def _critical(head: Floats, work: Floats, tail: Floats, sequence: Indices) -> tuple[int, int]:
    """Places in the sequence of c, or -1, and of the critical path's last item."""
    ends, length = _ends(head, work, tail, sequence)
    last = 0
    while ends[last] + tail[sequence[last]] < length:
        last += 1
    place = last
    while place > 0 and head[sequence[place]] <= ends[place - 1]:
        place -= 1
        if tail[sequence[place]] < tail[sequence[last]]:
            return place, last
    return -1, last
