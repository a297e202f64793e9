"""Chakra execution traces that other tools wrote, as a step.

Nodes are operations, and what they depend on by data or control are their inputs; where both together make
a cycle (converters renumber nodes, but not always who controls them), data alone. An all-reduce behind a
backward pass from which nothing leads to another collective exchanges gradients: it is a parameter of
``comm_size`` bytes, completed by what it depends on and awaited by what depends on it. Other collectives are
operations that take as long as recorded, unless they may be what exchanges the gradients, or the gradients'
ranks also exchange activations: then the trace is refused.

**Phases.** Backward: operators with that name, autograd's or that of an input's or a weight's gradient
(``_IG`` and ``_WG`` of text converters), and what follows them. Update: what follows an all-reduce of
gradients, and after the backward pass what is named like an optimizer, which waits for all of them; and
what follows these. Forward: the rest.

**Two clocks.** Traces made from PyTorch hold the operators on the host and what they launch on the GPU,
where a step is one sequence to Hocket: where there are GPU operations, the host's take no time and await
no gradient.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hocket.errors import FormatError
from hocket.graph import OperationRow, ParameterRow, StepRows
from hocket.graph.csr import Csr, topological_order
from hocket.graph.unique_names import UniqueNames
from hocket.interop.chakra.schema import CollectiveType, NodeType, attributes, data_dependencies
from hocket.text import counted

_OPTIMIZER = re.compile(r"^Optimizer\.step|_foreach_|_fused_")
_BACKWARD = re.compile(r"backward|^autograd::|(_[iw]g|(input|weight)_grad)$", re.IGNORECASE)
_MICRO = 1e-6
# Collectives that exchange no gradients, and how much others may carry beside these.
_OF_LAYERS = ("BROADCAST", "BARRIER", "ALL_TO_ALL")
_REDUCING = ("ALL_REDUCE", "REDUCE_SCATTER")
_APART = 0.03


@dataclass(frozen=True, kw_only=True)
class _Trace:
    """A trace's nodes with what must come before each, in an order in which they can run.

    ``host``: operators that only launch what runs on the GPU; nodes are named by their places. ``both``: by
    data and control, which may form a cycle; ``depends``: what is left of it without one.
    """

    source: str
    nodes: list[Any]
    known: list[dict[str, Any]]
    both: list[list[int]]
    depends: list[list[int]]
    order: list[int]
    host: list[bool]
    controlled: bool

    @property
    def launches(self) -> bool:
        """True if there are a host and a GPU."""
        return any(self.host)

    def is_collective(self, i: int) -> bool:
        """True if the node is a collective itself, not the operator around one."""
        return self.nodes[i].type == NodeType.COMM_COLL and "comm_type" in self.known[i]

    def kind(self, i: int) -> str:
        """Of a collective its name in the schema, which the file may give as text or as its number."""
        kind = self.known[i]["comm_type"]
        if isinstance(kind, str):
            text = kind.upper().replace("_", "")
            return next((each.name for each in CollectiveType if each.name.replace("_", "") == text), kind)
        return next((each.name for each in CollectiveType if each == kind), str(kind))

    def is_all_reduce(self, i: int) -> bool:
        """Tell whether it is an all-reduce."""
        return self.is_collective(i) and self.kind(i) == CollectiveType.ALL_REDUCE.name

    def size_bytes(self, i: int) -> int:
        """Bytes of a collective's message.

        Raises
        ------
        FormatError
            When the file does not say them.
        """
        size = self.known[i].get("comm_size")
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            rule = f"comm_size {size!r} is not a number of bytes ('{self.nodes[i].name}')"
            raise FormatError(self.source, f"node {self.nodes[i].id}", rule)
        return size

    def untimed(self) -> tuple[int, int]:
        """The number of compute nodes without a duration, and of all of them, the host's aside."""
        computing = [
            node.duration_micros
            for node, on_host in zip(self.nodes, self.host, strict=True)
            if node.type == NodeType.COMP and not on_host
        ]
        return computing.count(0), len(computing)


