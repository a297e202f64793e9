"""Order between operations, and the work before and after each on a worker's one processor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hocket.graph.csr import Csr, Indices
from hocket.kernel import kernel, look_for_stop

Words = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]

# Bit sets of everything before everything take operations squared / 8 bytes; past this they are left out,
# and bounds only know longest paths.
LARGEST = 12_000


@dataclass(frozen=True, eq=False)
class Reach:
    """Ancestors of each operation, itself included: ``before`` (n, words), bit j % 64 of word j // 64."""

    before: Words

    def mask(self, operation: int) -> npt.NDArray[np.bool_]:
        """The operation and what must run before it, (n,)."""
        bits = np.unpackbits(self.before[operation].view(np.uint8), bitorder="little")
        return bits[: len(self.before)].astype(bool)

    def after_mask(self, operation: int) -> npt.NDArray[np.bool_]:
        """The operation and what it must run before, (n,)."""
        word, bit = operation // 64, np.uint64(operation % 64)
        mask: npt.NDArray[np.bool_] = (self.before[:, word] >> bit & np.uint64(1)).astype(bool)
        return mask

    def work_before(self, sets: Csr, work_s: Floats, counted_operations: npt.NDArray[np.bool_]) -> Floats:
        """For each row of ``sets``, the work of its ``counted_operations`` and of those before them."""
        result: Floats = _work_of_unions(
            self.before, sets.indptr, sets.indices, np.where(counted_operations, work_s, 0.0)
        )
        return result


def reach(inputs: Csr, order: Indices) -> Reach:
    """Everything before every operation; ``inputs`` rows, ``order`` a topological order."""
    return Reach(_before(inputs.indptr, inputs.indices, order))


@kernel
def _before(indptr, indices, order):
    n = len(order)
    before = np.zeros((n, (n + 63) // 64), np.uint64)
    for i in order:
        if i % 64 == 0:
            look_for_stop()
        for e in range(indptr[i], indptr[i + 1]):
            for k in range(before.shape[1]):
                before[i, k] |= before[indices[e], k]
        before[i, i // 64] |= np.uint64(1) << np.uint64(i % 64)
    return before


@kernel
def _work_of_unions(before, indptr, indices, work):
    num_words = before.shape[1]
    union = np.empty(num_words, np.uint64)
    sums = np.zeros(len(indptr) - 1)
    for row in range(len(sums)):
        if row % 64 == 63:
            look_for_stop()
        union[:] = np.uint64(0)
        for e in range(indptr[row], indptr[row + 1]):
            for k in range(num_words):
                union[k] |= before[indices[e], k]
        for k in range(num_words):
            word = union[k]
            j = 64 * k
            while word != 0:
                if word & np.uint64(1):
                    sums[row] += work[j]
                word >>= np.uint64(1)
                j += 1
    return sums


@kernel
def preemptive_bound(head, work, tail):
    """The optimum of a preemptive machine with heads and tails: what no schedule of the items can beat.

    head, work, tail (k,): seconds; longest tail first (Jackson; Carlier 1982). Equal to the maximum over sets
    of items of earliest head + all work + shortest tail.
    """
    n = len(head)
    order = np.argsort(head)
    left = work.copy()
    heap = np.empty(n, np.int64)  # by longest tail
    size = 0
    coming = 0
    now = 0.0
    best = 0.0
    while coming < n or size > 0:
        if size == 0:
            now = max(now, head[order[coming]])
        while coming < n and head[order[coming]] <= now:
            i = size
            item = order[coming]
            while i > 0 and tail[heap[(i - 1) // 2]] < tail[item]:
                heap[i] = heap[(i - 1) // 2]
                i = (i - 1) // 2
            heap[i] = item
            size += 1
            coming += 1
        item = heap[0]
        if coming < n and now + left[item] > head[order[coming]]:
            left[item] -= head[order[coming]] - now
            now = head[order[coming]]
            continue
        now += left[item]
        best = max(best, now + tail[item])
        size -= 1
        last = heap[size]
        i = 0
        while 2 * i + 1 < size:
            child = 2 * i + 1
            if child + 1 < size and tail[heap[child + 1]] > tail[heap[child]]:
                child += 1
            if tail[heap[child]] <= tail[last]:
                break
            heap[i] = heap[child]
            i = child
        heap[i] = last
    return best


@kernel
def longest_paths(order, next_ptr, next_idx, work, head, tail):
    """Raise ``head`` and ``tail`` (nodes,) in place to the longest paths before and after each node."""
    for i in order:
        done = head[i] + work[i]
        for e in range(next_ptr[i], next_ptr[i + 1]):
            head[next_idx[e]] = max(head[next_idx[e]], done)
    for k in range(len(order) - 1, -1, -1):
        i = order[k]
        for e in range(next_ptr[i], next_ptr[i + 1]):
            tail[i] = max(tail[i], work[next_idx[e]] + tail[next_idx[e]])
