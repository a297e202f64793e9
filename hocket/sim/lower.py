"""A step and its plan, lowered to what a parameter-server job executes: flat arrays for the kernel.

Workers run forward and backward; update operations run on the servers, each once its gradients have come
from all workers (one that the rest of the step waits for stays on the worker). Every parameter is pulled,
every gradient pushed; a batch whose parameters live on several servers travels as one part per server.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hocket.errors import HocketError
from hocket.graph import Csr, Phase, Plan, Pull, Push, StepGraph, check_plan
from hocket.graph.csr import Indices
from hocket.network import Network, assign_servers
from hocket.sim._kernel import Program
from hocket.sim.transfers import Transfers, parts_of_batches

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Lowered:
    """A step, its plan and its network as the kernel's program.

    ``worker_ops`` (n,) and ``server_ops`` (u,): operation indices of the step, in file order; local items of
    ``program`` are the n worker operations, then the parts of ``pulls``, then those of ``pushes``.
    """

    graph: StepGraph
    network: Network
    worker_ops: Indices
    server_ops: Indices
    pulls: Transfers
    pushes: Transfers
    program: Program

    def ways_s(self) -> tuple[float, float]:
        """Seconds for which a step's pulls, and its pushes, occupy what they occupy longest.

        That is a server's interface, which carries every worker's bytes; a worker's interface; or a channel,
        which alone is also occupied by startups. N is their sum.
        """
        return self._occupied_s(self.pulls), self._occupied_s(self.pushes)

    def _occupied_s(self, way: Transfers) -> float:
        moving_s = way.server_bits() / self.network.bandwidth_bps
        channels_s = way.of_server.lengths() * self.network.startup_s + moving_s
        return float(max(self.network.num_workers * moving_s.max(), moving_s.sum(), channels_s.max()))


def lower(graph: StepGraph, plan: Plan, network: Network) -> Lowered:
    """Lower ``plan`` for the workers and servers of ``network``.

    Raises
    ------
    FormatError, HocketError
        When the plan does not fit the step, is not for parameter servers, or there are too many servers.
    """
    check_plan(plan, graph)
    if plan.architecture != "ps":
        raise HocketError(f"a plan for '{plan.architecture}' cannot be simulated; make one for 'ps'")
    num_workers, num_servers = network.num_workers, network.num_servers
    home = assign_servers(graph.parameter_bytes.tolist(), num_servers)
    pulls = parts_of_batches([pull.parameters for pull in plan.pulls], graph, home, num_servers)
    pushes = parts_of_batches([push.parameters for push in plan.pushes], graph, home, num_servers)
    on_server = _runs_on_server(graph)
    worker_ops, server_ops = np.flatnonzero(~on_server), np.flatnonzero(on_server)
    n, u = len(worker_ops), len(server_ops)
    num_local = n + pulls.num_parts + pushes.num_parts
    successors = _successors(graph, on_server, pulls, pushes)
    rows, targets = successors.row_of_entry(), successors.indices
    to_server = targets >= num_local
    server_waits = np.bincount(
        targets[to_server] - num_local,
        weights=np.where(rows[to_server] < num_local, num_workers, 1),
        minlength=u,
    ).astype(np.int64)
    nexts = _rows(rows[~to_server], targets[~to_server], num_local)
    to_servers = _rows(rows[to_server], targets[to_server] - num_local, num_local + u)
    key, strict = _preference(plan, graph, worker_ops)
    first_channel = num_workers + num_servers
    program = Program(
        num_ops=n,
        next_ptr=nexts.indptr,
        next_idx=nexts.indices,
        server_ptr=to_servers.indptr,
        server_idx=to_servers.indices,
        waits=np.bincount(nexts.indices, minlength=num_local),
        server_waits=server_waits,
        lane=np.concatenate(
            [
                np.zeros(n, np.int64),
                first_channel + pulls.server,
                first_channel + num_workers * num_servers + pushes.server,
            ]
        ),
        lane_step=np.repeat([1, num_servers], [n, num_local - n]),
        server_lane=num_workers + _place_server_ops(graph, on_server, home),
        key=np.concatenate([key, np.arange(pulls.num_parts), np.arange(pushes.num_parts)]),
        strict=strict,
        bits=np.concatenate([np.zeros(n), pulls.bits, pushes.bits]),
    )
    return Lowered(
        graph=graph,
        network=network,
        worker_ops=worker_ops,
        server_ops=server_ops,
        pulls=pulls,
        pushes=pushes,
        program=program,
    )


def unbatched(lowered: Lowered) -> Lowered:
    """The same step with each parameter on its way alone; ``lowered`` itself where that is so already."""
    graph = lowered.graph
    trained = [graph.parameter_names[i] for i in np.flatnonzero(graph.produced)]
    batches = (lowered.pulls.of_batch.num_rows, lowered.pushes.of_batch.num_rows)
    if batches == (graph.num_parameters, len(trained)):
        return lowered
    plan = Plan(
        policy="unbatched",
        model=graph.model,
        architecture="ps",
        pulls=tuple(Pull(parameters=(name,), priority=0) for name in graph.parameter_names),
        pushes=tuple(Push(parameters=(name,)) for name in trained),
        compute_order=None,
    )
    return lower(graph, plan, lowered.network)


def _successors(graph: StepGraph, on_server: Mask, pulls: Transfers, pushes: Transfers) -> Csr:
    """For each local item and then each server operation (numbered from L on), the items that wait for it."""
    n = int((~on_server).sum())
    first_push = n + pulls.num_parts
    num_local = first_push + pushes.num_parts
    item = np.where(on_server, num_local + np.cumsum(on_server), np.cumsum(~on_server)) - 1
    edges = _Edges()
    user, source = graph.inputs.row_of_entry(), graph.inputs.indices
    reader, read = graph.reads.row_of_entry(), graph.reads.indices
    maker, made = graph.produces.row_of_entry(), graph.produces.indices

    # What a server learns of a worker's operation are the gradients it completes; only where it completes
    # none does the operation itself count.
    completes = graph.produces.lengths() > 0
    by_gradient = on_server[user] & ~on_server[source] & completes[source]
    edges.add(item[source[~by_gradient]], item[user[~by_gradient]])
    for op, via in zip(user[by_gradient].tolist(), source[by_gradient].tolist(), strict=True):
        # Of several gradients an update waits for those of the parameters it reads, if it reads any of them.
        gradients = graph.produces.row(via)
        own = np.intersect1d(gradients, graph.reads.row(op))
        gradients = own if len(own) else gradients
        edges.add(first_push + pushes.part_of[gradients], np.full(len(gradients), item[op]))

    # A worker reads what was pulled, a server what was pushed.
    at_server = on_server[reader]
    edges.add(n + pulls.part_of[read[~at_server]], item[reader[~at_server]])
    trained = at_server & (pushes.part_of[read] >= 0)
    edges.add(first_push + pushes.part_of[read[trained]], item[reader[trained]])

    # A part waits for every gradient of its whole batch, also of those that go to other servers.
    for op, parameter in zip(maker.tolist(), made.tolist(), strict=True):
        parts = pushes.of_batch.row(int(pushes.batch[pushes.part_of[parameter]]))
        edges.add(np.full(len(parts), item[op]), first_push + parts)
    return edges.csr(num_local + int(on_server.sum()))


class _Edges:
    """Pairs (item, item that waits for it), collected in arrays."""

    def __init__(self) -> None:
        self._sources: list[Indices] = [np.zeros(0, np.int64)]
        self._targets: list[Indices] = [np.zeros(0, np.int64)]

    def add(self, sources: Indices, targets: Indices) -> None:
        self._sources.append(sources)
        self._targets.append(targets)

    def csr(self, num_items: int) -> Csr:
        """The distinct targets of each source, ascending."""
        cells = np.unique(np.concatenate(self._sources) * num_items + np.concatenate(self._targets))
        return _rows(cells // num_items, cells % num_items, num_items)


def _rows(sources: Indices, targets: Indices, num_sources: int) -> Csr:
    """Group ``targets`` by their ``sources``, which ascend."""
    return Csr.from_lengths(np.bincount(sources, minlength=num_sources).tolist(), targets)


def _runs_on_server(graph: StepGraph) -> Mask:
    """Update operations, but for those that lead to a gradient or to forward or backward work."""
    on_server: Mask = (graph.phases == Phase.UPDATE) & (graph.produces.lengths() == 0)
    users = graph.inputs.transpose(graph.num_operations)
    for i in graph.order[on_server[graph.order]][::-1].tolist():
        on_server[i] = bool(on_server[users.row(i)].all())
    return on_server


def _place_server_ops(graph: StepGraph, on_server: Mask, home: Indices) -> Indices:
    """Each server operation's server: its first parameter's, else its first input's, else the first one."""
    place = np.zeros(graph.num_operations, dtype=np.int64)
    for i in graph.order[on_server[graph.order]].tolist():
        # An input on the worker is known to servers by the gradients it completes.
        near = [home[p] for p in graph.reads.row(i)]
        for j in graph.inputs.row(i).tolist():
            near += [place[j]] if on_server[j] else [home[p] for p in graph.produces.row(j)]
        place[i] = near[0] if near else 0
    servers: Indices = place[on_server]
    return servers


def _preference(plan: Plan, graph: StepGraph, worker_ops: Indices) -> tuple[Indices, bool]:
    """For each worker operation its place in the preferred order, and whether processors insist on it."""
    if plan.compute_order is None:
        return np.arange(len(worker_ops)), False
    position = {name: k for k, name in enumerate(plan.compute_order)}
    names = [graph.operation_names[i] for i in worker_ops]
    for name in names:
        if name not in position:
            raise HocketError(
                f"plan: compute_order: '{name}' is missing, and other operations wait for it; list it"
            )
    places = [position[name] for name in names]
    key = np.empty(len(worker_ops), dtype=np.int64)
    key[np.argsort(places, kind="stable")] = np.arange(len(worker_ops))
    return key, True
