"""Places of one worker's step in the prediction's program, and what waits for what.

:mod:`hocket.predictor.lowering` says what of the paper this is, and where it differs.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from hocket.graph import Plan, StepGraph
from hocket.graph.csr import Indices
from hocket.graph.dependencies import dependencies
from hocket.graph.flat_plan import FlatPlan, flatten
from hocket.graph.plan import batch_name
from hocket.graph.step import PHASE_NAMES
from hocket.graph.timeline import Kind
from hocket.graph.update_operations import awaited_gradients, is_update
from hocket.network import Network, assign_servers
from hocket.predictor.contraction import group_operations, update_together
from hocket.sim.lowering.lowered import Edges, Floats, computing_order
from hocket.sim.lowering.parameter_server import cut_batches, place_server_ops


class BatchParts(NamedTuple):
    """Batches cut by where their parameters live, as ``cut_batches`` returns them, in plan order."""

    of: Indices  # (p,) the part of each parameter, -1 for one that does not travel
    server: Indices  # (parts,)
    batch: Indices  # (parts,)
    bits: Floats  # (parts,)
    first: Indices  # (batches + 1,) the first part of each batch


class StepNodes:
    """Places of all of a step in the program, and what waits for what.

    Local nodes: the worker's operations from 0 on, the last of which is its commit if it ``commits``,
    ``parse_pull``, ``update`` (asynchronous), ``parse_push``; then the transfers, ``pull`` and ``push``.
    Synchronous updates are global nodes from 0 on.
    """

    def __init__(
        self, graph: StepGraph, plan: Plan, network: Network, synchronous: bool, commits: bool
    ) -> None:
        self.graph, self.plan, self.network = graph, plan, network
        self.synchronous, self.commits = synchronous, commits
        self.flat: FlatPlan = flatten(plan, graph)
        self.home = home = assign_servers(graph.parameter_bytes.tolist(), network.num_servers)
        bits = 8.0 * graph.parameter_bytes
        orders, servers = (self.flat.pulls, self.flat.gradients), network.num_servers
        self.pulls, self.pushes = (
            BatchParts(*cut_batches(t.order, t.first, home, bits, servers)) for t in orders
        )
        self.parses = network.parse_s_per_byte > 0 or network.parse_s > 0
        self.on_server = is_update(graph)
        self.server_of = np.full(graph.num_operations, -1)
        self.server_of[self.on_server] = place_server_ops(graph, self.on_server, home)
        self.gradients, self.updates, self.stands_for = awaited_gradients(graph, self.on_server)
        # The node of each operation, counted among the worker's and among the servers'.
        self.group = np.where(self.on_server, np.cumsum(self.on_server), np.cumsum(~self.on_server)) - 1

    def join(self, window_bits: float, drawn_anew: bool) -> None:
        """Let operations that always run together be one node."""
        parsed_on = self.home if self.parses else np.full(self.graph.num_parameters, -1)
        together = update_together(self.graph, self.server_of, self.gradients, self.updates, parsed_on)
        self.group[self.on_server] = together[self.on_server]
        if self.plan.compute_order is not None:
            return  # joining looks at a processor that takes operations in file order
        part = self.pulls.of
        in_turn = np.full(self.network.num_servers, not drawn_anew)
        if window_bits > 0:
            in_turn[self.pulls.server[self.pulls.bits > window_bits]] = False
        server = self.pulls.server[part]
        stream = np.where(in_turn[server], server, self.network.num_servers + part)
        self.group[~self.on_server] = group_operations(self.graph, self.on_server, stream, part)[
            ~self.on_server
        ]

    def number(self) -> None:
        """Lay the nodes out."""
        num_pulls, num_pushes = len(self.pulls.server), len(self.pushes.server)
        self.commit = int(self.group[~self.on_server].max(initial=-1)) + 1
        self.num_ops = self.commit + self.commits
        self.num_updates = int(self.group[self.on_server].max(initial=-1)) + 1
        self.update_server = np.zeros(self.num_updates, np.int64)
        self.update_server[self.group[self.on_server]] = self.server_of[self.on_server]
        self.parse_pull = self.num_ops
        self.update = self.parse_pull + num_pulls * self.parses
        self.parse_push = self.update + self.num_updates * (not self.synchronous)
        self.pull = self.parse_push + num_pushes * self.parses
        self.push = self.pull + num_pulls
        self.num_nodes = self.push + num_pushes
        # The nodes with which a message has come, whether parsed or not.
        self.pulled = (self.parse_pull if self.parses else self.pull) + np.arange(num_pulls)
        self.arrived = (self.parse_push if self.parses else self.push) + np.arange(num_pushes)

    @cached_property
    def _ordered(self) -> tuple[Indices, Indices]:
        return computing_order(self.plan, self.graph, np.flatnonzero(~self.on_server))

    def edges(self) -> tuple[Edges, Edges, Edges]:
        """Edges between the worker's nodes, from those to global nodes, and between global nodes."""
        local, to_server, between = self._worker_edges(), Edges(), Edges()
        user, source = self.graph.inputs.row_of_entry(), self.graph.inputs.indices
        to_server.add(self.arrived[self.pushes.of[self.gradients]], self.group[self.updates])
        if self.commits:
            to_server.add(self.commit, np.arange(self.num_updates))
        watching = self.on_server[user] & ~self.on_server[source] & ~self.stands_for
        to_server.add(self.group[source[watching]], self.group[user[watching]])
        inside = self.on_server[user] & self.on_server[source] & (self.group[user] != self.group[source])
        between.add(self.group[source[inside]], self.group[user[inside]])
        if self.synchronous:
            return local, to_server, between
        sources, targets = to_server.arrays()
        local.add(sources, self.update + targets)
        sources, targets = between.arrays()
        local.add(self.update + sources, self.update + targets)
        return local, Edges(), Edges()

    def _worker_edges(self) -> Edges:
        graph, edges = self.graph, Edges()
        user, source = graph.inputs.row_of_entry(), graph.inputs.indices
        own = ~self.on_server[user]
        own &= self.group[source] != self.group[user]
        edges.add(self.group[source[own]], self.group[user[own]])
        reader, read = self.first_reads()
        edges.add(self.pulled[self.pulls.of[read]], self.group[reader])
        if self.commits:
            edges.add(np.arange(self.commit), self.commit)
            edges.add(self.pulled, self.commit)
        if self.parses:
            edges.add(np.arange(self.pull, self.push), self.pulled)
            edges.add(np.arange(self.push, self.num_nodes), self.arrived)
        # A part waits for every gradient of its whole batch, also of those that go to other servers.
        makers = graph.produces.transpose(graph.num_parameters)
        for b, batch in enumerate(self.flat.gradients.batches()):
            parts = self.push + np.arange(self.pushes.first[b], self.pushes.first[b + 1])
            sources = self.group[np.concatenate([makers.row(i) for i in batch.tolist()])]
            edges.add(np.repeat(sources, len(parts)), np.tile(parts, len(sources)))
            if self.commits:  # a server that has not begun the step takes no gradient of it
                edges.add(self.pulled[self.pulls.of[batch]], self.push + self.pushes.of[batch])
        if self.flat.listed:
            for s in range(self.network.num_servers):
                here = self.push + np.flatnonzero(self.pushes.server == s)
                edges.add(here[:-1], here[1:])
        _, sequence = self._ordered
        edges.add(sequence[:-1], sequence[1:])
        return edges

    def first_reads(self) -> tuple[Indices, Indices]:
        """Operations of the worker and parameters they read that none of their inputs needs, as pairs."""
        graph = self.graph
        needs = dependencies(graph)
        bits = np.unpackbits(needs.needs.view(np.uint8), axis=1, bitorder="little")
        reader, read = graph.reads.row_of_entry(), graph.reads.indices
        first = ~self.on_server[reader]
        for e in np.flatnonzero(first).tolist():
            classes = needs.class_of[graph.inputs.row(reader[e])]
            first[e] = not bits[classes, read[e]].any()
        return reader[first], read[first]

    def lanes_and_ranks(self) -> tuple[Indices, Indices]:
        """Each local node's lane, and which ready node a lane takes first, (L,) each."""
        lane, rank = np.zeros(self.num_nodes, np.int64), np.zeros(self.num_nodes, np.int64)
        servers = self.network.num_servers
        own, order = ~self.on_server, np.full(self.num_ops, self.graph.num_operations)
        np.minimum.at(order, self.group[own], self._ordered[0])
        # Each message right before the first operation that reads it, those that nobody reads last.
        reader, read = self.graph.reads.row_of_entry(), self.graph.reads.indices
        reader, read = reader[own[reader]], read[own[reader]]
        before = np.full(len(self.pulls.server), self.graph.num_operations)
        np.minimum.at(before, self.pulls.of[read], order[self.group[reader]])
        if self.parses:
            of_ops, of_parses = np.ones(self.num_ops), np.zeros(len(before))
            sequence = np.lexsort([np.concatenate([of_ops, of_parses]), np.concatenate([order, before])])
            rank[sequence] = np.arange(len(sequence))
            lane[self.parse_push : self.pull] = 1 + self.pushes.server
            rank[self.parse_push : self.pull] = np.arange(len(self.pushes.server))
        else:
            rank[: self.num_ops] = order
        if not self.synchronous:
            lane[self.update : self.parse_push] = 1 + self.update_server
            rank[self.update : self.parse_push] = len(self.pushes.server) + np.arange(self.num_updates)
        lane[self.pull : self.push] = 1 + servers + self.pulls.server
        lane[self.push :] = 1 + 2 * servers + self.pushes.server
        rank[self.pull : self.push] = np.arange(len(self.pulls.server))
        rank[self.push :] = np.arange(len(self.pushes.server))
        return lane, rank

    def servers(self) -> Indices:
        """The server whose part of the step each local node is in, (L,); -1 for the worker's own."""
        server = np.full(self.num_nodes, -1, np.int64)
        server[self.pull : self.push], server[self.push :] = self.pulls.server, self.pushes.server
        if self.parses:
            server[self.parse_pull : self.update] = self.pulls.server
            server[self.parse_push : self.pull] = self.pushes.server
        if not self.synchronous:
            server[self.update : self.parse_push] = self.update_server
        return server

    def durations_s(self) -> tuple[Floats, Floats]:
        """Seconds of local nodes that take time (samples, T), and of global ones (samples, G)."""
        samples, own = self.graph.num_samples, ~self.on_server
        local, shared = np.zeros((self.pull, samples)), np.zeros((self.num_updates, samples))
        np.add.at(local, self.group[own], self.graph.durations_s[own])
        np.add.at(shared, self.group[self.on_server], self.graph.durations_s[self.on_server])
        if self.parses:
            local[self.parse_pull : self.update] = self._parse_s(self.pulls)[:, None]
            local[self.parse_push : self.pull] = self._parse_s(self.pushes)[:, None]
        if not self.synchronous:
            local[self.update : self.parse_push] = shared
            shared = shared[:0]
        return np.ascontiguousarray(local.T), np.ascontiguousarray(shared.T)

    def _parse_s(self, parts: BatchParts) -> Floats:
        return self.network.parse_s_per_byte * parts.bits / 8 + self.network.parse_s

    def shown(self) -> tuple[list[tuple[str, Kind]], list[tuple[str, Kind]]]:
        """Name and kind of each local and each global node, for a step without joined operations."""
        graph = self.graph
        ops = [(graph.operation_names[i], PHASE_NAMES[graph.phases[i]]) for i in range(graph.num_operations)]
        own = [op for op, shared in zip(ops, self.on_server, strict=True) if not shared]
        own += [("commit", PHASE_NAMES[-1])] * self.commits
        updates = [op for op, shared in zip(ops, self.on_server, strict=True) if shared]
        pulls = [batch_name(self.plan.pulls[b].parameters) for b in self.pulls.batch.tolist()]
        pushes = [batch_name(self.plan.pushes[b].parameters) for b in self.pushes.batch.tolist()]
        parsed = [[(name, "parse") for name in names] if self.parses else [] for names in (pulls, pushes)]
        transfers = [(name, "pull") for name in pulls] + [(name, "push") for name in pushes]
        between = [] if self.synchronous else updates
        return [*own, *parsed[0], *between, *parsed[1], *transfers], updates if self.synchronous else []
