"""Rows of units by what a further one meets: times, paths to the end, bytes held; and those that are left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hocket.graph.csr import Indices
from hocket.kernel import kernel

Labels = npt.NDArray[np.float64]
"""(n, 9): rows of units, by the columns below, of which less is better."""
NEXT, LAST = 0, 1
"""Times: from when on the next all-gather may start, and when the last unit begins to compute."""
COMPUTING, QUEUE, SCATTER, OLDER, BETWEEN = 2, 3, 4, 5, 6
"""Seconds to the step's end from: computing before the last unit's backward pass, the queue of collectives,
the newest and the older reduce-scatter that are waited for, and the queue between replicas."""
BYTES, BEFORE = 7, 8
"""Held in the backward pass beside reduce-scatters: for the last unit, and for the one before it."""
COLUMNS = 9
NEVER = -np.inf


@dataclass(frozen=True, eq=False, kw_only=True)
class UnitRows:
    """Rows of units that end before the same block, and of each row's last unit what the next one meets.

    ``begin`` (n,): its first block; ``row`` (n,): its label's place; ``computed_s``: when it has computed;
    ``gather_s``, ``gathered``: of its all-gather in the backward pass; ``held``: bytes in the forward pass
    when the next unit is gathered ahead of it; ``scattered``: of its gradients.
    """

    labels: Labels
    begin: Indices
    row: Indices
    computed_s: Labels
    gather_s: Labels
    gathered: Labels
    held: Labels
    scattered: Labels


@kernel
def undominated(labels: Labels) -> npt.NDArray[np.bool_]:
    """Tell of each row, in the order of their columns, if no other is as good in every column."""
    n, width = labels.shape
    kept = np.ones(n, np.bool_)
    for i in range(1, n):
        for j in range(i):
            if kept[j]:
                better = True
                for k in range(width):
                    if labels[j, k] > labels[i, k]:
                        better = False
                        break
                if better:
                    kept[i] = False
                    break
    return kept
