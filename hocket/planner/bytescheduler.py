"""ByteScheduler for AllReduce: slices by the layer that is read first, in one static order across steps.

Source: Peng et al., A Generic Communication Scheduler for Distributed DNN Training Acceleration, SOSP 2019.
Large gradients are partitioned; of the slices that are ready the one whose layer the next forward pass reads
first goes first, and transfers run on into that forward pass.

Differs from the paper
----------------------
* The order is fixed before the run, by simulating the priority queue over several steps: ranks that chose
  at run time would have to negotiate each transfer. It is that of a step in the rhythm to which the queue
  comes.
* Small gradients that become ready one after the other share a transfer, up to half a partition; and as
  the order is known, slices of one gradient between which nothing urgent comes do, up to ``most_bytes``.
* What the queue would send the moment it is ready has a lane of its own, so that others go on if it is late.
* The partition is where a transfer's constant cost is a tenth of it, and 1 MiB at least, not tuned by
  trial; ``partition_bytes`` sets it. The credit is the runtime's.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from hocket.graph import Plan, Reduction, StepGraph
from hocket.graph.csr import Indices
from hocket.graph.updates import is_update
from hocket.graph.validate import MOST_CHUNKS
from hocket.network import Network, reduction_s
from hocket.planner.caramel_batches import fit_network
from hocket.planner.caramel_order import best_order, compute_order, control_edges
from hocket.planner.processor import serial_times, step_operations

_CONSTANT_SHARE = 0.1
# Below the least, what a transfer costs the processors is more than what an urgent one gains.
_LEAST_BYTES, _MOST_BYTES = 1 << 20, 16 << 20
_STEPS = 4  # after the first few, steps repeat
_PROMPT = 0.05  # of a step; what is ready by so much earlier is not late


@dataclass(frozen=True)
class _Piece:
    """Gradients (parameter indices) of one transfer, or a slice (k, n) of one; ``cost_s`` on the network."""

    gradients: tuple[int, ...]
    slice: tuple[int, int] | None
    cost_s: float


@dataclass(frozen=True)
class _Issued:
    """When a piece (its index) was ready, and when it went."""

    piece: int
    ready_s: float
    start_s: float


def partition_of(network: Network) -> int:
    """Bytes of a transfer whose constant cost is a tenth of it, between 1 MiB and 16 MiB."""
    model = fit_network(network)
    wanted = model.startup_s / (_CONSTANT_SHARE * model.s_per_byte) if model.s_per_byte else _MOST_BYTES
    return int(min(max(wanted, _LEAST_BYTES), _MOST_BYTES))


def bytescheduler(
    graph: StepGraph,
    network: Network,
    partition_bytes: int | None = None,
    *,
    most_bytes: int = 0,
    ordered: bool = False,
) -> Plan:
    """Plan the reductions of ``graph`` in slices of at most ``partition_bytes``.

    ``most_bytes``: of a transfer of several slices; none are put together by default.
    ``ordered``: also put the operations into Caramel's order (section 4.1), which completes gradients early.
    """
    partition = partition_of(network) if partition_bytes is None else partition_bytes
    operations = step_operations(graph)
    if ordered:
        operations = compute_order(graph, control_edges(graph, best_order(graph)))
    pieces = _pieces(graph, network, operations, partition)
    rhythm = _rhythm(graph, operations.tolist(), pieces)
    return Plan(
        policy="bytescheduler",
        model=graph.model,
        architecture="allreduce",
        reductions=_reductions(graph, pieces, rhythm, most_bytes),
        compute_order=tuple(graph.operation_names[i] for i in operations) if ordered else None,
        issue="listed",
    )


def _pieces(graph: StepGraph, network: Network, operations: Indices, partition: int) -> list[_Piece]:
    """Transfers in the order in which they become ready."""
    ready_s = serial_times(graph, operations).ready_s
    order = [g for g in np.argsort(ready_s, kind="stable").tolist() if graph.produced[g]]
    sizes, dtypes = graph.parameter_bytes.tolist(), graph.parameter_dtypes
    pieces: list[_Piece] = []
    small: list[int] = []

    def close() -> None:
        if small:
            cost_s = reduction_s(network, sum(sizes[g] for g in small))
            pieces.append(_Piece(tuple(small), None, cost_s))
            small.clear()

    for g in order:
        if 2 * sizes[g] > partition:
            count = min(max(1, -(-sizes[g] // partition)), MOST_CHUNKS)
            cost_s = reduction_s(network, sizes[g] / count)
            pieces += [_Piece((g,), (k, count) if count > 1 else None, cost_s) for k in range(count)]
            continue
        if small and dtypes[g] != dtypes[small[0]]:
            close()
        small.append(g)
        if 2 * sum(sizes[i] for i in small) > partition:
            close()
    close()
    return pieces


def _reductions(
    graph: StepGraph, pieces: list[_Piece], rhythm: list[_Issued], most_bytes: int
) -> tuple[Reduction, ...]:
    """The transfers of ``pieces`` as they are issued, slices in a row together as far as they may be."""
    lanes = _lanes(rhythm)
    runs: list[list[int]] = []
    for k in lanes:
        cut, gradients = pieces[k].slice, pieces[k].gradients
        follows = runs and runs[-1][-1] == k - 1 and lanes[k - 1] == lanes[k]
        if follows and cut is not None and pieces[k - 1].gradients == gradients:
            run_bytes = (len(runs[-1]) + 1) * int(graph.parameter_bytes[gradients[0]]) / cut[1]
            if run_bytes <= most_bytes:
                runs[-1].append(k)
                continue
        runs.append([k])
    return tuple(
        Reduction(
            parameters=tuple(graph.parameter_names[g] for g in pieces[run[0]].gradients),
            window="forward",
            slice=_slices(pieces[run[0]], len(run)),
            lane=lanes[run[0]],
        )
        for run in runs
    )


def _lanes(rhythm: list[_Issued]) -> dict[int, int]:
    """The lane of each piece, in the order of ``rhythm``.

    What goes the moment it is ready, before what was ready earlier, goes in the second lane: were it a little
    late, the network would wait for it.
    """
    lanes: dict[int, int] = {}
    step_s = rhythm[-1].start_s - rhythm[0].start_s if rhythm else 0.0
    earliest_s = np.inf  # of what is issued later
    for issued in reversed(rhythm):
        urgent = issued.start_s - issued.ready_s < _PROMPT * step_s
        lanes[issued.piece] = int(urgent and earliest_s < issued.ready_s)
        earliest_s = min(earliest_s, issued.ready_s)
    return dict(reversed(lanes.items()))


def _slices(first: _Piece, number: int) -> tuple[int, int, int] | None:
    """So many slices from ``first`` on; None for all of them."""
    if first.slice is None or number == first.slice[1]:
        return None
    k, count = first.slice
    return k, k + number, count


def _rhythm(graph: StepGraph, operations: list[int], pieces: list[_Piece]) -> list[_Issued]:
    """A step's ``pieces`` as they go when processor and network wait for each other."""
    seconds = graph.oracle_s.tolist()
    update_s = _update_seconds(graph)
    makers = graph.produces.transpose(graph.num_parameters)
    pieces_of: dict[int, list[int]] = {}
    for k, piece in enumerate(pieces):
        for g in piece.gradients:
            pieces_of.setdefault(g, []).append(k)
    place = [len(operations)] * graph.num_parameters
    for position, i in reversed(list(enumerate(operations))):
        for g in graph.reads.row(i).tolist():
            place[g] = position
    urgency = [min(place[g] for g in piece.gradients) for piece in pieces]

    now = free_s = 0.0
    waiting: list[tuple[int, int]] = []  # urgency, piece
    coming: list[tuple[float, int]] = []  # ready, piece; in the order of time
    ready_s = [0.0] * len(pieces)
    arrived_s = dict.fromkeys(range(len(pieces)), 0.0)
    of_step = [0] * len(pieces)
    issued: list[tuple[int, _Issued]] = []  # of which step

    def arrive(g: int) -> None:
        """Wait for the gradient ``g``; what is ready meanwhile is known, as nobody computes."""
        nonlocal now, free_s
        for wanted in pieces_of.get(g, ()):
            while wanted not in arrived_s:
                while coming and (coming[0][0] <= free_s or not waiting):
                    ready, k = coming.pop(0)
                    free_s = max(free_s, ready) if not waiting else free_s
                    heapq.heappush(waiting, (urgency[k], k))
                _, k = heapq.heappop(waiting)
                issued.append((of_step[k], _Issued(k, ready_s[k], max(free_s, ready_s[k]))))
                free_s += pieces[k].cost_s
                arrived_s[k] = free_s
            now = max(now, arrived_s[wanted])

    for step in range(_STEPS):
        missing = [sum(len(makers.row(g)) for g in piece.gradients) for piece in pieces]
        seen: set[int] = set()
        for i in operations:
            for g in graph.reads.row(i).tolist():
                if g not in seen:
                    seen.add(g)
                    arrive(g)
                    now += update_s[g]
            for g in graph.produces.row(i).tolist():
                arrive(g)  # its buffer is written anew
            now += seconds[i]
            for g in graph.produces.row(i).tolist():
                for k in pieces_of[g]:
                    missing[k] -= 1
                    if missing[k] == 0:
                        del arrived_s[k]
                        of_step[k] = step
                        ready_s[k] = now
                        coming.append((now, k))
    for g in pieces_of:
        arrive(g)
    return [each for step, each in issued if step == _STEPS - 1]


def _update_seconds(graph: StepGraph) -> list[float]:
    """For each parameter, what its updates take; one that several share falls to the first."""
    seconds = [0.0] * graph.num_parameters
    for i in np.flatnonzero(is_update(graph)).tolist():
        reads = graph.reads.row(i).tolist()
        if reads:
            seconds[reads[0]] += float(graph.oracle_s[i])
    return seconds
