"""Parameters that travel in slices (P3), each slice a parameter of its own.

P3 cuts large parameters so that an urgent one waits for a slice at most; a slice is pushed, updated and
pulled by itself. A sliced parameter is read when all of its slices are there, and all of them are produced
together; an update operation that reads nothing else is cut with it, its time shared out evenly.
"""

from __future__ import annotations

import msgspec
import numpy as np

from hocket.graph import (
    OperationRow,
    ParameterRow,
    Plan,
    Pull,
    Push,
    Reduction,
    StepGraph,
    StepRows,
    step_from_rows,
)
from hocket.graph.csr import Indices
from hocket.graph.format_rules import SHORTEST_S
from hocket.graph.io import step_document
from hocket.graph.update_operations import is_update

Pieces = dict[str, tuple[str, ...]]


def slice_step(graph: StepGraph, plan: Plan) -> tuple[StepGraph, Plan]:
    """The step and plan in which every slice of ``plan`` is a parameter; the same where nothing is cut."""
    if plan.architecture == "ps":  # what the other one would send has no part in it
        plan = msgspec.structs.replace(plan, reductions=())
    else:
        plan = msgspec.structs.replace(plan, pulls=(), pushes=())
    chunks = np.ones(graph.num_parameters, np.int64)
    index = {name: i for i, name in enumerate(graph.parameter_names)}
    for pull in plan.pulls:
        chunks[index[pull.parameters[0]]] = pull.chunks
    for reduction in plan.reductions:
        if reduction.slice is not None:
            chunks[index[reduction.parameters[0]]] = reduction.slice[2]
    if chunks.max(initial=1) == 1:
        return graph, plan
    cut, pieces = slice_graph(graph, chunks)
    cut_plan = msgspec.structs.replace(
        plan,
        pulls=tuple(
            Pull(parameters=batch, priority=pull.priority)
            for pull in plan.pulls
            for batch in _batches(pull, pieces)
        ),
        pushes=tuple(Push(parameters=batch) for push in plan.pushes for batch in _batches(push, pieces)),
        reductions=tuple(_of_slice(reduction, pieces) for reduction in plan.reductions),
    )
    return cut, cut_plan


def slice_graph(graph: StepGraph, chunks: Indices) -> tuple[StepGraph, Pieces]:
    """Cut each parameter into ``chunks`` (p,) equal slices, and name the slices of each."""
    if chunks.max(initial=1) == 1:
        return graph, {name: (name,) for name in graph.parameter_names}
    # Brackets that no name of the step ends with, so that a slice's name is nobody else's.
    close = "]"
    while any(name.endswith(close) for name in (*graph.parameter_names, *graph.operation_names)):
        close += "]"
    pieces: Pieces = {
        name: tuple(f"{name}[{j}{close}" for j in range(count)) if count > 1 else (name,)
        for name, count in zip(graph.parameter_names, chunks.tolist(), strict=True)
    }
    rows = msgspec.convert(step_document(graph), StepRows)
    parameters = []
    for parameter in rows.parameters:
        cuts = np.linspace(0, parameter.bytes, len(pieces[parameter.name]) + 1).astype(np.int64)
        parameters += [
            ParameterRow(name, [int(size)], parameter.dtype, int(size))
            for name, size in zip(pieces[parameter.name], np.diff(cuts), strict=True)
        ]
    cut_by = {
        row.name: row.reads[0]
        for row, update in zip(rows.operations, is_update(graph), strict=True)
        if update and len(row.reads) == 1 and len(pieces[row.reads[0]]) > 1
    }
    operations = []
    for row in rows.operations:
        produces = [piece for name in row.produces for piece in pieces[name]]
        own = cut_by.get(row.name)
        if own is None:
            inputs = [part for name in row.inputs for part in _parts(name, cut_by, pieces, close)]
            reads = [piece for name in row.reads for piece in pieces[name]]
            operations.append(OperationRow(row.name, row.phase, row.duration_s, inputs, reads, produces))
            continue
        samples = row.duration_s if isinstance(row.duration_s, list) else [row.duration_s]
        share = [_share(duration_s, len(pieces[own])) for duration_s in samples]
        for j, piece in enumerate(pieces[own]):
            # An input cut by the same parameter comes slice by slice, any other as a whole.
            inputs = [
                part
                for name in row.inputs
                for part in (
                    [f"{name}[{j}{close}"] if cut_by.get(name) == own else _parts(name, cut_by, pieces, close)
                )
            ]
            name = f"{row.name}[{j}{close}"
            operations.append(OperationRow(name, row.phase, share, inputs, [piece], produces))
    return step_from_rows(msgspec.structs.replace(rows, parameters=parameters, operations=operations)), pieces


def _share(duration_s: float, count: int) -> float:
    """An equal part, or nothing where it would be shorter than any duration may be."""
    return duration_s / count if duration_s / count >= SHORTEST_S else 0.0


def _parts(name: str, cut_by: dict[str, str], pieces: Pieces, close: str) -> list[str]:
    if name not in cut_by:
        return [name]
    return [f"{name}[{j}{close}" for j in range(len(pieces[cut_by[name]]))]


def _of_slice(reduction: Reduction, pieces: Pieces) -> Reduction:
    if reduction.slice is None:
        return reduction
    first, end, _ = reduction.slice
    batch = pieces[reduction.parameters[0]][first:end]
    return msgspec.structs.replace(reduction, parameters=batch, slice=None)


def _batches(transfer: Pull | Push, pieces: Pieces) -> list[tuple[str, ...]]:
    if transfer.chunks > 1:
        return [(piece,) for piece in pieces[transfer.parameters[0]]]
    return [tuple(piece for name in transfer.parameters for piece in pieces[name])]
