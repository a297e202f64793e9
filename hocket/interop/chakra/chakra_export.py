"""A step, and a plan if there is one, as a Chakra execution trace for simulators such as ASTRA-sim.

Each operation is a COMP node and each reduction a COMM_COLL node (ALL_REDUCE) that depends on the
operations which complete its gradients; updates depend on the reductions of the gradients they wait for.
Without a plan every trained parameter is reduced by itself, as soon as its gradient is there. With one,
reductions and their chunks follow one another as the plan lists them, and operations keep its compute
order (control dependencies).

Chakra has whole microseconds, no phases, no parameters and no samples: these go to attributes, exact, so
that :mod:`hocket.interop.chakra.chakra_step` reads an equal graph back. It has one step, too: the next step's
wait for reductions is not in the file.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from hocket.errors import HocketError
from hocket.graph import Plan, StepGraph
from hocket.graph.format_rules import check_whole
from hocket.graph.io import step_document
from hocket.graph.plan import batch_name
from hocket.graph.step import PHASE_NAMES
from hocket.graph.update_operations import awaited_gradients, is_update
from hocket.interop.chakra.schema import (
    CollectiveType,
    GlobalMetadata,
    Node,
    NodeType,
    set_attribute,
    write_messages,
)

STEP_ATTRIBUTE = "hocket.step"
_SCHEMA_VERSION = "0.0.4"


def chakra_bytes(graph: StepGraph, plan: Plan | None = None) -> bytes:
    """The file of ``graph`` under ``plan``, which fits it.

    Raises
    ------
    HocketError
        For a plan for parameter servers, which reduces nothing, and one with reductions in halves.
    """
    if plan is not None and plan.architecture != "allreduce":
        raise HocketError("a plan for parameter servers has no collectives; export one for all-reduce")
    if plan is not None:
        check_whole(plan, "plan", "an export")
    metadata = GlobalMetadata(version=_SCHEMA_VERSION)
    head = step_document(graph)
    del head["operations"]
    set_attribute(metadata, STEP_ATTRIBUTE, "string_val", msgspec.json.encode(head).decode())
    nodes = [_operation(graph, i) for i in range(graph.num_operations)]
    reductions, last_of = _reductions(graph, plan)
    is_updating = is_update(graph)
    gradients, updates, _ = awaited_gradients(graph, is_updating)
    for parameter, update in zip(gradients.tolist(), updates.tolist(), strict=True):
        nodes[update].data_deps.extend(
            id_ for id_ in last_of.get(parameter, ()) if id_ not in nodes[update].data_deps
        )
    if plan is not None and plan.compute_order is not None:
        index = {name: i for i, name in enumerate(graph.operation_names)}
        # Updates wait for reductions, which the order does not know: they run as these end.
        order = [index[name] for name in plan.compute_order if not is_updating[index[name]]]
        for before, after in pairwise(order):
            nodes[after].ctrl_deps.append(_id(before))
    return write_messages([metadata, *nodes, *reductions])


def _id(operation: int) -> int:
    # Some readers take 0 for no node.
    return operation + 1


def _operation(graph: StepGraph, i: int) -> Any:
    samples = graph.durations_s[i]
    node = Node(
        id=_id(i),
        name=graph.operation_names[i],
        type=NodeType.COMP,
        duration_micros=round(float(samples.mean()) * 1e6),
        data_deps=[_id(j) for j in graph.inputs.row(i).tolist()],
    )
    set_attribute(node, "is_cpu_op", "bool_val", False)
    set_attribute(node, "phase", "string_val", PHASE_NAMES[graph.phases[i]])
    set_attribute(node, "duration_s", "double_list", samples.tolist())
    for name, rows in (("reads", graph.reads), ("produces", graph.produces)):
        parameters = [graph.parameter_names[k] for k in rows.row(i).tolist()]
        set_attribute(node, name, "string_list", parameters)
    return node


def _reductions(graph: StepGraph, plan: Plan | None) -> tuple[list[Any], dict[int, list[int]]]:
    """The nodes of the collectives, and of each parameter those that it has been reduced with."""
    makers = graph.produces.transpose(graph.num_parameters)
    index = {name: k for k, name in enumerate(graph.parameter_names)}
    rows: list[tuple[tuple[int, ...], int, tuple[int, int, int] | None]]
    if plan is None:
        rows = [((k,), 1, None) for k in np.flatnonzero(graph.produced).tolist()]
        listed = False
    else:
        rows = [(tuple(index[p] for p in r.parameters), r.chunks, r.slice) for r in plan.reductions]
        listed = plan.issue != "ready"
    nodes: list[Any] = []
    last_of: dict[int, list[int]] = {}
    for parameters, chunks, slice_ in rows:
        label = batch_name(tuple(graph.parameter_names[k] for k in parameters))
        size = sum(int(graph.parameter_bytes[k]) for k in parameters)
        if slice_ is not None:
            first, end, count = slice_
            size = size * end // count - size * first // count
            label = f"{label} [{first}:{end}/{count}]"
        ready = sorted({_id(i) for k in parameters for i in makers.row(k).tolist()})
        for chunk in range(chunks):
            node = Node(
                id=_id(graph.num_operations + len(nodes)),
                name=f"reduce {label}" + (f" {chunk + 1}/{chunks}" if chunks > 1 else ""),
                type=NodeType.COMM_COLL,
                data_deps=ready,
            )
            if nodes and (chunk > 0 or listed):
                node.ctrl_deps.append(nodes[-1].id)
            set_attribute(node, "is_cpu_op", "bool_val", False)
            set_attribute(node, "comm_type", "int64_val", CollectiveType.ALL_REDUCE)
            part = size * (chunk + 1) // chunks - size * chunk // chunks
            set_attribute(node, "comm_size", "int64_val", part)
            nodes.append(node)
        for k in parameters:
            last_of.setdefault(k, []).append(nodes[-1].id)
    return nodes, last_of
