"""A changed plan's program assembled and run, in one kernel for each architecture.

One worker stands for all: where workers repeat one step, they stay in lockstep.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hocket.kernel import kernel
from hocket.network import pipelined_s
from hocket.sim.loop import event_loop
from hocket.sim.loop.channels import alike_links
from hocket.sim.loop.step_program import ChannelLinks, ItemTimes, StepDurations
from hocket.sim.lowering.allreduce import assemble_allreduce, num_transfers
from hocket.sim.lowering.lowered import Floats
from hocket.sim.lowering.server_plan import assemble_server

_pipelined_s = kernel(pipelined_s)


class TransferCosts(NamedTuple):
    """The ways to reduce, and to reduce in halves, each a row: seconds of latency, handling, wire, reducing.

    As ``CollectiveCost`` has them.
    """

    whole: Floats  # (patterns, 4)
    scatter: Floats  # (ways, 4)
    gather: Floats  # (ways, 4), each behind the scatter of that way
    number_s: float


@kernel
def expand(order, starts, first_piece):
    """Each parameter's pieces in its place; a parameter of several pieces has a transfer for each."""
    num_pieces = 0
    for i in order:
        num_pieces += first_piece[i + 1] - first_piece[i]
    pieces, first = np.empty(num_pieces, np.int64), np.empty(num_pieces + 1, np.int64)
    count = batches = 0
    for k in range(len(order)):
        sliced = first_piece[order[k] + 1] - first_piece[order[k]] > 1
        for piece in range(first_piece[order[k]], first_piece[order[k] + 1]):
            if starts[k] or sliced:
                first[batches] = count
                batches += 1
            pieces[count] = piece
            count += 1
    first[batches] = count
    return pieces, first[: batches + 1].copy()


@kernel
def evaluate_servers(layout, plan, costs, links, local_s, global_s, num_steps):
    """Seconds of a step, and when each worker operation starts in the step that is measured, (n,).

    local_s (1, n), global_s (1, d): of worker and of server operations.
    """
    program, preference, _, _ = assemble_server(layout, plan, costs, 1)
    size = len(program.lane)
    start, end = np.empty(num_steps * size), np.empty(num_steps * size)
    num_turns = num_steps * size if links.window_bits > 0.0 else 0
    event_loop.run_event_loop(
        program,
        preference.reshape(1, -1),
        _undrawn(local_s, global_s, num_steps),
        links,
        ItemTimes(start, end, np.empty(num_turns), np.empty(num_turns)),
    )
    first_op, num_ops, done = program.num_globals, len(plan.rank), layout.done
    if num_steps == 1:
        return end.max(), start[first_op : first_op + num_ops]
    shown, half = (num_steps - 2) * size, (num_steps - 2) // 2
    period = (end[shown + done] - end[shown - half * size + done]) / half
    return period, start[shown + first_op : shown + first_op + num_ops]


@kernel
def _way_s(costs, way, size, chunks):
    wire_s, reduce_s = costs[way, 2] * size, costs[way, 3] * size
    return _pipelined_s(costs[way, 0], costs[way, 1], wire_s, reduce_s, chunks)


@kernel
def _transfers_s(layout, plan, costs, sizes):
    """Seconds of all transfers, as :func:`hocket.sim.lowering.allreduce.transfers_s` has them."""
    order, first = plan.order, plan.first
    num_reductions, numbers, gathers = num_transfers(layout, plan)
    seconds = np.full(num_reductions + numbers + gathers, costs.number_s)
    gather = num_reductions + numbers
    for r in range(num_reductions):
        size, cut, best = 0.0, plan.chunks[first[r]], np.inf
        for k in range(first[r], first[r + 1]):
            size += sizes[order[k]]
        if not plan.halves[first[r]]:
            for way in range(len(costs.whole)):
                best = min(best, _way_s(costs.whole, way, size, cut))
            seconds[r] = best
            continue
        for way in range(len(costs.scatter)):
            scatter_s, gather_s = _way_s(costs.scatter, way, size, cut), _way_s(costs.gather, way, size, cut)
            if scatter_s + gather_s < best:
                best, seconds[r], seconds[gather] = scatter_s + gather_s, scatter_s, gather_s
        gather += 1
    return seconds


@kernel
def evaluate_allreduce(layout, plan, costs, sizes, local_s, worker_ops, num_steps):
    """Seconds of a step, and when each worker operation starts in the last step, (n,).

    costs: :class:`TransferCosts`; sizes (p,): bytes of each parameter; local_s (1, n): of operations.
    """
    seconds = _transfers_s(layout, plan, costs, sizes).reshape(1, -1)
    program, preference = assemble_allreduce(layout, plan, 1)
    size = len(program.lane)
    start, end = np.empty(num_steps * size), np.empty(num_steps * size)
    route, capacity_bps = alike_links(1.0, 1.0)
    event_loop.run_event_loop(
        program,
        preference.reshape(1, -1),
        _undrawn(local_s, seconds, num_steps),
        ChannelLinks(route, capacity_bps, 0.0, 0.0, 1),
        ItemTimes(start, end, np.empty(0), np.empty(0)),
    )
    last = (num_steps - 1) * size
    at = program.num_globals + layout.done
    half = num_steps // 2
    return (end[last + at] - end[last - half * size + at]) / half, start[
        last + program.num_globals + worker_ops
    ]


@kernel
def _undrawn(local_s, global_s, num_steps):
    """Durations of steps that all take the same, as do all processors."""
    return StepDurations(
        local_s, np.zeros((num_steps, 1), np.int64), global_s, np.zeros(num_steps, np.int64), np.ones(1)
    )
