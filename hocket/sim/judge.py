"""How long a step takes under a changed plan, thousands of times a second.

The simulator itself, on one worker that stands for all: where workers repeat one step, they stay in lockstep.
What no plan changes is laid out once; a plan's part of the program is assembled in a kernel.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from hocket.graph import Plan, StepGraph
from hocket.graph.csr import Indices
from hocket.graph.flat_plan import FlatPlan, Transfers, plan_of
from hocket.kernel import kernel
from hocket.network import Network, collective_cost, patterns_of, pipelined_s
from hocket.sim import _kernel
from hocket.sim.allreduce import assemble_reduced, reduced_step
from hocket.sim.channels import alike_links
from hocket.sim.lowered import Floats
from hocket.sim.parameter_server import server_step
from hocket.sim.server_plan import assemble_server
from hocket.sim.slices import slice_graph

_pipelined_s = kernel(pipelined_s)

# Overlapping steps to run, early on and settled: the first half settles, the rest is measured, and with a
# parameter server one more follows.
_STEPS = {"step": (1, 1), "parameter": (4, 12), "allreduce": (3, 10)}


class Judge:
    """The seconds of a step of ``graph`` on ``network`` under any plan for ``architecture`` and ``barrier``.

    Operations take the mean of their measured times. ``chunks`` (p,): in how many slices each parameter
    travels (parameter servers); one by default.

    Raises
    ------
    HocketError
        When there are more servers than parameters.
    """

    def __init__(
        self,
        graph: StepGraph,
        network: Network,
        architecture: Literal["ps", "allreduce"],
        barrier: Literal["step", "parameter"] = "step",
        chunks: Indices | None = None,
    ) -> None:
        self.graph, self.architecture, self.barrier = graph, architecture, barrier
        self.chunks = np.ones(graph.num_parameters, np.int64) if chunks is None else chunks
        self._network = network
        mean_s = graph.durations_s.mean(axis=1)
        if architecture == "allreduce":
            self._reduced = reduced_step(graph, network)
            self._worker_ops = np.flatnonzero(~self._reduced.update)
            self._durations_s = mean_s[None, :]
            costs = [collective_cost(pattern, network) for pattern in patterns_of(network)]
            self._costs = np.array(
                [
                    (cost.latency_s, cost.handling_s, cost.wire_s_per_byte, cost.reduce_s_per_byte)
                    for cost in costs
                ]
            )
            self._bytes = graph.parameter_bytes.astype(np.float64)
            return
        cut, _ = slice_graph(graph, self.chunks)
        self._first_piece = np.concatenate([[0], np.cumsum(self.chunks)])
        self._server = server_step(cut, network, overlapping=barrier == "parameter")
        mean_s = cut.durations_s.mean(axis=1)
        self._durations_s = mean_s[self._server.worker_ops][None, :]
        self._server_s = mean_s[self._server.server_ops][None, :]
        # Slicing cuts updates only, so worker operations stand in the same order in both steps.
        uncut = server_step(graph, network, overlapping=False)
        self._worker_ops = uncut.worker_ops

    def seconds(self, flat: FlatPlan, *, settled: bool = False) -> float:
        """The step under ``flat``; where steps overlap, early on or ``settled`` in their steady state."""
        return float(self._run(flat, settled)[0])

    def plan(self, flat: FlatPlan, policy: str) -> Plan:
        """``flat`` as a plan; a rank other than the file's becomes the strict order that it came to."""
        if (flat.rank == np.arange(len(flat.rank))).all():
            return plan_of(flat, self.graph, policy)
        _, started = self._run(flat, True)
        order = self._worker_ops[np.lexsort((flat.rank[self._worker_ops], started))]
        return plan_of(flat, self.graph, policy, _after_inputs(self.graph, order))

    def _run(self, flat: FlatPlan, settled: bool) -> tuple[float, Floats]:
        network, rank = self._network, flat.rank[self._worker_ops]
        num_steps = _STEPS[self.barrier if self.architecture == "ps" else "allreduce"][settled]
        if self.architecture == "allreduce":
            step, reductions = self._reduced, flat.gradients
            return _judge_reduced(  # type: ignore[no-any-return]
                step.layout,
                step.done,
                step.sources,
                step.targets,
                step.update,
                reductions.order,
                reductions.first,
                reductions.forward,
                reductions.chunks,
                flat.listed,
                flat.rank,
                self._costs,
                self._bytes,
                self._durations_s,
                self._worker_ops,
                num_steps,
            )
        server = self._server
        pulls, pushes = self._sliced(flat.pulls), self._sliced(flat.gradients)
        return _judge_server(  # type: ignore[no-any-return]
            server.layout,
            server.done,
            server.sources,
            server.targets,
            server.home,
            server.bits,
            server.server_of_op,
            *pulls,
            *pushes,
            flat.listed,
            rank,
            network.num_workers,
            network.num_servers,
            network.bandwidth_bps,
            network.startup_s,
            network.window_bits,
            network.parse_s_per_byte,
            network.parse_s,
            self._durations_s,
            self._server_s,
            num_steps,
        )

    def _sliced(self, transfers: Transfers) -> tuple[Indices, Indices]:
        """Order and first of ``transfers`` with slices in place of parameters."""
        if len(self._first_piece) == self._first_piece[-1] + 1:
            return transfers.order, transfers.first
        return _expand(transfers.order, transfers.starts, self._first_piece)  # type: ignore[no-any-return]


