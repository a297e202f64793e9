"""Starting points of a search: known plans, and list schedules of orders, batches and ranks.

A list schedule lets a link always take, of what is ready, what is needed soonest. It is made for several
sizes of batches, for the program's own compute order and for Caramel's.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from hocket.graph import Plan, StepGraph
from hocket.graph.csr import Indices
from hocket.graph.flat_plan import FlatPlan, Transfers, flatten
from hocket.graph.step import Seconds
from hocket.network import Network, fair_share_bps, reduction_s
from hocket.planner.caramel.completion_order import best_order, compute_order, control_edges
from hocket.planner.halves import halved_schedule
from hocket.planner.worker_processor import SerialTimes, serial_times, step_operations

_CAPS_BYTES = (0, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20)


def starts(
    graph: StepGraph, network: Network, plans: Iterable[Plan], chunks: Indices, halves: bool = False
) -> list[FlatPlan]:
    """Plans to start from, all of the architecture and barrier of ``plans`` (at least one).

    ``chunks`` (p,): in how many slices each parameter travels; ``halves``: some are to have halves.
    """
    known = [_sliced(flatten(plan, graph), chunks) for plan in plans]
    made = list(known)
    for ordered in _compute_orders(graph):
        rank = _rank(graph, ordered)
        times = serial_times(graph, ordered)
        gradients = [
            _list_schedule(graph, network, known[0].architecture, times.ready_s, times.used_s, cap)
            for cap in _CAPS_BYTES
        ]
        if known[0].architecture == "allreduce":
            made += [replace(known[0], gradients=order, listed=True, rank=rank) for order in gradients]
            made += [replace(plan, rank=rank) for plan in known]
            if halves:
                made += [
                    replace(known[0], gradients=order, listed=False, rank=rank)
                    for order in _halved_schedules(graph, network, times)
                ]
            continue
        for plan in known:
            # Transfers go as they become ready, so a later order of computing takes effect on them.
            made.append(replace(plan, rank=rank))
            made += [
                _sliced(replace(plan, gradients=order, listed=False, rank=rank), chunks)
                for order in gradients[:2]
            ]
    return made


def _halved_schedules(graph: StepGraph, network: Network, times: SerialTimes) -> list[Transfers]:
    in_order = _by_ready(graph, times.ready_s).tolist()
    return [halved_schedule(graph, network, times, _batch_names(graph, in_order, cap)) for cap in _CAPS_BYTES]


def _by_ready(graph: StepGraph, ready_s: Seconds) -> Indices:
    """Gradients in the order in which they are complete."""
    in_order = np.flatnonzero(graph.produced)
    return in_order[np.argsort(ready_s[in_order], kind="stable")]


def _sliced(flat: FlatPlan, chunks: Indices) -> FlatPlan:
    """``flat`` with the given slices; a sliced parameter travels alone."""
    if flat.architecture == "allreduce":
        return flat

    def cut(transfers: Transfers) -> Transfers:
        alone = chunks[transfers.order] > 1
        starts = transfers.starts | alone
        starts[1:] |= alone[:-1]
        return replace(transfers, starts=starts, chunks=chunks[transfers.order])

    return replace(flat, pulls=cut(flat.pulls), gradients=cut(flat.gradients))


def _compute_orders(graph: StepGraph) -> list[Indices]:
    program = step_operations(graph)
    if not graph.produced.any():
        return [program]
    return [program, compute_order(graph, control_edges(graph, best_order(graph)))]


def _rank(graph: StepGraph, ordered: Indices) -> Indices:
    """The place of every operation, those that are not in ``ordered`` last."""
    rank = np.full(graph.num_operations, -1)
    rank[ordered] = np.arange(len(ordered))
    rest = np.flatnonzero(rank < 0)
    rank[rest] = len(ordered) + np.arange(len(rest))
    return rank


def _list_schedule(
    graph: StepGraph, network: Network, architecture: str, ready_s: Seconds, used_s: Seconds, cap_bytes: int
) -> Transfers:
    """Gradients in batches of at least ``cap_bytes`` as they appear; of the ready ones the soonest needed."""
    batches = _batch_names(graph, _by_ready(graph, ready_s).tolist(), cap_bytes)
    rate_bps = fair_share_bps(network)
    now, coming, waiting, issued = 0.0, 0, list[tuple[float, int]](), list[int]()
    while coming < len(batches) or waiting:
        if not waiting:
            now = max(now, float(ready_s[batches[coming]].max()))
        while coming < len(batches) and ready_s[batches[coming]].max() <= now:
            heapq.heappush(waiting, (float(used_s[batches[coming]].min()), coming))
            coming += 1
        _, b = heapq.heappop(waiting)
        size = float(graph.parameter_bytes[batches[b]].sum())
        if architecture == "allreduce":
            now += reduction_s(network, size)
        else:
            now += network.startup_s + 8 * size / rate_bps
        issued.append(b)
    order = np.array([i for b in issued for i in batches[b]], np.int64)
    begins = np.zeros(len(order), bool)
    begins[np.cumsum([0, *(len(batches[b]) for b in issued)], dtype=np.int64)[:-1]] = True
    return Transfers(
        order=order,
        starts=begins,
        chunks=np.ones(len(order), np.int64),
        forward=np.full(len(order), architecture == "allreduce"),
        halves=np.zeros(len(order), bool),
    )


def _batch_names(graph: StepGraph, parameters: list[int], cap_bytes: int) -> list[list[int]]:
    """``parameters`` in their order; a batch is complete when it has ``cap_bytes``."""
    batches: list[list[int]] = []
    open_bytes = cap_bytes
    for i in parameters:
        if open_bytes >= cap_bytes:
            batches.append([])
            open_bytes = 0
        batches[-1].append(i)
        open_bytes += int(graph.parameter_bytes[i])
    return batches
