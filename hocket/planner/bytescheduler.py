"""ByteScheduler for AllReduce: a queue of slices of gradients, those that are read first in front.

Source: Peng et al., A Generic Communication Scheduler for Distributed DNN Training Acceleration, SOSP 2019.
Large gradients are partitioned; of the slices that are ready the one whose layer the next forward pass reads
first goes first, and transfers run on into that forward pass.

Differs from the paper
----------------------
* Small gradients that become ready one after the other share a transfer, up to half a partition.
* Of a step that clips, reductions may go in halves, which the paper does not have.
* The partition is where a transfer's constant cost is a tenth of it, not tuned by trial; ``partition_bytes``
  sets it. It is 1 MiB at least, or less where transfers were measured and cost processors little. The credit
  is the runtime's.
"""

from __future__ import annotations

import numpy as np

from hocket.graph import Plan, Reduction, StepGraph
from hocket.graph.csr import Indices
from hocket.graph.format_rules import MOST_CHUNKS
from hocket.network import Network
from hocket.planner.caramel.completion_order import best_order, compute_order, control_edges
from hocket.planner.caramel.gradient_batches import fit_network
from hocket.planner.halves import choose_halves, halved_times
from hocket.planner.worker_processor import serial_times, step_operations

_CONSTANT_SHARE = 0.1
# Below the least, what a transfer costs the processors is often more than what an urgent one gains: half a
# millisecond over gloo, in which they compute nothing. Where it is less, slices may be smaller in the same
# proportion, and processors spend as much on each byte. Below the finest, rank 0's choices take longer.
_LEAST_BYTES, _MOST_BYTES = 1 << 20, 16 << 20
_FINEST_BYTES = 64 << 10
_PROCESSOR_S = 5e-4  # for a transfer of the least size


def partition_of(network: Network) -> int:
    """Bytes of a transfer whose constant cost is a tenth of it, up to 16 MiB, and from 1 MiB.

    From less where its cost on processors was measured, and is less than half a millisecond.
    """
    model = fit_network(network)
    wanted = model.startup_s / (_CONSTANT_SHARE * model.s_per_byte) if model.s_per_byte else _MOST_BYTES
    least = float(_LEAST_BYTES)
    if network.reduction is not None and network.reduction.processor_s is not None:
        least = min(least, max(_FINEST_BYTES, least * network.reduction.processor_s / _PROCESSOR_S))
    return int(min(max(wanted, least), _MOST_BYTES))


def bytescheduler(
    graph: StepGraph,
    network: Network,
    partition_bytes: int | None = None,
    *,
    ordered: bool = False,
    halves: bool = False,
) -> Plan:
    """Plan the reductions of ``graph`` in slices of at most ``partition_bytes``, the most urgent first.

    ``ordered``: also put the operations into Caramel's order (section 4.1), which completes gradients early.
    ``halves``: cut in halves what gains by it (:mod:`hocket.planner.halves`), for a step that clips.
    """
    partition = partition_of(network) if partition_bytes is None else partition_bytes
    operations = step_operations(graph)
    if ordered:
        operations = compute_order(graph, control_edges(graph, best_order(graph)))
    batches = _batches(graph, operations, partition)
    first_read = [len(operations)] * graph.num_parameters
    for position, i in reversed(list(enumerate(operations.tolist()))):
        for g in graph.reads.row(i).tolist():
            first_read[g] = position
    batches.sort(key=lambda batch: min(first_read[g] for g in batch))
    sizes = [sum(int(graph.parameter_bytes[g]) for g in batch) for batch in batches]
    pieces = [
        (batch, size, cut)
        for batch, size in zip(batches, sizes, strict=True)
        for cut in _slices(size, partition)
    ]
    cut_in_halves = [False] * len(pieces)
    if halves:
        travel = [size / (1 if cut is None else cut[2]) for _, size, cut in pieces]
        of_pieces = [batch for batch, _, _ in pieces]
        times = serial_times(graph, operations)
        known = halved_times(graph, network, times, of_pieces, travel, [1] * len(pieces))
        cut_in_halves = choose_halves(known).tolist()
    return Plan(
        policy="bytescheduler",
        model=graph.model,
        architecture="allreduce",
        reductions=tuple(
            Reduction(
                parameters=tuple(graph.parameter_names[g] for g in batch),
                window="forward",
                slice=cut,
                halves=in_halves,
            )
            for (batch, _, cut), in_halves in zip(pieces, cut_in_halves, strict=True)
        ),
        compute_order=tuple(graph.operation_names[i] for i in operations) if ordered else None,
        issue="ready",
    )


def _batches(graph: StepGraph, operations: Indices, partition: int) -> list[list[int]]:
    """Gradients that travel together, in the order in which they become ready; a large one is alone."""
    ready_s = serial_times(graph, operations).ready_s
    order = [g for g in np.argsort(ready_s, kind="stable").tolist() if graph.produced[g]]
    sizes, dtypes = graph.parameter_bytes.tolist(), graph.parameter_dtypes
    batches: list[list[int]] = []
    small: list[int] = []

    def close() -> None:
        if small:
            batches.append(small.copy())
            small.clear()

    for g in order:
        if 2 * sizes[g] > partition:
            batches.append([g])
            continue
        if small and dtypes[g] != dtypes[small[0]]:
            close()
        small.append(g)
        if 2 * sum(sizes[i] for i in small) > partition:
            close()
    close()
    return batches


def _slices(size_bytes: int, partition: int) -> list[tuple[int, int, int] | None]:
    """The slices of a batch of so many bytes; [None] where it stays whole."""
    count = min(max(1, -(-size_bytes // partition)), MOST_CHUNKS)
    return [(k, k + 1, count) for k in range(count)] if count > 1 else [None]
