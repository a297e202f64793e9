"""Chakra execution traces as a step: those that :mod:`hocket.interop.chakra_export` wrote, and other tools'.

Ours read back to an equal graph. Of others, nodes are operations and their data and control dependencies
inputs. A COMM_COLL node that is an all-reduce, and that nothing leads from to another collective, exchanges
gradients: it is a parameter of ``comm_size`` bytes, completed by what it depends on, and awaited by what
depends on it. Other communication is an operation that takes as long as recorded.

**Phases.** Update: what follows an all-reduce of gradients, or is called in ``Optimizer.step``. Backward: what
autograd's nodes call. Forward: the rest. Traces made from PyTorch carry their calls as control dependencies.

**Two clocks.** Such traces hold both the operators on the host and what they launch on the GPU, where a step
is one sequence to Hocket: where there are GPU operations, the host's take no time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from hocket.document import decode, read_bytes
from hocket.errors import FormatError
from hocket.graph import OperationRow, ParameterRow, StepRows, step_from_rows
from hocket.graph.csr import Csr, topological_order
from hocket.interop.chakra_export import STEP_ATTRIBUTE
from hocket.interop.chakra_schema import Collective, NodeType, attributes, read_messages
from hocket.interop.imported import Imported, Names, counted

_COMMUNICATION = frozenset((NodeType.COMM_SEND, NodeType.COMM_RECV, NodeType.COMM_COLL))
_OPTIMIZER = "Optimizer.step"
_AUTOGRAD = "autograd::engine::evaluate_function"
_MICRO = 1e-6


class _Head(msgspec.Struct, frozen=True):
    model: str
    batch_size: int
    device: str
    parameters: list[ParameterRow]


def import_chakra(paths: Sequence[str | Path]) -> Imported:
    """Read Chakra files, one a rank: each rank's durations are a sample of the same step.

    Raises
    ------
    FormatError
        Naming the file, the node and the rule.
    """
    first: StepRows | None = None
    notes: list[str] = []
    durations: list[list[list[float]]] = []
    for path in paths:
        rows, own_notes = _read(path)
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
    return Imported(step_from_rows(first, str(paths[0])), tuple(notes))


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


def _read(path: str | Path) -> tuple[StepRows, list[str]]:
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
        return _ours(decode(head.encode(), _Head, "hocket.step/1", source), nodes, place, source), []
    return _foreign(Path(path), nodes, place)


def _depends(node: Any, place: dict[int, int], source: str) -> list[int]:
    """Places of the nodes that must come before, data dependencies first, each once."""
    found = dict.fromkeys((*node.data_deps, *node.ctrl_deps))
    for id_ in found:
        if id_ not in place:
            raise FormatError(source, f"node {node.id}", f"'{node.name}' depends on {id_}, which is no node's id")
    return [place[id_] for id_ in found]


def _ours(head: _Head, nodes: list[Any], place: dict[int, int], source: str) -> StepRows:
    operations = []
    for node in nodes:
        _depends(node, place, source)
        if node.type != NodeType.COMP:
            continue
        # Data dependencies on reductions, and control dependencies, are a plan's.
        before = [nodes[place[id_]] for id_ in node.data_deps]
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


def _foreign(path: Path, nodes: list[Any], place: dict[int, int]) -> tuple[StepRows, list[str]]:
    source = str(path)
    depends = [_depends(node, place, source) for node in nodes]
    known = [attributes(node) for node in nodes]
    csr = Csr.from_rows(depends)
    order = topological_order(csr)
    if order is None:
        raise FormatError(source, "nodes", "the dependencies form a cycle; a step is acyclic")
    users = csr.transpose(len(nodes))
    gradients = _gradients(nodes, known, users, order.tolist(), source)
    phases = _phases(nodes, depends, order.tolist(), gradients)
    on_gpu = [node.type == NodeType.COMP and known[i].get("is_cpu_op") is False for i, node in enumerate(nodes)]
    timed_on_gpu = any(on_gpu)
    names = Names()
    of_node = {i: names.take(_text(node.name, i)) for i, node in enumerate(nodes) if i not in gradients}
    parameters, of_gradient = [], {}
    for k, (i, size) in enumerate(gradients.items()):
        of_gradient[i] = f"bucket{k}"
        parameters.append(ParameterRow(of_gradient[i], [size], "uint8", size))
    operations = []
    for i, name in of_node.items():
        takes_time = on_gpu[i] or not timed_on_gpu or nodes[i].type in _COMMUNICATION
        before = [j for j in depends[i] if j in of_node]
        # What depends on an all-reduce also follows what completes its gradients.
        before += [j for k in depends[i] if k in gradients for j in depends[k] if j in of_node]
        operations.append(
            OperationRow(
                name,
                phases[i],  # type: ignore[arg-type]
                nodes[i].duration_micros * _MICRO if takes_time else 0.0,
                [of_node[j] for j in dict.fromkeys(before)],
                [of_gradient[j] for j in depends[i] if j in gradients],
                [],
            )
        )
    row_of = dict(zip(of_node, operations, strict=True))
    # What reads a parameter is not in the file: the first operation, so that no plan is promised too much.
    first = next((row_of[i] for i in order.tolist() if i in row_of and phases[i] == "forward"), None)
    if first is not None:
        first.reads.extend(name for name in of_gradient.values() if name not in first.reads)
    for i, name in of_gradient.items():
        for j in depends[i]:
            if j in row_of:
                row_of[j].produces.append(name)
    rows = StepRows(
        model=path.name.split(".")[0],
        batch_size=1,
        device="cuda" if timed_on_gpu else "cpu",
        parameters=parameters,
        operations=operations,
    )
    return rows, _notes(nodes, gradients, timed_on_gpu)


def _text(name: str, place: int) -> str:
    return name or f"node {place}"


def _gradients(
    nodes: list[Any], known: list[dict[str, Any]], users: Csr, order: list[int], source: str
) -> dict[int, int]:
    """The all-reduces of gradients, in the order of the file, and their bytes."""
    leads_on = [False] * len(nodes)
    for i in reversed(order):
        after = users.row(i).tolist()
        leads_on[i] = any(leads_on[j] or nodes[j].type == NodeType.COMM_COLL for j in after)
    found = {}
    for i, node in enumerate(nodes):
        if node.type != NodeType.COMM_COLL or leads_on[i]:
            continue
        if known[i].get("comm_type") != Collective.ALL_REDUCE:
            continue
        size = known[i].get("comm_size")
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            rule = f"comm_size {size!r} is not a number of bytes ('{node.name}')"
            raise FormatError(source, f"node {node.id}", rule)
        found[i] = size
    return found


def _phases(
    nodes: list[Any], depends: list[list[int]], order: list[int], gradients: dict[int, int]
) -> list[str]:
    phases = ["forward"] * len(nodes)
    place = {node.id: i for i, node in enumerate(nodes)}
    for i in order:
        callers = [phases[place[id_]] for id_ in nodes[i].ctrl_deps]
        follows = any(j in gradients or phases[j] == "update" for j in depends[i])
        if follows or nodes[i].name.startswith(_OPTIMIZER) or "update" in callers:
            phases[i] = "update"
        elif nodes[i].name.startswith(_AUTOGRAD) or "backward" in callers:
            phases[i] = "backward"
    return phases


def _notes(nodes: list[Any], gradients: dict[int, int], timed_on_gpu: bool) -> list[str]:
    edges = sum(len(node.data_deps) + len(node.ctrl_deps) for node in nodes)
    others = sum(node.type in _COMMUNICATION for node in nodes) - len(gradients)
    notes = [
        f"{counted(len(nodes), 'node')}, {edges} dependencies, {counted(len(gradients), 'all-reduce')} of gradients"
        f" ({sum(gradients.values()) / 2**20:.2f} MiB): each is one parameter, since what is in it is not in the file",
        "durations are whole microseconds of one step; the batch size is not in the file: throughput counts steps",
    ]
    if others:
        notes.append(f"{others} other transfers are operations that take as long as recorded")
    if timed_on_gpu:
        notes.append("operators on the host take no time: they run beside the GPU")
    if not gradients:
        notes.append("no parameters: no all-reduce in the trace is one of gradients; nothing can be planned")
    return notes
