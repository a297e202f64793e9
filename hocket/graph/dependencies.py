"""The parameters an operation needs, directly or through its inputs (TicTac section 4.1, ``op.dep``).

Most operations of a network need exactly what another one needs, so operations are grouped into classes of
equal need; planners and bounds work on the few hundred classes instead of the thousands of operations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hocket.graph.csr import Csr, Indices
from hocket.graph.step import StepGraph
from hocket.kernel import kernel, look_for_stop
from hocket.memory import check_memory

Words = npt.NDArray[np.uint64]

_LOOK_EVERY = 1 << 20  # words of sets


@dataclass(frozen=True, eq=False)
class Dependencies:
    """Classes of operations that need the same parameters.

    ``class_of``: for each operation its class, shape (n,). ``needs``: for each class a bit set over
    parameters, shape (classes, ceil(p / 64)), bit i % 64 of word i // 64. Classes appear in topological
    order of their first operation.
    """

    class_of: Indices
    needs: Words

    def rows(self) -> Csr:
        """The parameters of each class, ascending; HocketError where memory does not hold them."""
        held = int(np.bitwise_count(self.needs).sum())
        check_memory(
            64.0 * self.needs.size + 24.0 * held,
            f"{held} pairs of an operation and a parameter that it waits for",
            "give a step of fewer operations",
        )
        bits = np.unpackbits(self.needs.view(np.uint8), axis=1, bitorder="little")
        return Csr.from_lengths(np.count_nonzero(bits, axis=1).tolist(), np.nonzero(bits)[1])


def dependencies(graph: StepGraph) -> Dependencies:
    """Group the operations of ``graph`` by the set of parameters they need; O(edges * p / 64)."""
    class_of = np.empty(graph.num_operations, dtype=np.int64)
    num_words = max(1, -(-graph.num_parameters // 64))
    check_memory(
        8.0 * num_words * graph.num_operations,
        f"{graph.num_operations} operations and {graph.num_parameters} parameters",
        "give a step of fewer operations",
    )
    # One row more than operations is enough for every distinct set; untouched rows cost no memory.
    needs = np.zeros((graph.num_operations + 1, num_words), dtype=np.uint64)
    num_classes = _classes(
        graph.order,
        graph.inputs.indptr,
        graph.inputs.indices,
        graph.reads.indptr,
        graph.reads.indices,
        class_of,
        needs,
    )
    return Dependencies(class_of, needs[:num_classes].copy())


@kernel
def _classes(order, in_ptr, in_idx, read_ptr, read_idx, class_of, needs):
    """Fill ``class_of`` (n,) and ``needs`` (n + 1, words) in place; return the number of classes."""
    num_words = needs.shape[1]
    capacity = 16
    while capacity < 2 * (len(order) + 1):
        capacity *= 2
    slots = np.full(capacity, -1, dtype=np.int64)  # open addressing: hash of a set -> its class
    num_classes = unseen = 0
    for i in order:
        unseen += (2 + in_ptr[i + 1] - in_ptr[i]) * num_words
        if unseen > _LOOK_EVERY:
            unseen = 0
            look_for_stop()
        row = needs[num_classes]
        row[:] = 0
        for e in range(in_ptr[i], in_ptr[i + 1]):
            of_input = needs[class_of[in_idx[e]]]
            for k in range(num_words):
                row[k] |= of_input[k]
        for e in range(read_ptr[i], read_ptr[i + 1]):
            row[read_idx[e] // 64] |= np.uint64(1) << np.uint64(read_idx[e] % 64)
        mixed = np.uint64(14695981039346656037)
        for k in range(num_words):
            mixed = (mixed ^ row[k]) * np.uint64(1099511628211)
            mixed ^= mixed >> np.uint64(29)
        slot = np.int64(mixed & np.uint64(capacity - 1))
        while slots[slot] >= 0:
            other = needs[slots[slot]]
            same = True
            for k in range(num_words):
                if other[k] != row[k]:
                    same = False
                    break
            if same:
                break
            slot = (slot + 1) & (capacity - 1)
        if slots[slot] < 0:
            slots[slot] = num_classes
            num_classes += 1
        class_of[i] = slots[slot]
    return num_classes
