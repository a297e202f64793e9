"""One worker's step and its plan, lowered to what the prediction kernel runs.

Source: Li et al., "Throughput Prediction of Asynchronous SGD in TensorFlow" (ICPE 2020), sections 3.2, 3.4.

parameter -> pull (downlink) -> parse (worker) -> operations (worker) -> push (uplink) -> parse, update
(server)

Differs from the paper
----------------------
* A processor takes the first ready operation in the file, not the one that became ready first: the programs
  that we profile run in file order. A message is parsed right before its first reader.
* Transfers are those of a plan: several parameters may travel in one message, one for each server.
* With several servers each worker has two streams and a processor of its own at every one of them.
* Updates may wait for their worker's commit, as those of Hocket's own servers do: for the end of its
  operations, with every pull there; asynchronous ones then share one processor a server. And a server that
  has run all of its own updates of a worker's step begins to send for the next one, whatever others have left
  to do; in the paper a step begins everywhere at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from hocket.graph import Plan, StepGraph, check_plan
from hocket.graph.csr import Indices
from hocket.network import Network
from hocket.predictor.program import WorkerProgram
from hocket.predictor.step_nodes import StepNodes
from hocket.sim.lowering.lowered import Edges, Floats
from hocket.sim.lowering.slices import slice_step


class Demand(NamedTuple):
    """The demand of one worker's step on each resource, means over the measured steps.

    ``pull_bits``, ``push_bits`` (M,): on each server's streams; ``worker_s``: the worker's processor, parsing
    included; ``server_s`` (M,): each server's, and ``turn_s`` (M,) what of it is done for one worker after
    another.
    """

    pull_bits: Floats
    push_bits: Floats
    worker_s: float
    server_s: Floats
    turn_s: Floats


@dataclass(frozen=True, kw_only=True)
class WorkerStep:
    """A step as the kernel runs it.

    ``durations_s`` (samples, T), ``global_durations_s`` (samples, G): seconds of what takes time on
    processors; ``nodes``: where in the program everything is; ``num_events``: operations and transfers of one
    worker's step, whether joined or not.
    """

    program: WorkerProgram
    durations_s: Floats
    global_durations_s: Floats
    nodes: StepNodes
    num_events: int

    @cached_property
    def demand(self) -> Demand:
        """The demand of the step on each resource."""
        program, servers = self.program, self.program.num_servers
        seconds, timed = self.durations_s.mean(axis=0), program.num_timed
        lane = program.lane[:timed]
        server_s = np.bincount(lane[lane > 0] - 1, seconds[lane > 0], minlength=servers)
        in_turn = program.in_turn[:timed]
        turn_s = np.bincount(lane[in_turn] - 1, seconds[in_turn], minlength=servers)
        if self.global_durations_s.size:
            shared_s = self.global_durations_s.mean(axis=0)
            server_s = server_s + np.bincount(program.global_server, shared_s, minlength=servers)
        stream = program.lane[timed:] - 1 - servers
        bits = np.bincount(stream, program.bits, minlength=2 * servers).astype(np.float64)
        worker_s = float(seconds[lane == 0].sum())
        seconds_of = server_s.astype(np.float64), turn_s.astype(np.float64)
        return Demand(bits[:servers], bits[servers:], worker_s, *seconds_of)


class ExchangeRules(NamedTuple):
    """The rules by which workers exchange with servers.

    Attributes
    ----------
    synchronous : a step is over when its updates are, each of all the workers' gradients.
    window_bits : bits of the HTTP/2 window, 0 without.
    drawn_anew : workers draw the order of their pulls in each step.
    commits : updates wait for their worker's commit.
    """

    synchronous: bool
    window_bits: float = 0.0
    drawn_anew: bool = False
    commits: bool = False


def lower_worker_step(
    graph: StepGraph, plan: Plan, network: Network, rules: ExchangeRules, *, joined: bool = True
) -> WorkerStep:
    """Lower ``plan``, one for parameter servers.

    ``joined``: what always runs together, by the ``rules``, is one node.

    Raises
    ------
    FormatError, HocketError
        When the plan does not fit the step, or there are more servers than parameters.
    """
    check_plan(plan, graph)
    graph, plan = slice_step(graph, plan)
    synchronous, commits = rules.synchronous, rules.commits
    nodes = StepNodes(graph, plan, network, synchronous, commits)
    if joined:
        nodes.join(rules.window_bits, rules.drawn_anew)
    nodes.number()
    local, to_server, between = nodes.edges()
    num_globals = nodes.num_updates if synchronous else 0
    next_ptr, next_idx, waits = _rows(local, nodes.num_nodes, nodes.num_nodes)
    to_ptr, to_idx, global_waits = _rows(to_server, nodes.num_nodes, num_globals)
    global_ptr, global_idx, more_waits = _rows(between, num_globals, num_globals)
    lane, rank = nodes.lanes_and_ranks()
    awaited = np.zeros(nodes.num_nodes, bool)
    awaited[nodes.arrived] = synchronous
    in_turn = np.zeros(nodes.num_nodes, bool)
    in_turn[nodes.update : nodes.parse_push] = commits
    program = WorkerProgram(
        num_servers=network.num_servers,
        num_timed=nodes.pull,
        apart=commits and not synchronous and network.num_servers > 1,
        next_ptr=next_ptr,
        next_idx=next_idx,
        waits=waits,
        lane=lane,
        server=nodes.servers(),
        rank=rank,
        bits=np.concatenate([nodes.pulls.bits, nodes.pushes.bits]),
        batch=np.concatenate([nodes.pulls.batch, np.full(len(nodes.pushes.server), -1)]),
        num_batches=len(nodes.pulls.first) - 1,
        initial=np.flatnonzero(waits == 0),
        awaited=awaited,
        in_turn=in_turn,
        to_ptr=to_ptr,
        to_idx=to_idx,
        global_ptr=global_ptr,
        global_idx=global_idx,
        global_waits=global_waits + more_waits,
        global_server=nodes.update_server[:num_globals],
    )
    durations_s, global_durations_s = nodes.durations_s()
    return WorkerStep(
        program=program,
        durations_s=durations_s,
        global_durations_s=global_durations_s,
        nodes=nodes,
        num_events=graph.num_operations + len(nodes.pulls.server) + len(nodes.pushes.server),
    )


def _rows(edges: Edges, num_sources: int, num_targets: int) -> tuple[Indices, Indices, Indices]:
    """Distinct edges as row pointers (sources + 1,) and entries, and how many each target waits for."""
    sources, targets = edges.arrays()
    pairs = np.unique(sources * max(1, num_targets) + targets)
    sources, targets = np.divmod(pairs, max(1, num_targets))
    pointers = np.searchsorted(sources, np.arange(num_sources + 1))
    return pointers, targets, np.bincount(targets, minlength=num_targets)
