"""Naive twins of iBatch: every batching tried, the dynamic program, and the printed Algorithms 1 and 2.

Layers count from 1; ``transfer`` and ``compute`` are lists of whole numbers, element i - 1 for layer i, and
batches are the last layer of each. Whole numbers, so that ties are ties.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

Times = Sequence[int]


def batchings(num_layers: int) -> Iterator[list[int]]:
    """All 2^(L-1) ways to cut L layers, those with fewer batches first."""
    for num_cuts in range(num_layers):
        for cuts in combinations(range(1, num_layers), num_cuts):
            yield [*cuts, num_layers]


def pull_end(ends: Times, transfer: Times, compute: Times, startup: int) -> int:
    """When the last batch is computed: it waits for its transfer; transfers go back to back."""
    arrived = computed = 0
    for before, last in pairwise([0, *ends]):
        arrived += startup + sum(transfer[before:last])
        computed = max(arrived, computed) + sum(compute[before:last])
    return computed


def push_end(ends: Times, transfer: Times, compute: Times, startup: int) -> int:
    """When the last batch is sent: it waits for its last layer; layers are computed back to back."""
    computed = sent = 0
    for before, last in pairwise([0, *ends]):
        computed += sum(compute[before:last])
        sent = max(computed, sent) + startup + sum(transfer[before:last])
    return sent


def dynamic_program(transfer: Times, compute: Times, startup: int) -> tuple[int, list[int]]:
    """The least end and its batches: E(k, j) over (batches, last layer); fewest batches, longest last."""
    num_layers = len(transfer)
    best = {(0, 0): (0, [])}  # (k, j) to (E, batches)
    for k in range(1, num_layers + 1):
        for j in range(k, num_layers + 1):
            arrived = k * startup + sum(transfer[:j])
            found = [
                (max(best[k - 1, i][0], arrived) + sum(compute[i:j]), i)
                for i in range(j)
                if (k - 1, i) in best
            ]
            end, i = min(found)
            best[k, j] = (end, [*best[k - 1, i][1], j])
    return min((best[k, num_layers] for k in range(1, num_layers + 1)), key=lambda found: found[0])


def algorithm_1(transfer: Times, compute: Times, startup: int) -> list[int]:
    """Algorithm 1 line by line; the second batch of fewest layers where lines 4 and 5 leave a choice."""
    num_layers = len(transfer)

    def communicated(a: int, b: int) -> int:
        """T_s + sum of T_t^i over a <= i <= b."""
        return startup + sum(transfer[a - 1 : b])

    def computed(a: int, b: int) -> int:
        """Sum of C^i over a <= i <= b."""
        return sum(compute[a - 1 : b])

    s1 = list(combinations(range(1, num_layers + 1), 2))
    s2 = [(l1, l2) for l1, l2 in s1 if communicated(l1 + 1, l2) >= computed(1, l1)]
    if not s2:
        return [num_layers]
    most = max(computed(1, l1) for l1, _ in s2)
    selected = [(l1, l2) for l1, l2 in s2 if computed(1, l1) == most]
    least = min(communicated(1, l1) for l1, _ in selected)
    selected = [(l1, l2) for l1, l2 in selected if communicated(1, l1) == least]
    l1, l2 = min(selected, key=lambda pair: (pair[1] - pair[0], pair[0]))
    ends = [l1, l2]
    while ends[-1] != num_layers:
        k_2, k_1 = ends[-2:]
        layers = [
            x for x in range(k_1 + 1, num_layers + 1) if communicated(k_1 + 1, x) >= computed(k_2 + 1, k_1)
        ]
        difference = {x: communicated(k_1 + 1, x) - computed(k_2 + 1, k_1) for x in layers}
        ends.append(min(layers, key=lambda x: (difference[x], x)) if layers else num_layers)
    return ends


def algorithm_2(transfer: Times, compute: Times, startup: int) -> list[int]:
    """Algorithm 2 line by line; the latest split where lines 4, 5 and 11 leave a choice."""
    num_layers = len(transfer)

    def communicated(a: int, b: int) -> int:
        return startup + sum(transfer[a - 1 : b])

    def computed(a: int, b: int) -> int:
        return sum(compute[a - 1 : b])

    s1 = [(n_1, n_2) for n_1 in range(1, num_layers) for n_2 in range(n_1)]
    s2 = [(n_1, n_2) for n_1, n_2 in s1 if communicated(n_1 + 1, num_layers) >= computed(n_2 + 1, n_1)]
    if not s2:
        return [num_layers]
    most = max(computed(n_2 + 1, n_1) for n_1, n_2 in s2)
    selected = [(n_1, n_2) for n_1, n_2 in s2 if computed(n_2 + 1, n_1) == most]
    least = min(computed(n_1 + 1, num_layers) for n_1, _ in selected)
    n_1, n_2 = max((n_1, n_2) for n_1, n_2 in selected if computed(n_1 + 1, num_layers) == least)
    splits = [n_2, n_1, num_layers]
    while splits[0] != 0:
        k_1, k_2 = splits[:2]
        layers = [x for x in range(k_1) if communicated(k_1 + 1, k_2) >= computed(x + 1, k_1)]
        difference = {x: communicated(k_1 + 1, k_2) - computed(x + 1, k_1) for x in layers}
        splits.insert(0, min(layers, key=lambda x: (difference[x], -x)) if layers else k_1 - 1)
    return splits[1:]