def _trace(source: str, nodes: list[Any], place: dict[int, int]) -> _Trace:
    known = [attributes(node) for node in nodes]
    by_data = [data_dependencies(node, place, source) for node in nodes]
    by_both = [
        list(dict.fromkeys((*before, *(place[id_] for id_ in node.ctrl_deps if id_ in place))))
        for before, node in zip(by_data, nodes, strict=True)
    ]
    depends, order = by_both, topological_order(Csr.from_rows(by_both))
    controlled = order is not None
    if order is None:
        depends, order = by_data, topological_order(Csr.from_rows(by_data))
    if order is None:
        raise FormatError(source, "nodes", "the dependencies form a cycle; a step is acyclic")
    # A flag, or a number in its place: 0 is False here.
    launches = any(attributes_.get("is_cpu_op") == 0 for attributes_ in known)
    return _Trace(
        source=source,
        nodes=nodes,
        known=known,
        both=by_both,
        depends=depends,
        order=order.tolist(),
        host=[launches and attributes_.get("is_cpu_op") == 1 for attributes_ in known],
        controlled=controlled,
    )


def foreign_step(
    path: Path, nodes: list[Any], place: dict[int, int], *, allow_no_gradients: bool
) -> tuple[StepRows, list[str]]:
    """The step of ``nodes``, ``place`` of each id, and what is to be said of it.

    allow_no_gradients : where the exchange of gradients cannot be told, have no parameters; else refuse.
    """
    trace = _trace(str(path), nodes, place)
    untimed, computing = trace.untimed()
    if untimed == computing:
        rule = f"none of {counted(computing, 'compute node')} has a duration; give a trace that was measured"
        raise FormatError(trace.source, "nodes", rule)
    gradients = _gradients(trace)
    phases = _phases(trace, gradients)
    reason = _why_not_planned(trace, gradients, phases)
    if reason:
        if not allow_no_gradients:
            raise FormatError(trace.source, "nodes", f"{reason}; or give --allow-no-gradients, to look at it")
        gradients = {}
    names = UniqueNames()
    of_node = {i: names.take(node.name or f"node {i}") for i, node in enumerate(nodes) if i not in gradients}
    of_gradient = {i: f"bucket{k}" for k, i in enumerate(gradients)}
    operations = []
    for i, name in of_node.items():
        # Nodes that depend on an all-reduce also follow those that complete its gradients.
        before = [
            j
            for k in trace.depends[i]
            for j in ((k,) if k not in gradients else trace.depends[k])
            if j in of_node
        ]
        awaited = [of_gradient[j] for j in trace.depends[i] if j in gradients and phases[i] == "update"]
        if phases[i] == "update" and _OPTIMIZER.search(nodes[i].name):
            awaited = list(of_gradient.values())
        seconds = 0.0 if trace.host[i] else nodes[i].duration_micros * _MICRO
        inputs = [of_node[j] for j in dict.fromkeys(before)]
        operations.append(OperationRow(name, phases[i], seconds, inputs, awaited, []))  # type: ignore[arg-type]
    row_of = dict(zip(of_node, operations, strict=True))
    for i, name in of_gradient.items():
        for j in trace.depends[i]:
            if j in row_of:
                row_of[j].produces.append(name)
    # The file does not say who reads a parameter: the first operation, so that no plan is promised too much.
    first = next((row_of[i] for i in trace.order if i in row_of and phases[i] == "forward"), None)
    if first is not None:
        first.reads.extend(of_gradient.values())
    rows = StepRows(
        model=path.name.split(".")[0],
        batch_size=1,
        device="cuda" if trace.launches else "unknown",
        # The parameter that is complete last is read first.
        parameters=[
            ParameterRow(of_gradient[i], [size], "uint8", size) for i, size in reversed(gradients.items())
        ],
        operations=operations,
    )
    notes = _notes(trace, gradients)
    if reason:
        notes.append(f"without parameters, so that nothing can be planned: {reason}")
    return rows, notes


def _gradients(trace: _Trace) -> dict[int, int]:
    """The all-reduces of gradients, in the order of the file, and their bytes."""
    users = Csr.from_rows(trace.depends).transpose(len(trace.nodes))
    leads_on = [False] * len(trace.nodes)
    for i in reversed(trace.order):
        # The host does not wait for what it launched: what it does after that is not what it leads to.
        after = (j for j in users.row(i).tolist() if not trace.host[j] or trace.host[i])
        leads_on[i] = any(leads_on[j] or trace.is_collective(j) for j in after)
    behind = _behind_backward(trace)
    return {
        i: trace.size_bytes(i)
        for i in range(len(trace.nodes))
        if behind[i] and not leads_on[i] and trace.is_all_reduce(i)
    }


