"""Naive twins of Caramel's stages: sets instead of masks, one transfer after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hocket.graph import StepGraph


def needs(graph: StepGraph, gradient: int) -> set[int]:
    """The operations that complete a gradient and all that they need."""
    found: set[int] = set()
    stack = [i for i in range(graph.num_operations) if gradient in graph.produces.row(i).tolist()]
    while stack:
        i = stack.pop()
        if i not in found:
            found.add(i)
            stack += graph.inputs.row(i).tolist()
    return found


def best_order(graph: StepGraph) -> list[int]:
    """Section 4.1, stage 1, with every cost summed anew; times in whole picoseconds."""
    picoseconds = [round(t * 1e12) for t in graph.oracle_s.tolist()]
    ready = graph.gradient_ready().tolist()
    left = {g for g in range(graph.num_parameters) if ready[g] >= 0}
    run: set[int] = set()
    order = []
    while left:
        cost = {g: sum(picoseconds[i] for i in needs(graph, g) - run) for g in left}
        best = min(left, key=lambda g: (cost[g], ready[g], g))
        order.append(best)
        left.remove(best)
        run |= needs(graph, best)
    return order


def added(graph: StepGraph, order: Sequence[int]) -> list[set[int]]:
    """For each gradient of ``order``, the operations it needs that none before it does."""
    run: set[int] = set()
    sets = []
    for g in order:
        sets.append(needs(graph, g) - run)
        run |= needs(graph, g)
    return sets


def topological_order(waits_for: Sequence[set[int]], preference: Sequence[int]) -> list[int]:
    """The order that always takes the most preferred of the operations that wait for nothing."""
    order: list[int] = []
    left = set(range(len(waits_for)))
    while left:
        free = [i for i in left if not waits_for[i] & left]
        assert free, "a cycle"
        order.append(min(free, key=lambda i: preference[i]))
        left.remove(order[-1])
    return order


def batches(
    sizes: Sequence[int], ready: Sequence[float], startup_s: float, s_per_byte: float
) -> list[list[int]]:
    """Section 4.2 for gradients 0, 1, ... of one type, in the order in which they are ready."""
    threshold = round(1.5 * startup_s / s_per_byte)
    sent: list[list[int]] = []
    opened: list[int] = []

    def network_free_at() -> float:
        free = 0.0
        for batch in sent:
            free = max(free, left_at[id(batch)]) + startup_s + s_per_byte * sum(sizes[i] for i in batch)
        return free

    left_at: dict[int, float] = {}
    for i, size in enumerate(sizes):
        if size > threshold:
            sent.append([i])
            left_at[id(sent[-1])] = ready[i]
        else:
            opened.append(i)
        following = ready[i + 1] if i + 1 < len(sizes) else math.inf
        full = sum(sizes[k] for k in opened) > threshold
        if opened and (full or max(network_free_at(), ready[i]) < following):
            sent.append(opened)
            left_at[id(opened)] = ready[i]
            opened = []
    return sent


Batch = tuple[int, float, float, float]  # size, ready, used, travel


def delay(batches: Sequence[Batch], compute: float, backward: set[int], forward: set[int]) -> float:
    """What a step takes longer than it computes, from one batch to the next."""
    clock = 0.0
    for k in sorted(backward, key=lambda k: (batches[k][1], k)):
        clock = max(clock, batches[k][1]) + batches[k][3]
    begin = max(compute, clock)
    paused = 0.0
    for k in sorted(forward, key=lambda k: (batches[k][2], batches[k][1], k)):
        clock = max(clock, batches[k][1]) + batches[k][3]
        read_at = begin + min(batches[k][2], min(batch[1] for batch in batches)) + paused
        paused += max(0.0, clock - read_at)
    return begin - compute + paused


def place(batches: Sequence[Batch], compute: float) -> tuple[set[int], set[int]]:
    """Section 4.3: the batches beside the backward and those beside the forward pass."""
    backward: set[int] = set()
    forward: set[int] = set()
    left_over = []
    by_size = sorted(range(len(batches)), key=lambda k: (-batches[k][0], batches[k][1], k))
    for k in by_size:
        if delay(batches, compute, backward | {k}, forward) == 0:
            backward.add(k)
        elif delay(batches, compute, backward, forward | {k}) == 0:
            forward.add(k)
        else:
            left_over.append(k)
    for k in left_over:
        in_backward = delay(batches, compute, backward | {k}, forward)
        in_forward = delay(batches, compute, backward, forward | {k})
        (forward if in_forward < in_backward else backward).add(k)
    everything = set(range(len(batches)))
    for count in range(len(batches) + 1):
        largest = set(by_size[:count])
        for windows in ((largest, everything - largest), (everything - largest, largest)):
            if delay(batches, compute, *windows) < delay(batches, compute, backward, forward):
                backward, forward = windows
    improved = True
    while improved:
        improved = False
        for k in by_size:
            moved = (backward ^ {k}, forward ^ {k})
            if delay(batches, compute, *moved) < delay(batches, compute, backward, forward):
                backward, forward = moved
                improved = True
                break
    return backward, forward
