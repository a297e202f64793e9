"""A worker's processor by itself: what it runs in a step, and when, with one operation after the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hocket.graph import StepGraph
from hocket.graph.csr import Indices
from hocket.graph.step import Seconds
from hocket.graph.update_operations import is_update


def step_operations(graph: StepGraph) -> Indices:
    """Forward and backward in program order: all operations but updates."""
    return graph.order[~is_update(graph)[graph.order]]


@dataclass(frozen=True, eq=False, kw_only=True)
class SerialTimes:
    """A step on a processor that never waits, in seconds from its beginning.

    ``ready_s`` (p,): when each gradient is complete, -inf for a parameter without one. ``used_s`` (p,): when
    the gradient of the step before must have been reduced, because an operation writes it anew, or reads a
    parameter whose update waits for it; inf for never. ``read_s`` (p,): the same, were each parameter's
    update to wait for its own gradient only. ``total_s``: the end of the last operation.
    """

    ready_s: Seconds
    used_s: Seconds
    read_s: Seconds
    total_s: float


def serial_times(graph: StepGraph, order: Indices, durations_s: Seconds | None = None) -> SerialTimes:
    """Run the operations ``order`` (indices), all producers among them; durations: else the oracle's."""
    each_s = graph.oracle_s if durations_s is None else durations_s
    ends = np.cumsum(each_s[order])
    start_s, end_s = np.full(graph.num_operations, np.inf), np.full(graph.num_operations, -np.inf)
    start_s[order], end_s[order] = ends - each_s[order], ends
    ready_s, used_s = np.full(graph.num_parameters, -np.inf), np.full(graph.num_parameters, np.inf)
    maker = graph.produces.row_of_entry()
    np.maximum.at(ready_s, graph.produces.indices, end_s[maker])
    np.minimum.at(used_s, graph.produces.indices, start_s[maker])
    np.minimum.at(used_s, graph.reads.indices, start_s[graph.reads.row_of_entry()])
    return SerialTimes(
        ready_s=ready_s,
        used_s=_passed_on_by_updates(graph, order, used_s),
        read_s=used_s,
        total_s=float(ends[-1]) if len(ends) else 0.0,
    )


def _passed_on_by_updates(graph: StepGraph, order: Indices, used_s: Seconds) -> Seconds:
    """Seconds at which each gradient is needed, from those at which each parameter is used; shape (p,) both.

    An update waits for the gradients of what it reads, for gradients that its inputs complete (only for those
    that it reads, if it reads any of them) and for other updates; all of them are needed as early as what
    it updates. A fused optimizer needs every gradient before the first read of any parameter.
    """
    runs_in_step = np.zeros(graph.num_operations, dtype=bool)
    runs_in_step[order] = True
    needed_s = used_s.copy()
    due_s = np.full(graph.num_operations, np.inf)
    for i in graph.order[~runs_in_step[graph.order]][::-1].tolist():
        reads = graph.reads.row(i)
        due_s[i] = min(due_s[i], used_s[reads].min(initial=np.inf))
        needed_s[reads] = np.minimum(needed_s[reads], due_s[i])
        for j in graph.inputs.row(i).tolist():
            due_s[j] = min(due_s[j], due_s[i])
            completed = graph.produces.row(j)
            if not np.isin(completed, reads).any():
                needed_s[completed] = np.minimum(needed_s[completed], due_s[i])
    return needed_s