def _behind_backward(trace: _Trace) -> list[bool]:
    """Of each node, whether it is of a backward pass or follows one, by data or by control."""
    users = Csr.from_rows(trace.both).transpose(len(trace.nodes))
    behind = [_BACKWARD.search(node.name) is not None for node in trace.nodes]
    ahead = [i for i, is_behind in enumerate(behind) if is_behind]
    while ahead:
        for j in users.row(ahead.pop()).tolist():
            if not behind[j]:
                behind[j] = True
                ahead.append(j)
    return behind


def _phases(trace: _Trace, gradients: dict[int, int]) -> list[str]:
    phases = ["forward"] * len(trace.nodes)
    for i in trace.order:
        name, before = trace.nodes[i].name, trace.depends[i]
        follows = {phases[j] for j in before}
        after_reduction = not trace.host[i] and any(j in gradients for j in before)
        updates = "backward" in follows and _OPTIMIZER.search(name) is not None
        if after_reduction or updates or "update" in follows:
            phases[i] = "update"
        elif _BACKWARD.search(name) or "backward" in follows:
            phases[i] = "backward"
    return phases


def _why_not_planned(trace: _Trace, gradients: dict[int, int], phases: list[str]) -> str:
    """Say why a plan would be wrong: gradients may be exchanged by what stays; empty where it would not."""
    others = [i for i in range(len(trace.nodes)) if trace.is_collective(i) and i not in gradients]
    if not sum(gradients.values()):
        kinds = sorted({trace.kind(i) for i in others})
        beside = (
            f"; its {counted(len(others), 'other collective')} ({', '.join(kinds)}) are not" if others else ""
        )
        named = any(_BACKWARD.search(node.name) for node in trace.nodes)
        fix = "" if named else ", whose nodes of the backward pass are named so (backward, _IG, _WG)"
        return (
            f"no parameters: {counted(len(gradients), 'all-reduce')} at the end of the backward pass "
            f"exchange gradients{beside}; give a trace of data-parallel training{fix}"
        )
    groups = {trace.known[i].get("pg_name") for i in gradients}
    alike = [
        i
        for i in others
        if trace.kind(i) not in _OF_LAYERS
        and (None in groups or trace.known[i].get("pg_name") in {None, *groups})
    ]
    suspects = [i for i in alike if phases[i] != "forward"]
    forward = [i for i in alike if phases[i] == "forward" and trace.kind(i) in _REDUCING]
    sent = sum(trace.size_bytes(i) for i in forward)
    if sent > sum(gradients.values()) * _APART:
        kinds = sorted({trace.kind(i) for i in forward})
        return (
            f"the ranks of its {counted(len(gradients), 'all-reduce')} behind the backward pass "
            f"({sum(gradients.values())} bytes) also sum up activations in the forward pass: "
            f"{counted(len(forward), 'collective')} ({', '.join(kinds)}, {sent} bytes), as model-parallel "
            "training does; give a trace of data-parallel training"
        )
    size = sum(trace.size_bytes(i) for i in suspects)
    if size <= sum(gradients.values()) * _APART:
        return ""
    kinds = sorted({trace.kind(i) for i in suspects})
    return (
        f"beside {counted(len(gradients), 'all-reduce')} of gradients ({sum(gradients.values())} bytes), "
        f"{counted(len(suspects), 'collective')} ({', '.join(kinds)}, {size} bytes) run in the backward pass "
        "or behind it, which may exchange gradients too, as sharded training does, and would count twice "
        "beside a plan; give a trace of data-parallel training"
    )


def _notes(trace: _Trace, gradients: dict[int, int]) -> list[str]:
    edges = sum(map(len, trace.depends))
    others = sum(trace.is_collective(i) for i in range(len(trace.nodes))) - len(gradients)
    notes = [
        f"{counted(len(trace.nodes), 'node')}, {edges} dependencies, "
        f"{counted(len(gradients), 'all-reduce')} of gradients ({sum(gradients.values()) / 2**20:.2f} MiB): "
        "each is one parameter, since what is in it is not in the file",
        "durations are whole microseconds of one step; batch size 1, since it is not in the file",
    ]
    untimed, computing = trace.untimed()
    if untimed:
        notes.append(
            f"{untimed} of {counted(computing, 'compute node')} have no duration, or one below a "
            "microsecond: they take no time"
        )
    if not trace.controlled:
        notes.append("control dependencies are left out: with them the dependencies form a cycle")
    if others:
        notes.append(f"{counted(others, 'other collective')}: operations that take as long as recorded")
    if trace.launches:
        notes.append("operators on the host take no time: they run beside the GPU")
    return notes
