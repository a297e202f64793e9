"""Jobs whose transfers overlap their own computing: of a StepGraph and a Plan, what the engine needs.

An iteration computes the step's operations in the plan's order, by their mean durations; an update runs right
before what first reads its parameters. Each reduction of the plan is a batch. It is complete with the last of
its gradients, and due before the first operation of the next iteration that needs one of them: that reads the
parameter, updates it or computes the gradient anew; at its beginning if the plan's window is "backward".

Differs from the paper (Caramel, section 4)
-------------------------------------------
* All workers begin an iteration together, when all have computed the one before.
* Chunks of one reduction are not told apart: a batch costs a + b times its bytes. Where a policy preempts
  transfers it cuts them into chunks of its own.
* A plan that issues what is ready ("ready") is taken to be in the order in which its reductions are ready.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hocket.cluster.jobs import Batch
from hocket.errors import FormatError
from hocket.graph import Phase, Plan, Reduction, StepGraph, check_plan, load_plan, load_step
from hocket.graph.csr import Indices
from hocket.graph.format_rules import check_whole
from hocket.graph.io import plan_from_document, step_from_document
from hocket.graph.step import Seconds
from hocket.graph.update_operations import is_update
from hocket.planner.worker_processor import serial_times, step_operations

_SOON = 1e-9  # of an iteration


def read_overlapped(
    step: str | dict[str, Any], plan: str | dict[str, Any], folder: Path, where: str
) -> dict[str, Any]:
    """The fields of :func:`lower_step`, of a step and plan that are documents or paths seen from ``folder``.

    Raises
    ------
    FormatError
        Naming the file (of a document ``where`` it stands), the field and the rule.
    """
    graph = load_step(folder / step) if isinstance(step, str) else step_from_document(step, f"{where}.step")
    if isinstance(plan, str):
        source = str(folder / plan)
        return lower_step(graph, load_plan(folder / plan), source)
    source = f"{where}.plan"
    return lower_step(graph, plan_from_document(plan, source), source)


def lower_step(graph: StepGraph, plan: Plan, source: str = "plan") -> dict[str, Any]:
    """``model``, ``forward_s``, ``backward_s``, ``size_bytes`` and ``batches`` of a job that runs ``plan``.

    Raises
    ------
    FormatError
        Naming ``source``, the field and the rule, when the plan is no AllReduce plan of this step.
    """
    check_plan(plan, graph, source)
    if plan.architecture != "allreduce":
        raise FormatError(source, "architecture", "is 'ps'; jobs of a cluster AllReduce: give such a plan")
    check_whole(plan, source, "a job of a cluster")
    if not plan.reductions:
        raise FormatError(source, "reductions", "is empty; a job that overlaps sends something")
    order = _computing_order(graph, plan)
    durations_s = _durations_s(graph, order)
    times = serial_times(graph, order, durations_s)
    if not times.total_s > 0:
        raise FormatError(source, "", "its step computes for no time; an iteration takes some")
    starts_s = np.cumsum(durations_s[order]) - durations_s[order]
    # Where nothing computes between a batch's due time and the end, it is due before what last does.
    latest_s = float(starts_s[durations_s[order] > 0].max())
    index = {name: i for i, name in enumerate(graph.parameter_names)}
    batches = []
    for reduction in plan.reductions:
        members = [index[name] for name in reduction.parameters]
        used_s = float(times.used_s[members].min()) if reduction.window == "forward" else 0.0
        ready_s = float(times.ready_s[members].max())
        batches.append(
            Batch(
                size_bytes=_size_bytes(graph, members, reduction),
                # A gradient without any computing before it is complete with the first of it.
                ready_s=ready_s if ready_s > 0 else times.total_s * _SOON,
                due_s=min(used_s, latest_s, ready_s),
            )
        )
    if plan.issue == "ready":
        batches.sort(key=lambda batch: batch.ready_s)
    backward = np.flatnonzero(graph.phases[order] == Phase.BACKWARD)
    forward_s = float(starts_s[backward[0]]) if len(backward) else times.total_s
    return {
        "model": graph.model,
        "forward_s": forward_s,
        "backward_s": times.total_s - forward_s,
        "size_bytes": sum(batch.size_bytes for batch in batches),
        "batches": tuple(batches),
    }


def _computing_order(graph: StepGraph, plan: Plan) -> Indices:
    """Forward and backward operations in the plan's order, or the program's."""
    if plan.compute_order is None:
        return step_operations(graph)
    update = is_update(graph)
    index = {name: i for i, name in enumerate(graph.operation_names)}
    ordered = np.array([index[name] for name in plan.compute_order], np.int64)
    return ordered[~update[ordered]]


def _durations_s(graph: StepGraph, order: Indices) -> Seconds:
    """Mean durations, (n,): an update's is added to the operation that it has to run before."""
    durations_s: Seconds = graph.durations_s.mean(axis=1)
    position = np.full(graph.num_operations, len(order))
    position[order] = np.arange(len(order))
    first = np.full(graph.num_parameters, len(order))
    reader, read = graph.reads.row_of_entry(), graph.reads.indices
    in_step = position[reader] < len(order)
    np.minimum.at(first, read[in_step], position[reader[in_step]])
    lengthened_s = durations_s.copy()
    for update in np.flatnonzero(is_update(graph)).tolist():
        before = int(first[graph.reads.row(update)].min(initial=len(order)))
        # A parameter that nothing reads is updated at the beginning, with all that a fused update does.
        lengthened_s[order[before if before < len(order) else 0]] += durations_s[update]
    return lengthened_s


def _size_bytes(graph: StepGraph, members: list[int], reduction: Reduction) -> float:
    whole = float(graph.parameter_bytes[members].sum())
    if reduction.slice is None:
        return whole
    first, end, count = reduction.slice
    return whole * (end - first) / count
