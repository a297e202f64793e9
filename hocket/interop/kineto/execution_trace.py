"""PyTorch's ExecutionTraces, joined to a Kineto trace: the tensors of operators, and their storages.

Read are schema 1.0 (flat nodes with ``rf_id``, ``inputs`` and ``input_shapes``) and 1.1 (``inputs`` with
values, shapes and types, other fields as ``attrs``). An operator of the Kineto trace and a node of the
ExecutionTrace are the same if Kineto's ``Record function id`` is the node's ``rf_id`` and the names
agree. Kineto traces before PyTorch 2.1 have no such ids, and runs of their own have others: then the k-th
operator of a name in a step is the k-th node of that name in a step of the ExecutionTrace, for names that
occur as often in both.

**Dataflow.** An operation comes after whatever wrote last to the storages of its tensors. A storage is
written by results, and by arguments that the operator's schema marks (``Tensor(a!)``). Storages count,
not tensors: a view has a tensor of its own. Where no writer is known the order on the stream stays.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hocket.document import decode, read_bytes
from hocket.errors import FormatError
from hocket.graph import Phase
from hocket.interop.kineto.events import OPTIMIZER_PREFIX, HostSpan, Trace
from hocket.interop.kineto.tensors import Tensor, tensor_of
from hocket.interop.kineto.traced_operations import TracedStep

_TENSOR_FIELDS = 6
# An ExecutionTrace with which fewer operators agree is of something else.
_LEAST_SHARE = 0.5


class _Values(msgspec.Struct, frozen=True):
    values: list[Any] = []
    shapes: list[Any] = []
    types: list[Any] = []


class _Attribute(msgspec.Struct, frozen=True):
    name: str
    value: Any = None


class _NodeRow(msgspec.Struct, frozen=True):
    id: int
    name: str
    inputs: _Values | list[Any]
    outputs: _Values | list[Any]
    parent: int | None = None
    ctrl_deps: int | None = None
    rf_id: int | None = None
    op_schema: str = ""
    input_shapes: list[Any] = []
    input_types: list[Any] = []
    attrs: list[_Attribute] = []


class _ExecutionTraceFile(msgspec.Struct, frozen=True):
    schema: str
    nodes: list[_NodeRow]


@dataclass(slots=True, eq=False)
class TraceNode:
    """An operator as it ran; ``reads`` and ``writes`` are storages."""

    id: int
    name: str
    parent: int | None
    function_id: int | None
    reads: frozenset[Any]
    writes: frozenset[Any]
    first: Tensor | None


@dataclass(frozen=True, kw_only=True)
class ExecutionTrace:
    """The nodes of an ExecutionTrace in the order of their start."""

    source: str
    nodes: Sequence[TraceNode]


def read_execution_trace(path: str | Path) -> ExecutionTrace:
    """Read an ExecutionTrace (``.json`` or ``.json.gz``).

    Raises
    ------
    FormatError
        Naming the file, the node and the rule.
    """
    source = str(path)
    file = decode(read_bytes(path), _ExecutionTraceFile, "", source)
    ids = Counter(row.id for row in file.nodes)
    twice = next((id_ for id_, count in ids.items() if count > 1), None)
    if twice is not None:
        raise FormatError(source, "nodes", f"id {twice} is a duplicate; ids are unique")
    return ExecutionTrace(source=source, nodes=sorted(map(_node, file.nodes), key=lambda node: node.id))


def _node(row: _NodeRow) -> TraceNode:
    flat = not isinstance(row.inputs, _Values)
    values = row.inputs if isinstance(row.inputs, list) else row.inputs.values
    shapes = row.input_shapes if flat else row.inputs.shapes  # type: ignore[union-attr]
    types = row.input_types if flat else row.inputs.types  # type: ignore[union-attr]
    results = row.outputs if isinstance(row.outputs, list) else row.outputs.values
    attributes = {attribute.name: attribute.value for attribute in row.attrs}
    schema = row.op_schema or str(attributes.get("op_schema", ""))
    function_id = row.rf_id if row.rf_id is not None else attributes.get("rf_id")
    marked = _written_arguments(schema)
    written = [value for i, value in enumerate(values) if i in marked]
    return TraceNode(
        id=row.id,
        name=row.name,
        parent=row.parent if row.parent is not None else row.ctrl_deps,
        function_id=function_id if isinstance(function_id, int) and function_id > 0 else None,
        reads=frozenset(_storages(values)),
        writes=frozenset(_storages([*written, *results])),
        first=_first_tensor(values, shapes, types),
    )


def _storages(values: Any) -> Iterator[tuple[str, int]]:
    """The storages of the tensors in a value, however nested: (device, id)."""
    if not isinstance(values, list):
        return
    if len(values) == _TENSOR_FIELDS and isinstance(values[5], str) and isinstance(values[1], int):
        yield values[5], values[1]
        return
    for value in values:
        yield from _storages(value)


def _first_tensor(values: Any, shapes: Any, types: Any) -> Tensor | None:
    if not (values and shapes and types and isinstance(types[0], str)):
        return None
    return tensor_of(shapes[0], types[0].removeprefix("Tensor(").removesuffix(")"))


def _written_arguments(schema: str) -> set[int]:
    """Places of the arguments that an operator's schema marks as written, such as ``Tensor(a!) self``."""
    arguments = schema.partition("(")[2].rpartition("->")[0].rpartition(")")[0]
    # Defaults may be lists with commas; a lone star, which stands before keyword arguments, is no argument.
    names = [name for name in re.sub(r"\[[^]]*\]", "", arguments).split(",") if name.strip() != "*"]
    return {place for place, name in enumerate(names) if "!)" in name}


