"""A parameter-server step, lowered to the kernel's nodes but for its plan, and how plans are cut into parts.

Workers run forward and backward; update operations run on the servers, each once its gradients have come
from all workers (one that the rest of the step waits for stays on the worker). Every parameter is pulled,
every gradient pushed; a batch whose parameters live on several servers travels as one part per server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hocket.graph import StepGraph
from hocket.graph.csr import Indices
from hocket.graph.update_operations import awaited_gradients, is_update
from hocket.kernel import kernel
from hocket.network import Network, assign_servers
from hocket.sim.loop.step_program import NEXT_STEP
from hocket.sim.lowering.lowered import Edges, Floats, Mask, ends_of


class ServerLayout(NamedTuple):
    """The part of a step with servers that no plan changes, as kernels take it."""

    arrived: int  # first nodes
    updated: int
    pulled: int
    gradient: int
    free: int
    done: int
    parts: int
    overlapping: bool
    sources: Indices  # edges
    targets: Indices
    home: Indices  # (p,) each parameter's server
    bits: Floats  # (p,)
    server_of_op: Indices  # of the server operations


@dataclass(frozen=True, kw_only=True)
class ServerStep:
    """The part of a step that no plan changes: operations, and a node for each parameter's arrivals.

    Global nodes: the server operations, then for each parameter ``arrived`` (from all workers) and
    ``updated``. Local nodes: the worker operations, then for each parameter ``pulled``, ``gradient``
    (complete) and ``free`` (of readers), then ``done`` and ``begin``; a plan's parts follow, pulls first, and
    where receiving costs something the parsing of each part in the same order.
    ``overlapping``: whether steps overlap (a barrier per parameter).
    """

    graph: StepGraph
    network: Network
    overlapping: bool
    home: Indices
    bits: Floats
    worker_ops: Indices
    server_ops: Indices
    server_of_op: Indices
    sources: Indices
    targets: Indices
    arrived: int
    updated: int
    pulled: int
    gradient: int
    free: int
    done: int
    begin: int
    parts: int

    @property
    def layout(self) -> ServerLayout:
        """The step as kernels take it."""
        return ServerLayout(
            self.arrived,
            self.updated,
            self.pulled,
            self.gradient,
            self.free,
            self.done,
            self.parts,
            self.overlapping,
            self.sources,
            self.targets,
            self.home,
            self.bits,
            self.server_of_op,
        )


def server_step(graph: StepGraph, network: Network, *, overlapping: bool) -> ServerStep:
    """Lay out ``graph`` on the servers of ``network``.

    Raises
    ------
    HocketError
        When there are more servers than parameters.
    """
    home = assign_servers(graph.parameter_bytes.tolist(), network.num_servers)
    update = is_update(graph)
    worker_ops, server_ops = np.flatnonzero(~update), np.flatnonzero(update)
    p, n, u = graph.num_parameters, len(worker_ops), len(server_ops)
    arrived, updated = u, u + p
    first_op = u + 2 * p
    pulled, gradient, free = first_op + n, first_op + n + p, first_op + n + 2 * p
    done, begin = free + p, free + p + 1
    node = np.empty(graph.num_operations, np.int64)
    node[worker_ops], node[server_ops] = first_op + np.arange(n), np.arange(u)

    edges = Edges()
    gradients, updates, stands_for = awaited_gradients(graph, update)
    edges.add(arrived + gradients, node[updates])
    user, source = graph.inputs.row_of_entry(), graph.inputs.indices
    edges.add(node[source[~stands_for]], node[user[~stands_for]])
    reader, read = graph.reads.row_of_entry(), graph.reads.indices
    edges.add(pulled + read[~update[reader]], node[reader[~update[reader]]])
    edges.add(node[graph.produces.row_of_entry()], gradient + graph.produces.indices)
    if overlapping:
        edges.add(node[reader[~update[reader]]], free + read[~update[reader]])
        edges.add(node[reader[update[reader]]], updated + read[update[reader]])
        edges.add(arrived + np.flatnonzero(graph.produced), updated + np.flatnonzero(graph.produced))
        edges.add(pulled + np.arange(p), done)
        last, first = ends_of(graph, ~update)
        edges.add(node[last], done)
        edges.add(done, begin + NEXT_STEP)
        edges.add(begin, node[first])
        edges.add(begin, free + np.arange(p))
    sources, targets = edges.arrays()
    return ServerStep(
        graph=graph,
        network=network,
        overlapping=overlapping,
        home=home,
        bits=8.0 * graph.parameter_bytes.astype(np.float64),
        worker_ops=worker_ops,
        server_ops=server_ops,
        server_of_op=place_server_ops(graph, update, home),
        sources=sources,
        targets=targets,
        arrived=arrived,
        updated=updated,
        pulled=pulled,
        gradient=gradient,
        free=free,
        done=done,
        begin=begin,
        parts=begin + 1,
    )


def place_server_ops(graph: StepGraph, on_server: Mask, home: Indices) -> Indices:
    """Each server operation's server: its first parameter's, else its first input's, else the first one."""
    place = np.zeros(graph.num_operations, dtype=np.int64)
    for i in graph.order[on_server[graph.order]].tolist():
        # An input on the worker is known to servers by the gradients it completes.
        near = [home[p] for p in graph.reads.row(i)[:1]]
        for j in graph.inputs.row(i).tolist():
            if near:
                break
            near += [place[j]] if on_server[j] else [home[p] for p in graph.produces.row(j)[:1]]
        place[i] = near[0] if near else 0
    servers: Indices = place[on_server]
    return servers


@kernel
def cut_batches(order, first, home, bits, num_servers):
    """Cut batches by where their parameters live.

    order (m,): parameters in the order of the batches; first (batches + 1,) cuts it; home, bits (p,). Returns
    the part of each parameter, -1 for one that does not travel; each part's server, batch and bits; and the
    first part of each batch (batches + 1,): parts are numbered batch by batch.
    """
    part_of = np.full(len(home), -1, np.int64)
    part_server = np.empty(len(order), np.int64)
    part_batch = np.empty(len(order), np.int64)
    part_bits = np.zeros(len(order))
    first_part = np.zeros(len(first), np.int64)
    part_at = np.full(num_servers, -1, np.int64)
    num_parts = 0
    for b in range(len(first) - 1):
        for k in range(first[b], first[b + 1]):
            i = order[k]
            part = part_at[home[i]]
            if part < first_part[b]:
                part = part_at[home[i]] = num_parts
                part_server[part], part_batch[part] = home[i], b
                num_parts += 1
            part_of[i] = part
            part_bits[part] += bits[i]
        first_part[b + 1] = num_parts
    return part_of, part_server[:num_parts], part_batch[:num_parts], part_bits[:num_parts], first_part
