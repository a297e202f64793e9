"""The evaluator: the time of a step under a changed plan, thousands of times a second.

The simulator itself, on one worker that stands for all. The part that no plan changes is laid out once; a
plan's part of the program is assembled in a kernel (:mod:`hocket.sim.evaluator_kernels`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from hocket.graph import Plan, StepGraph
from hocket.graph.csr import Indices
from hocket.graph.flat_plan import FlatPlan, Transfers, plan_of
from hocket.network import (
    CollectiveCost,
    Network,
    collective_cost,
    half_costs,
    number_s,
    patterns_of,
)
from hocket.sim.evaluator_kernels import TransferCosts, evaluate_allreduce, evaluate_servers, expand
from hocket.sim.loop.channels import alike_links
from hocket.sim.loop.step_program import ChannelLinks
from hocket.sim.lowering.allreduce import AllReducePlan, allreduce_step
from hocket.sim.lowering.lowered import Floats
from hocket.sim.lowering.parameter_server import server_step
from hocket.sim.lowering.server_plan import ServerCosts, ServerPlan
from hocket.sim.lowering.slices import slice_graph

# Overlapping steps to run, early on and steady: the first half warms up, the rest is measured, and with a
# parameter server one more follows. Few, as the search asks often: a plan can take longer, and
# what `hocket plan` says of the one that it ends with is simulated.
_FREE = np.zeros(0, np.int64)  # no operations have to follow one another
STEPS = {"step": (1, 1), "parameter": (4, 12), "allreduce": (3, 10)}


class PlanEvaluator:
    """The seconds of a step of ``graph`` on ``network`` under any plan for ``architecture`` and ``barrier``.

    Operations take the mean of their measured times. ``chunks`` (p,): in how many slices each parameter
    travels (parameter servers); one by default. ``halves``: a search may cut reductions in halves.

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
        halves: bool = False,
    ) -> None:
        self.graph, self.architecture, self.barrier, self.halves = graph, architecture, barrier, halves
        self.chunks = np.ones(graph.num_parameters, np.int64) if chunks is None else chunks
        mean_s = graph.durations_s.mean(axis=1)
        if architecture == "allreduce":
            self._allreduce_layout = allreduce_step(graph, network).layout
            self._worker_ops = np.flatnonzero(~self._allreduce_layout.update)
            self._durations_s = mean_s[None, :]
            whole = [collective_cost(pattern, network) for pattern in patterns_of(network)]
            ways = half_costs(network)
            self._costs = TransferCosts(
                _cost_rows(whole),
                _cost_rows([scatter for scatter, _ in ways]),
                _cost_rows([gather for _, gather in ways]),
                number_s(network),
            )
            self._bytes = graph.parameter_bytes.astype(np.float64)
            return
        cut, _ = slice_graph(graph, self.chunks)
        self._server_costs = ServerCosts.of(network)
        route, capacity_bps = alike_links(network.bandwidth_bps, network.bandwidth_bps)
        self._links = ChannelLinks(
            route, capacity_bps, float(network.startup_s), network.window_bits, network.num_workers
        )
        self._first_piece = np.concatenate([[0], np.cumsum(self.chunks)])
        step = server_step(cut, network, overlapping=barrier == "parameter")
        mean_s = cut.durations_s.mean(axis=1)
        self._durations_s = mean_s[step.worker_ops][None, :]
        self._server_s = mean_s[step.server_ops][None, :]
        self._server_layout = step.layout
        # Slicing cuts updates only, so worker operations stand in the same order in both steps.
        uncut = server_step(graph, network, overlapping=False)
        self._worker_ops = uncut.worker_ops

    def seconds(self, flat: FlatPlan, *, steady: bool = False) -> float:
        """The step under ``flat``; early on or, ``steady``, of the latter half of a dozen that overlap."""
        return float(self._run(flat, steady)[0])

    def plan(self, flat: FlatPlan, policy: str) -> Plan:
        """``flat`` as a plan; a rank other than the file's becomes the strict order that it came to."""
        if (flat.rank == np.arange(len(flat.rank))).all():
            return plan_of(flat, self.graph, policy)
        _, started = self._run(flat, True)
        order = self._worker_ops[np.lexsort((flat.rank[self._worker_ops], started))]
        return plan_of(flat, self.graph, policy, _after_inputs(self.graph, order))

    def _run(self, flat: FlatPlan, steady: bool) -> tuple[float, Floats]:
        num_steps = STEPS[self.barrier if self.architecture == "ps" else "allreduce"][steady]
        if self.architecture == "allreduce":
            return evaluate_allreduce(  # type: ignore[no-any-return]
                self._allreduce_layout,
                AllReducePlan.of(flat, flat.rank, _FREE),
                self._costs,
                self._bytes,
                self._durations_s,
                self._worker_ops,
                num_steps,
            )
        pulls, pushes = self._slice_transfers(flat.pulls), self._slice_transfers(flat.gradients)
        return evaluate_servers(  # type: ignore[no-any-return]
            self._server_layout,
            ServerPlan(*pulls, *pushes, flat.listed, flat.rank[self._worker_ops], _FREE),
            self._server_costs,
            self._links,
            self._durations_s,
            self._server_s,
            num_steps,
        )

    def _slice_transfers(self, transfers: Transfers) -> tuple[Indices, Indices]:
        """Order and first of ``transfers`` with slices in place of parameters."""
        if len(self._first_piece) == self._first_piece[-1] + 1:
            return transfers.order, transfers.first
        return expand(transfers.order, transfers.starts, self._first_piece)  # type: ignore[no-any-return]


def _cost_rows(costs: Sequence[CollectiveCost]) -> Floats:
    return np.array([(c.latency_s, c.handling_s, c.wire_s_per_byte, c.reduce_s_per_byte) for c in costs])


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
