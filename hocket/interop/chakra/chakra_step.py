"""Chakra execution traces as a step: those that Hocket exported, and other tools'.

Ours read back to an equal graph; what becomes of others is told in :mod:`hocket.interop.chakra.foreign`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from hocket.document import decode, read_bytes
from hocket.errors import FormatError
from hocket.graph import OperationRow, ParameterRow, StepRows, step_from_rows
from hocket.interop.chakra.chakra_export import STEP_ATTRIBUTE
from hocket.interop.chakra.foreign import foreign_step
from hocket.interop.chakra.schema import NodeType, attributes, data_dependencies, read_messages
from hocket.interop.imported import ImportedStep


class _Head(msgspec.Struct, frozen=True):
    model: str
    batch_size: int
    device: str
    parameters: list[ParameterRow]


def import_chakra(paths: Sequence[str | Path], *, allow_no_gradients: bool = False) -> ImportedStep:
    """Read Chakra files, one a rank: each rank's durations are a sample of the same step.

    allow_no_gradients : a step whose exchange of gradients cannot be told comes without parameters, to be
        looked at, and a note says why; else it is refused.

    Raises
    ------
    FormatError
        Naming the file, the node and the rule.
    """
    first: StepRows | None = None
    notes: list[str] = []
    durations: list[list[list[float]]] = []
    for path in paths:
        rows, own_notes = _read(path, allow_no_gradients)
        notes += [f"{path}: {note}" for note in own_notes]
        if first is None:
            first = rows
        else:
            _require_same(first, rows, str(paths[0]), str(path))
        durations.append([_samples(operation) for operation in rows.operations])
    assert first is not None, "the command line asks for a file"
    if len(paths) > 1:
        operations = [
            msgspec.structs.replace(row, duration_s=[value for own in durations for value in own[i]])
            for i, row in enumerate(first.operations)
        ]
        first = msgspec.structs.replace(first, operations=operations)
    return ImportedStep(step_from_rows(first, str(paths[0])), tuple(notes))


def _samples(row: OperationRow) -> list[float]:
    return row.duration_s if isinstance(row.duration_s, list) else [row.duration_s]


def _require_same(first: StepRows, other: StepRows, first_source: str, source: str) -> None:
    if first.parameters != other.parameters:
        rule = f"its collectives are not those of {first_source}; give ranks of one job"
        raise FormatError(source, "nodes", rule)
    shapes = [[(o.name, o.inputs) for o in rows.operations] for rows in (first, other)]
    if shapes[0] != shapes[1]:
        rule = f"its nodes or their dependencies are not those of {first_source}; give ranks that do the same"
        raise FormatError(source, "nodes", rule)


def _read(path: str | Path, allow_no_gradients: bool) -> tuple[StepRows, list[str]]:
    source = str(path)
    metadata, nodes = read_messages(read_bytes(path), source)
    if not nodes:
        raise FormatError(source, "nodes", "the trace holds none")
    place: dict[int, int] = {}
    for i, node in enumerate(nodes):
        if place.setdefault(node.id, i) != i:
            raise FormatError(source, f"node {i}", f"id {node.id} is a duplicate; ids are unique")
    head = attributes(metadata).get(STEP_ATTRIBUTE)
    if isinstance(head, str):
        rows = _ours(decode(head.encode(), _Head, "hocket.step/1", source), nodes, place, source)
        if not rows.parameters and not allow_no_gradients:
            rule = "the step has no parameters; give --allow-no-gradients, to look at it"
            raise FormatError(source, "parameters", rule)
        return rows, []
    return foreign_step(Path(path), nodes, place, allow_no_gradients=allow_no_gradients)


def _ours(head: _Head, nodes: list[Any], place: dict[int, int], source: str) -> StepRows:
    operations = []
    for node in nodes:
        # Data dependencies on reductions, and control dependencies, are a plan's.
        before = [nodes[i] for i in data_dependencies(node, place, source)]
        if node.type != NodeType.COMP:
            continue
        known = attributes(node)
        row = {key: known.get(key) for key in ("phase", "duration_s", "reads", "produces")}
        row |= {"name": node.name, "inputs": [other.name for other in before if other.type == NodeType.COMP]}
        try:
            operations.append(msgspec.convert(row, OperationRow))
        except msgspec.ValidationError as error:
            rule = str(error)
            raise FormatError(source, f"node {node.id}", rule[:1].lower() + rule[1:]) from None
    return StepRows(
        model=head.model,
        batch_size=head.batch_size,
        device=head.device,
        parameters=head.parameters,
        operations=operations,
    )