@dataclass(frozen=True, kw_only=True)
class JoinedTraces:
    """Additions of an ExecutionTrace to a Kineto trace's ``step``; nodes by their operator's identity."""

    step: TracedStep
    nodes: dict[int, TraceNode]
    note: str
    gives_shapes: bool

    def shape_of(self, event: HostSpan) -> Tensor | None:
        """Extents, type and bytes of an operator's first argument."""
        node = self.nodes.get(id(event))
        return None if node is None else node.first

    def inputs(self, step: TracedStep) -> dict[int, set[int]]:
        """For operations of forward and backward whose node is known and has known writers, these."""
        inputs: dict[int, set[int]] = {}
        writer: dict[Any, int] = {}
        last_of_node: dict[int, int] = {}
        order = sorted(range(len(step.operations)), key=lambda i: step.operations[i].gpu.call.start_us)
        for i in order:
            operation = step.operations[i]
            chain = operation.gpu.call.host.chain() if operation.gpu.call.host is not None else []
            node = next((self.nodes[id(event)] for event in chain if id(event) in self.nodes), None)
            if node is None:
                continue
            # Of the operations of one operator the first has its inputs, the others follow one another.
            found = (
                {last_of_node[node.id]}
                if node.id in last_of_node
                else {writer.get(s, -1) for s in node.reads}
            )
            earlier = {j for j in found if 0 <= j < i and step.operations[j].phase != Phase.UPDATE}
            if earlier and operation.phase != Phase.UPDATE:
                inputs[i] = earlier
            last_of_node[node.id] = i
            for storage in node.writes:
                writer[storage] = i
        return inputs


def join(execution: ExecutionTrace, trace: Trace, steps: Sequence[TracedStep]) -> JoinedTraces:
    """Find the step that an ExecutionTrace knows most of, and the nodes of its operators.

    Raises
    ------
    FormatError
        Naming the ExecutionTrace, if it knows less than half of the operators of every step.
    """
    best = max((_by_function_id(execution, step) for step in steps), key=lambda found: found[0])
    how = "by record function id"
    if best[0] < _LEAST_SHARE:
        best, how = (
            _by_order(execution, steps[0]),
            "by the order of their names, since record function ids disagree",
        )
    share, step, nodes = best
    if share < _LEAST_SHARE:
        raise FormatError(
            execution.source,
            "nodes",
            f"{share:.0%} of the operators that launch GPU operations in a step of {trace.source} are known "
            "here; give the ExecutionTrace of the same job",
        )
    operators = {id(event) for event in _launching(step)}
    joined = sum(event in nodes for event in operators)
    note = (
        f"{execution.source}: {joined} of {len(operators)} operators that launch GPU operations joined {how}"
    )
    shapes = any(node.first is not None for node in nodes.values() if node.name.endswith("AccumulateGrad"))
    return JoinedTraces(step=step, nodes=nodes, note=note, gives_shapes=shapes)


Found = tuple[float, TracedStep, dict[int, TraceNode]]


def _launching(step: TracedStep) -> Iterable[HostSpan]:
    hosts = (operation.gpu.call.host for operation in step.operations)
    return (event for event in hosts if event is not None and not event.annotation)


def _share(step: TracedStep, nodes: dict[int, TraceNode]) -> Found:
    operators = {id(event) for event in _launching(step)}
    return sum(event in nodes for event in operators) / max(1, len(operators)), step, nodes


def _by_function_id(execution: ExecutionTrace, step: TracedStep) -> Found:
    by_id = {node.function_id: node for node in execution.nodes if node.function_id is not None}
    nodes = {}
    for event in step.host:
        node = by_id.get(event.function_id or 0)
        if node is not None and node.name == event.name:
            nodes[id(event)] = node
    return _share(step, nodes)


def _by_order(execution: ExecutionTrace, step: TracedStep) -> Found:
    of_step: dict[str, list[HostSpan]] = defaultdict(list)
    for event in step.host:
        of_step[event.name].append(event)
    of_trace: dict[str, list[TraceNode]] = defaultdict(list)
    for node in _one_step(execution):
        of_trace[node.name].append(node)
    nodes: dict[int, TraceNode] = {}
    for name, events in of_step.items():
        if len(events) == len(of_trace[name]):
            nodes |= {id(event): node for event, node in zip(events, of_trace[name], strict=True)}
    return _share(step, nodes)


def _one_step(execution: ExecutionTrace) -> list[TraceNode]:
    """The nodes of one step, the second where there are more: up to the end of an optimizer's step."""
    by_id = {node.id: node for node in execution.nodes}
    optimizers = [node.id for node in execution.nodes if node.name.startswith(OPTIMIZER_PREFIX)]
    place = {id_: k for k, id_ in enumerate(optimizers)}
    steps: dict[int, list[TraceNode]] = defaultdict(list)
    for node in execution.nodes:
        at: TraceNode | None = node
        # Ids grow downwards, so this ends whatever a damaged file says.
        while at is not None and at.id not in place:
            above = by_id.get(at.parent) if at.parent is not None else None
            at = above if above is not None and above.id < at.id else None
        steps[place[at.id] if at is not None else bisect_left(optimizers, node.id)].append(node)
    return steps[min(1, max(0, len(optimizers) - 1))]
