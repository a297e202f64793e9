"""Rows of integers in two flat arrays, the form in which kernels take edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Csr:
    """Rows of indices of unlike lengths in two arrays (compressed sparse rows without values).

    Attributes
    ----------
    indptr
        (rows + 1,): the beginning of each row, and the end of the last.
    indices
        All rows, one after the other: row i is ``indices[indptr[i]:indptr[i + 1]]``.

    Examples
    --------
    >>> from hocket.graph import Csr
    >>> Csr.from_rows([[4, 2], [], [1]]).row(0).tolist()
    [4, 2]
    """

    indptr: Indices
    indices: Indices

    @staticmethod
    def from_lengths(lengths: Sequence[int], indices: Indices) -> Csr:
        """Cut ``indices`` into rows of the given lengths."""
        indptr = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(lengths, out=indptr[1:])
        return Csr(indptr, indices)

    @staticmethod
    def from_rows(rows: Sequence[Sequence[int]]) -> Csr:
        """Build from one sequence of integers a row."""
        entries = np.fromiter(chain.from_iterable(rows), dtype=np.int64)
        return Csr.from_lengths([len(row) for row in rows], entries)

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.indptr) - 1

    def row(self, i: int) -> Indices:
        """Row i, a view."""
        return self.indices[self.indptr[i] : self.indptr[i + 1]]

    def lengths(self) -> Indices:
        """Length of each row, shape (num_rows,)."""
        return np.diff(self.indptr)

    def row_of_entry(self) -> Indices:
        """For each entry of ``indices`` the row it stands in."""
        return np.repeat(np.arange(self.num_rows), self.lengths())

    def transpose(self, num_columns: int) -> Csr:
        """Column j's row lists, in ascending order, the rows that held j."""
        order = np.argsort(self.indices, kind="stable")
        indptr = np.zeros(num_columns + 1, dtype=np.int64)
        np.cumsum(np.bincount(self.indices, minlength=num_columns), out=indptr[1:])
        return Csr(indptr, self.row_of_entry()[order])


def topological_order(inputs: Csr) -> Indices | None:
    """Return an order in which every operation follows its inputs, file order where it can; None for a cycle.

    ``inputs``: row i lists the operations that operation i waits for.
    """
    num_operations = inputs.num_rows
    if bool(np.all(inputs.indices < inputs.row_of_entry())):
        return np.arange(num_operations)
    import heapq

    users = inputs.transpose(num_operations)
    missing = inputs.lengths().tolist()
    indptr, indices = users.indptr.tolist(), users.indices.tolist()
    ready = [i for i in range(num_operations) if missing[i] == 0]
    order = []
    while ready:
        i = heapq.heappop(ready)
        order.append(i)
        for j in indices[indptr[i] : indptr[i + 1]]:
            missing[j] -= 1
            if missing[j] == 0:
                heapq.heappush(ready, j)
    return np.array(order, dtype=np.int64) if len(order) == num_operations else None


def find_cycle(inputs: Csr) -> list[int]:
    """Return one cycle in dependency order, its first operation first; an empty list when there is none."""
    indptr, indices = inputs.indptr.tolist(), inputs.indices.tolist()
    users = inputs.transpose(inputs.num_rows)
    missing = inputs.lengths().tolist()
    stack = [i for i in range(inputs.num_rows) if missing[i] == 0]
    while stack:
        for j in users.row(stack.pop()).tolist():
            missing[j] -= 1
            if missing[j] == 0:
                stack.append(j)
    blocked = [i for i in range(inputs.num_rows) if missing[i] > 0]
    if not blocked:
        return []
    # Every blocked operation has a blocked input, so walking inputs must come back to a place already seen.
    seen: dict[int, int] = {}
    path: list[int] = []
    i = blocked[0]
    while i not in seen:
        seen[i] = len(path)
        path.append(i)
        i = next(j for j in indices[indptr[i] : indptr[i + 1]] if missing[j] > 0)
    cycle = path[seen[i] :][::-1]
    first = cycle.index(min(cycle))
    return cycle[first:] + cycle[:first]
