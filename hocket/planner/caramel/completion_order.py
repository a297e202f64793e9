"""In which order gradients are completed, and what makes every worker keep it (Caramel section 4.1).

Differs from the paper
----------------------
* Equal costs go by program order; the paper leaves ties open. Times are whole picoseconds, so that ties are
  ties and not rounding.
* A gradient that needs nothing more than those before it gets no edges of its own: it is complete when they
  are. The edges run from the last gradient before it that did.
* Of an end set, only operations that the gradient adds get edges, and none repeats an edge of the graph: the
  others follow from those.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hocket.graph import Csr, StepGraph
from hocket.graph.csr import Indices, topological_order
from hocket.planner.pull_plan import gradient_order
from hocket.planner.worker_processor import step_operations

Edge = tuple[int, int]


def best_order(graph: StepGraph) -> list[int]:
    """Stage 1: the trained parameters in the order in which their gradients shall be completed.

    Repeatedly the gradient whose operations (producers and everything they need) that have not run yet cost
    least, with each operation's minimum over the samples. O(n p) for n operations and p parameters.
    """
    needs = _gradient_needs(graph)
    # int64 holds 106 days in picoseconds; longer steps are counted more coarsely.
    ticks_per_s = min(1e12, 2.0**62 / max(float(graph.oracle_s.sum()), 1e-300))
    ticks = np.rint(graph.oracle_s * ticks_per_s).astype(np.int64)
    cost = ticks @ needs
    waiting = np.array(gradient_order(graph), dtype=np.int64)
    not_run = np.ones(graph.num_operations, dtype=bool)
    order = []
    while len(waiting):
        least = int(np.argmin(cost[waiting]))
        order.append(int(waiting[least]))
        runs = np.flatnonzero(needs[:, order[-1]] & not_run)
        cost -= ticks[runs] @ needs[runs]
        not_run[runs] = False
        waiting = np.delete(waiting, least)
    return order


def control_edges(graph: StepGraph, order: list[int]) -> list[Edge]:
    """Stage 2: pairs (operation, operation that has to wait for it) that make workers complete ``order``.

    From the end set of a gradient (the operations that complete it) to the free set of the next (of the
    operations that it adds, those that need none of the others). With these edges, whatever a gradient adds
    runs after all that the gradients before it need; operations that no gradient needs stay free.

    ``order``: trained parameters, each once. The edges are acyclic together with the graph's.
    """
    needs = _gradient_needs(graph)
    makers = graph.produces.transpose(graph.num_parameters)
    not_run = np.ones(graph.num_operations, dtype=bool)
    edges: list[Edge] = []
    end_set: list[int] = []
    for gradient in order:
        added = needs[:, gradient] & not_run
        if not added.any():
            continue
        for i in np.flatnonzero(added).tolist():
            inputs = graph.inputs.row(i)
            if not added[inputs].any():
                edges += [(end, i) for end in end_set if end not in inputs]
        end_set = [i for i in makers.row(gradient).tolist() if added[i]]
        not_run &= ~added
    return edges


def compute_order(graph: StepGraph, edges: list[Edge]) -> Indices:
    """Every operation of forward and backward, after its inputs and ``edges``, else in program order.

    Operations that no gradient needs come last, where they delay no transfer.
    """
    rows = [graph.inputs.row(i).tolist() for i in range(graph.num_operations)]
    for end, free in edges:
        rows[free].append(end)
    ordered = topological_order(Csr.from_rows(rows))
    assert ordered is not None, "edges from what has run to what has not cannot close a cycle"
    needed = _needed_by(graph, graph.produces.lengths() > 0)
    others = np.zeros(graph.num_operations, dtype=bool)
    others[step_operations(graph)] = True
    others &= ~needed
    return np.concatenate([ordered[needed[ordered]], ordered[others[ordered]]])


def _gradient_needs(graph: StepGraph) -> npt.NDArray[np.bool_]:
    """True if completing a gradient needs an operation, directly or through inputs, shape (n, p)."""
    needs = np.zeros((graph.num_operations, graph.num_parameters), dtype=bool)
    needs[graph.produces.row_of_entry(), graph.produces.indices] = True
    for i in graph.order[::-1].tolist():
        needs[graph.inputs.row(i)] |= needs[i]
    return needs


def _needed_by(graph: StepGraph, operations: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """The operations of the mask ``operations`` and all that they need, a mask of shape (n,)."""
    needed = operations.copy()
    for i in graph.order[::-1].tolist():
        if needed[i]:
            needed[graph.inputs.row(i)] = True
    return needed
