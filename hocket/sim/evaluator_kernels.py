"""A changed plan's program assembled and run, in one kernel for each architecture.

One worker stands for all: where workers repeat one step, they stay in lockstep.
"""

from __future__ import annotations

import numpy as np

from hocket.kernel import kernel
from hocket.network import pipelined_s
from hocket.sim.loop import event_loop
from hocket.sim.loop.channels import alike_links
from hocket.sim.loop.step_program import ChannelLinks, ItemTimes, StepDurations
from hocket.sim.lowering.allreduce import assemble_allreduce
from hocket.sim.lowering.server_plan import assemble_server

_pipelined_s = kernel(pipelined_s)


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
def evaluate_allreduce(layout, plan, costs, sizes, local_s, worker_ops, num_steps):
    """Seconds of a step, and when each worker operation starts in the last step, (n,).

    costs (patterns, 4): latency, handling, wire and reduce seconds, as ``CollectiveCost`` has them; sizes
    (p,): bytes of each parameter; local_s (1, n): of operations.
    """
    order, first = plan.order, plan.first
    num_reductions = len(first) - 1
    seconds = np.empty((1, num_reductions))
    for r in range(num_reductions):
        size = 0.0
        for k in range(first[r], first[r + 1]):
            size += sizes[order[k]]
        best = np.inf
        cut = plan.chunks[first[r]]
        for c in range(len(costs)):
            wire_s, reduce_s = costs[c, 2] * size, costs[c, 3] * size
            best = min(best, _pipelined_s(costs[c, 0], costs[c, 1], wire_s, reduce_s, cut))
        seconds[0, r] = best
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