def _after_inputs(graph: StepGraph, order: Indices) -> list[int]:
    """``order`` with operations that start at one instant (and take no time) after their inputs."""
    position = {int(op): k for k, op in enumerate(order)}
    placed: dict[int, None] = {}
    for op in order.tolist():
        stack = [op]
        while stack:
            missing = [j for j in graph.inputs.row(stack[-1]).tolist() if j in position and j not in placed]
            if missing:
                stack.append(min(missing, key=position.__getitem__))
            else:
                placed.setdefault(stack.pop())
    return list(placed)


@kernel
def _expand(order, starts, first_piece):
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
def _judge_server(
    layout,
    done,
    sources,
    targets,
    home,
    bits,
    server_of_op,
    pull_order,
    pull_first,
    push_order,
    push_first,
    listed,
    rank,
    num_workers,
    num_servers,
    bandwidth_bps,
    startup_s,
    window_bits,
    parse_s_per_byte,
    parse_s,
    durations,
    server_durations,
    num_steps,
):
    """Seconds of a step, and when each worker operation starts in the step that is measured, (n,)."""
    program, preference, _, _ = assemble_server(
        layout,
        sources,
        targets,
        home,
        bits,
        server_of_op,
        pull_order,
        pull_first,
        push_order,
        push_first,
        listed,
        np.zeros(0, np.int64),
        rank,
        1,
        num_servers,
        parse_s_per_byte,
        parse_s,
    )
    size = len(program.lane)
    start, end = np.empty(num_steps * size), np.empty(num_steps * size)
    num_turns = num_steps * size if window_bits > 0.0 else 0
    _kernel.run(
        program,
        preference.reshape(1, -1),
        durations,
        np.zeros((num_steps, 1), np.int64),
        server_durations,
        np.zeros(num_steps, np.int64),
        np.ones(1),
        *alike_links(bandwidth_bps, bandwidth_bps),
        startup_s,
        window_bits,
        num_workers,
        np.inf,
        start,
        end,
        np.empty(num_turns),
        np.empty(num_turns),
    )
    first_op = program.num_globals
    if num_steps == 1:
        return end.max(), start[first_op : first_op + len(rank)]
    shown, half = (num_steps - 2) * size, (num_steps - 2) // 2
    period = (end[shown + done] - end[shown - half * size + done]) / half
    return period, start[shown + first_op : shown + first_op + len(rank)]


@kernel
def _judge_reduced(
    layout,
    done,
    sources,
    targets,
    update,
    order,
    first,
    forward,
    chunks,
    listed,
    rank,
    costs,
    sizes,
    durations,
    worker_ops,
    num_steps,
):
    """Seconds of a step, and when each worker operation starts in the last step, (n,).

    costs (patterns, 4): latency, handling, wire and reduce seconds, as ``CollectiveCost`` has them.
    """
    num_reductions = len(first) - 1
    seconds = np.empty((1, num_reductions))
    in_forward = np.empty(num_reductions, np.bool_)
    for r in range(num_reductions):
        size = 0.0
        for k in range(first[r], first[r + 1]):
            size += sizes[order[k]]
        best = np.inf
        cut = chunks[first[r]]
        for c in range(len(costs)):
            wire_s, reduce_s = costs[c, 2] * size, costs[c, 3] * size
            best = min(best, _pipelined_s(costs[c, 0], costs[c, 1], wire_s, reduce_s, cut))
        seconds[0, r] = best
        in_forward[r] = forward[first[r]]
    program, preference = assemble_reduced(
        layout, sources, targets, update, order, first, in_forward, listed, np.zeros(0, np.int64), rank, 1
    )
    size = len(program.lane)
    start, end = np.empty(num_steps * size), np.empty(num_steps * size)
    _kernel.run(
        program,
        preference.reshape(1, -1),
        durations,
        np.zeros((num_steps, 1), np.int64),
        seconds,
        np.zeros(num_steps, np.int64),
        np.ones(1),
        *alike_links(1.0, 1.0),
        0.0,
        0.0,
        1,
        np.inf,
        start,
        end,
        np.empty(0),
        np.empty(0),
    )
    last = (num_steps - 1) * size
    at = program.num_globals + done
    half = num_steps // 2
    return (end[last + at] - end[last - half * size + at]) / half, start[
        last + program.num_globals + worker_ops
    ]
