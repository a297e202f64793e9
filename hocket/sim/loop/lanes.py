"""Data structures of event loops: a tree over lanes that finds the next event, and a heap for each lane."""

from __future__ import annotations

from hocket.kernel import kernel


@kernel
def set_time(tree, lane, time):
    """Let ``lane``'s next event be at ``time``; tree (2 * leaves,): minima over a power of two of lanes."""
    i = len(tree) // 2 + lane
    tree[i] = time
    i //= 2
    while i >= 1:
        least = min(tree[2 * i], tree[2 * i + 1])
        if tree[i] == least:
            break
        tree[i] = least
        i //= 2


@kernel
def first_lane(tree):
    """The lane whose event is next, the lowest of several."""
    leaves = len(tree) // 2
    i = 1
    while i < leaves:
        i = 2 * i if tree[2 * i] <= tree[2 * i + 1] else 2 * i + 1
    return i - leaves


@kernel
def next_lane(tree, instant):
    """The lane whose event is next, and whether another lane's event is due at ``instant`` too."""
    leaves = len(tree) // 2
    i, more = 1, False
    while i < leaves:
        left, right = tree[2 * i], tree[2 * i + 1]
        more |= max(left, right) <= instant
        i = 2 * i + (right < left)
    return i - leaves, more


@kernel
def push(heap, first, size, entry):
    """Add to the heap of ``size`` entries that begins at ``heap[first]``."""
    i = size
    while i > 0 and heap[first + (i - 1) // 2] > entry:
        heap[first + i] = heap[first + (i - 1) // 2]
        i = (i - 1) // 2
    heap[first + i] = entry


@kernel
def drop_first(heap, first, size):
    """Take the least entry out of the heap of ``size`` entries that begins at ``heap[first]``."""
    last = heap[first + size - 1]
    i = 0
    while 2 * i + 1 < size - 1:
        child = 2 * i + 1
        if child + 1 < size - 1 and heap[first + child + 1] < heap[first + child]:
            child += 1
        if heap[first + child] >= last:
            break
        heap[first + i] = heap[first + child]
        i = child
    heap[first + i] = last
