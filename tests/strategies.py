"""Random steps, plans and networks for property tests, and the small builders that unit tests share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import permutations
from typing import Any

from hypothesis import assume, settings
from hypothesis import strategies as st

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
from hocket.network import Network
from hocket.network.topology import Topology

# Of the examples that tests name: less keeps the suite short, 10 is for a change to what they test.
_SHARE = float(os.environ.get("HOCKET_EXAMPLES", "0.4"))


def examples(count: int) -> Any:
    """Hypothesis settings for so many examples, times HOCKET_EXAMPLES."""
    return settings(max_examples=max(1, round(count * _SHARE)))


def parameter(name: str, size: int) -> ParameterRow:
    return ParameterRow(name=name, shape=[size], dtype="uint8", bytes=size)


def operation(
    name: str,
    duration_s: float | list[float] = 1.0,
    *,
    inputs: Sequence[str] = (),
    reads: Sequence[str] = (),
    produces: Sequence[str] = (),
    phase: Any = "forward",
) -> OperationRow:
    return OperationRow(name, phase, duration_s, list(inputs), list(reads), list(produces))


def step(
    parameters: Sequence[ParameterRow], operations: Sequence[OperationRow], batch_size: int = 1
) -> StepGraph:
    return step_from_rows(
        StepRows(
            model="toy",
            batch_size=batch_size,
            device="toy",
            parameters=list(parameters),
            operations=list(operations),
        )
    )


@st.composite
def steps(
    draw: st.DrawFn,
    *,
    training: bool | None = None,
    min_parameters: int = 1,
    max_parameters: int = 6,
    max_operations: int = 10,
    samples: int = 2,
) -> StepGraph:
    """A random acyclic step: some operations read, later ones produce gradients, updates may follow."""
    trains = draw(st.booleans()) if training is None else training
    num_parameters = draw(st.integers(min_parameters, max_parameters))
    # Sizes and durations are whole multiples of a unit, so that ties happen and are exact ties.
    parameters = [parameter(f"p{i}", 125 * draw(st.integers(0, 6))) for i in range(num_parameters)]
    names = [p.name for p in parameters]
    num_operations = draw(st.integers(1, max_operations))
    duration = st.lists(st.integers(0, 5).map(float), min_size=samples, max_size=samples)
    operations = []
    for i in range(num_operations):
        before = [f"o{j}" for j in range(i)]
        operations.append(
            operation(
                f"o{i}",
                draw(duration),
                inputs=draw(st.lists(st.sampled_from(before), unique=True, max_size=3)) if before else [],
                reads=draw(st.lists(st.sampled_from(names), unique=True, max_size=2)),
                phase="backward" if trains and i > num_operations // 2 else "forward",
            )
        )
    if trains:
        makers = draw(
            st.lists(st.integers(0, num_operations - 1), min_size=num_parameters, max_size=num_parameters)
        )
        for name, maker in zip(names, makers, strict=True):
            operations[maker].produces.append(name)
        for name, maker in zip(names, makers, strict=True):
            if draw(st.booleans()):
                earlier = [f"update {other}" for other in names[: names.index(name)]]
                earlier = [o for o in earlier if any(row.name == o for row in operations)]
                inputs = [f"o{maker}"]
                if earlier and draw(st.booleans()):
                    inputs.append(draw(st.sampled_from(earlier)))
                operations.append(
                    operation(
                        f"update {name}",
                        draw(duration),
                        inputs=inputs,
                        reads=draw(st.sampled_from([[name], [name], []])),
                        phase="update",
                    )
                )
    # A step that sends nothing is refused.
    assume(any(row.bytes for row in parameters))
    return step(parameters, draw(st.permutations(operations)))


@st.composite
def batched(draw: st.DrawFn, items: Sequence[str]) -> list[tuple[str, ...]]:
    """A random order of ``items`` cut into random batches."""
    order = draw(st.permutations(list(items)))
    batches: list[tuple[str, ...]] = []
    while order:
        size = draw(st.integers(1, len(order)))
        batches.append(tuple(order[:size]))
        order = order[size:]
    return batches


@st.composite
def plans(draw: st.DrawFn, graph: StepGraph) -> Plan:
    """A random valid parameter-server plan for ``graph``, with or without a compute order."""
    trained = [name for i, name in enumerate(graph.parameter_names) if graph.produced[i]]
    order = None
    if draw(st.booleans()):
        order = tuple(graph.operation_names[i] for i in graph.order)
    return Plan(
        policy="drawn",
        model=graph.model,
        architecture="ps",
        pulls=tuple(
            Pull(parameters=batch, priority=k) for k, batch in enumerate(draw(batched(graph.parameter_names)))
        ),
        pushes=tuple(Push(parameters=batch) for batch in draw(batched(trained))),
        compute_order=order,
        issue=draw(st.sampled_from([None, "listed", "ready"])),
    )


@st.composite
def networks(draw: st.DrawFn, graph: StepGraph, *, parsing: bool = False) -> Network:
    """A network on which 125 bytes take a second, with or without startup, window and cost of ``parsing``."""
    return Network(
        bandwidth_bps=1000.0,
        startup_s=draw(st.sampled_from([0.0, 0.0, 0.5, 1.0])),
        num_workers=draw(st.integers(1, 4)),
        num_servers=draw(st.integers(1, min(3, graph.num_parameters))),
        parse_s_per_byte=draw(st.sampled_from([0.0, 1 / 250, 1 / 125])) if parsing else 0.0,
        parse_s=draw(st.sampled_from([0.0, 0.25, 1.0])) if parsing else 0.0,
        window_bytes=draw(st.sampled_from([None, None, 100.0, 250.0])),
    )


@st.composite
def topologies(draw: st.DrawFn, num_workers: int, num_servers: int) -> Topology:
    """Machines in racks or not, with interfaces of several speeds."""
    bps = st.sampled_from([500.0, 1000.0, 1000.0, 3000.0])
    return Topology(
        worker_bps=tuple(draw(st.lists(bps, min_size=num_workers, max_size=num_workers))),
        server_bps=tuple(draw(st.lists(bps, min_size=num_servers, max_size=num_servers))),
        racks=draw(st.integers(1, min(3, num_workers + num_servers))),
        oversubscription=draw(st.sampled_from([1.0, 2.0, 5.0])),
    )


@st.composite
def reduction_plans(draw: st.DrawFn, graph: StepGraph, *, halves: bool = False) -> Plan:
    """A random valid AllReduce plan for ``graph``; a compute order is any topological one.

    ``halves``: some of its reductions may go in halves.
    """
    trained = [name for i, name in enumerate(graph.parameter_names) if graph.produced[i]]
    order: tuple[str, ...] | None = None
    if draw(st.booleans()):
        left, order = list(range(graph.num_operations)), ()
        while left:
            free = [i for i in left if not set(graph.inputs.row(i).tolist()) & set(left)]
            left.remove(chosen := draw(st.sampled_from(free)))
            order += (graph.operation_names[chosen],)
    return Plan(
        policy="drawn",
        model=graph.model,
        architecture="allreduce",
        reductions=tuple(
            Reduction(
                parameters=batch,
                chunks=draw(st.integers(1, 4)),
                window=draw(st.sampled_from(["backward", "forward"])),
                halves=halves and draw(st.booleans()),
            )
            for batch in draw(batched(trained))
        ),
        compute_order=order,
        issue=draw(st.sampled_from([None, "listed", "ready"])),
    )


def partitions(names: tuple[str, ...]) -> list[list[tuple[str, ...]]]:
    """All ways to put ``names`` into an order and cut it into batches."""
    found = []
    for order in permutations(names):
        for cuts in range(1 << max(0, len(order) - 1)):
            batches: list[list[str]] = [[order[0]]] if order else []
            for k, name in enumerate(order[1:]):
                if cuts >> k & 1:
                    batches.append([])
                batches[-1].append(name)
            found.append([tuple(batch) for batch in batches])
    return found
