"""Naive twin of the steps that overlap: a list of everything that happens and what each of it waits for.

:func:`reduction_steps` is training by AllReduce, :func:`server_steps` a parameter server with a barrier per
parameter. Both write down, for all steps at once, every operation, transfer and reduction with its name, the
lane it occupies, and the names of all that must end before it; :func:`ends` then plays that list, looking
through all of it after every event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hocket.graph import Plan, StepGraph
from hocket.network import Network
from hocket.network.collectives import collective_cost, patterns_of, reduction_s
from hocket.network.topology import Topology
from tests.naive.list_schedule import SAME, assign
from tests.naive.max_min import rates

Name = tuple[str | int, ...]


@dataclass
class Item:
    """What occupies ``lane`` for ``work`` seconds, or bits if its lane is a channel, once ``needs`` ended.

    An idle lane takes the item of lowest ``rank`` among those that can start.
    """

    name: Name
    lane: Name
    rank: tuple[int, ...]
    work: float
    needs: set[Name]


def ends(items: Sequence[Item], network: Network, topology: Topology | None = None) -> dict[Name, float]:
    """When each item ends. Lanes named "pull" and "push" are channels: (direction, worker, server).

    ``topology``: links other than the network's equal ones. With a window channels take what came first, of
    what came at one instant the lowest rank, and what is larger than the window lines up twice.
    """
    waiting: dict[Name, list[Item]] = {}
    for item in sorted(items, key=lambda item: item.rank):
        waiting.setdefault(item.lane, []).append(item)
    window_bits = 8.0 * (network.window_bytes or 0.0)
    line: dict[Name, list[tuple[Item, list[float], float]]] = {lane: [] for lane in waiting}
    end: dict[Name, float] = {}
    done: set[Name] = set()
    running: dict[Name, tuple[Item, float]] = {}  # lane -> item, when it ends
    starting: dict[Name, float] = {}  # channel -> when the bytes of its item start to move
    bits: dict[Name, float] = {}  # channel that moves bytes -> bits left of this turn
    moved: dict[Name, tuple[Item, list[float]]] = {}  # channel -> item, bits of its later turns
    now = 0.0
    while True:
        # Start whatever can start.
        for lane, queue in waiting.items():
            idle = lane not in running and lane not in moved
            channel = lane[0] in ("pull", "push")
            if channel and window_bits:
                for item in [item for item in queue if item.needs <= done]:
                    queue.remove(item)
                    turns = [window_bits, item.work - window_bits] if item.work > window_bits else [item.work]
                    line[lane].append((item, turns, network.startup_s))
            elif idle and (chosen := next((item for item in queue if item.needs <= done), None)):
                queue.remove(chosen)
                if not channel:
                    running[lane] = (chosen, now + chosen.work)
                    continue
                line[lane].append((chosen, [chosen.work], network.startup_s))
            if idle and line[lane]:
                item, turns, startup_s = line[lane].pop(0)
                starting[lane] = now + startup_s
                moved[lane] = item, turns
        for lane, start in list(starting.items()):
            if start <= now + SAME:
                del starting[lane]
                bits[lane] = moved[lane][1].pop(0)

        # Find the next event.
        rate = rates(topology or Topology.flat(network), bits)
        events = [time for _, time in running.values()]
        events += starting.values()
        events += [now + bits[lane] / rate[lane] for lane in bits]
        if not events:
            break
        after = min(events)
        for lane in bits:
            bits[lane] -= rate[lane] * (after - now)
        now = after

        # Finish whatever finishes.
        finished = []
        for lane, (item, time) in list(running.items()):
            if time <= now + SAME:
                del running[lane]
                finished.append(item)
        for lane in list(bits):
            if bits[lane] <= SAME * rate[lane]:
                del bits[lane]
                item, later = moved.pop(lane)
                if later:
                    line[lane].append((item, later, 0.0))
                else:
                    finished.append(item)
        for item in finished:
            end[item.name] = now
            done.add(item.name)
    stuck = [item.name for queue in waiting.values() for item in queue]
    assert not stuck, stuck
    return end


def updates_of(graph: StepGraph) -> list[int]:
    """Operations of phase update that produce nothing and that only such operations use."""
    ops = range(graph.num_operations)
    found = {i for i in ops if graph.phases[i] == 2 and not graph.produces.row(i).tolist()}
    while True:
        used = {i for i in found for j in ops if j not in found and i in graph.inputs.row(j).tolist()}
        if not used:
            return sorted(found)
        found -= used


def in_order(graph: StepGraph, plan: Plan, among: Sequence[int]) -> list[int]:
    """The operations ``among`` in the order of the plan, or of the file if it has none."""
    if plan.compute_order is None:
        return sorted(among)
    return sorted(among, key=lambda i: plan.compute_order.index(graph.operation_names[i]))  # type: ignore[union-attr]


def awaited(i: int, updates: Sequence[int], graph: StepGraph, trained: set[int]) -> set[int]:
    """The parameters whose gradients update ``i`` applies."""
    reads = set(graph.reads.row(i).tolist())
    found = reads & trained
    for j in graph.inputs.row(i).tolist():
        if j not in updates:
            produces = set(graph.produces.row(j).tolist())
            found |= produces & reads or produces
    return found


def needed_by(i: int, updates: Sequence[int], graph: StepGraph, trained: set[int]) -> set[int]:
    """The gradients that update ``i`` needs, itself or by the updates that it needs."""
    found = awaited(i, updates, graph, trained)
    for j in graph.inputs.row(i).tolist():
        found |= needed_by(j, updates, graph, trained) if j in updates else set()
    return found


def accompanied(i: int, updates: Sequence[int], graph: StepGraph, trained: set[int]) -> set[int]:
    """The gradients that update ``i`` waits for: those it needs, or if none those that all its users do."""
    if needed := needed_by(i, updates, graph, trained):
        return needed
    users = [j for j in updates if i in graph.inputs.row(j).tolist()]
    return set.intersection(*(accompanied(j, updates, graph, trained) for j in users)) if users else set()


def reduction_steps(
    graph: StepGraph,
    plan: Plan,
    network: Network,
    samples: Sequence[Sequence[int]],
    speeds: Sequence[float] | None = None,
) -> list[float]:
    """When all workers have ended forward and backward, for each of ``len(samples)`` steps.

    ``samples[k][w]``: which measured step worker w repeats in step k; ``speeds[w]``: how fast it computes.
    """
    return reduction_run(graph, plan, network, samples, speeds)[0]


def busy_s(ran: Sequence[tuple[Item, float]], kind: str, from_s: float, to_s: float) -> float:
    """For how long items called ``kind`` run between two moments; ``ran``: items with their ends."""
    return sum(
        max(0.0, min(end, to_s) - max(end - item.work, from_s)) for item, end in ran if item.name[0] == kind
    )


def halved_s(network: Network, size: int, chunks: int) -> tuple[float, float]:
    """Seconds of a reduce-scatter and of an all-gather: a reduction without its second half or its first.

    The fastest of all patterns that have halves, a ring where none was left to choose.
    """
    found = []
    for pattern in [p for p in patterns_of(network) if p != "tree"] or ["ring"]:
        cost = collective_cost(pattern, network)
        wire = cost.wire_s_per_byte * size / 2
        reduce = cost.handling_s / 2 + cost.reduce_s_per_byte * size / chunks
        copy = cost.handling_s / 2
        found.append(
            tuple(
                cost.latency_s / 2 + max(wire + each, wire / chunks + chunks * each)
                for each in (reduce, copy)
            )
        )
    return min(found, key=sum)  # type: ignore[return-value]


def number_s(network: Network) -> float:
    """Seconds of reducing one number: two messages."""
    return 0.0 if network.num_workers == 1 else 2 * (network.startup_s + network.parse_s)


def reduction_run(
    graph: StepGraph,
    plan: Plan,
    network: Network,
    samples: Sequence[Sequence[int]],
    speeds: Sequence[float] | None = None,
) -> tuple[list[float], list[tuple[Item, float]]]:
    """What :func:`reduction_steps` returns, and every operation and reduction with when it ended."""
    speeds = speeds or [1.0] * network.num_workers
    ops = range(graph.num_operations)
    names = list(graph.parameter_names)
    inputs = [graph.inputs.row(i).tolist() for i in ops]
    reads = [graph.reads.row(i).tolist() for i in ops]
    produces = [graph.produces.row(i).tolist() for i in ops]
    updates = updates_of(graph)
    main = in_order(graph, plan, [i for i in ops if i not in updates])
    workers = range(network.num_workers)
    batches = [[names.index(name) for name in reduction.parameters] for reduction in plan.reductions]
    trained = {p for batch in batches for p in batch}

    def operation(k: int, worker: int, i: int) -> Name:
        return ("operation", k, worker, i)

    halved = [r for r, it in enumerate(plan.reductions) if it.halves]
    looks_only = [i for i in updates if not reads[i]]
    clips = bool(trained) and any(awaited(i, updates, graph, trained) == trained for i in looks_only)

    def whole(k: int, r: int) -> Name:
        return ("reduction", k, "gather", r) if r in halved else ("reduction", k, r)

    def barrier(k: int) -> set[Name]:
        return {whole(k, r) for r, it in enumerate(plan.reductions) if it.window == "backward"}

    def arrived(k: int, p: int) -> set[Name]:
        (r,) = (r for r, batch in enumerate(batches) if p in batch)
        return {whole(k, r)} if plan.reductions[r].window == "forward" else barrier(k)

    def seen(k: int, p: int) -> set[Name]:
        (r,) = (r for r, batch in enumerate(batches) if p in batch)
        if r not in halved:
            return arrived(k, p)
        return {("reduction", k, "number")} if clips else {("reduction", k, r)}

    items = []
    for k in range(len(samples)):
        for r, batch in enumerate(batches):
            makers = [i for i in ops if set(produces[i]) & set(batch)]
            needs = {operation(k, worker, i) for worker in workers for i in makers}
            if plan.issue != "ready" and r > 0:
                needs.add(("reduction", k, r - 1))
            size = sum(int(graph.parameter_bytes[p]) for p in batch)
            chunks = plan.reductions[r].chunks
            work = halved_s(network, size, chunks)[0] if r in halved else reduction_s(network, size, chunks)
            items.append(Item(("reduction", k, r), ("network",), (k, 0, r), work, needs))
        if clips and halved:
            name, every = ("reduction", k, "number"), {("reduction", k, r) for r in range(len(batches))}
            items.append(Item(name, ("network",), (k, 1), number_s(network), every))
        for place, r in enumerate(halved):
            needs = {("reduction", k, "number")} if clips else {("reduction", k, r)}
            if plan.issue != "ready":
                needs.add(whole(k, halved[place - 1]) if place else ("reduction", k, len(batches) - 1))
            size = sum(int(graph.parameter_bytes[p]) for p in batches[r])
            work = halved_s(network, size, plan.reductions[r].chunks)[1]
            items.append(Item(whole(k, r), ("network",), (k, 2, r), work, needs))
        for worker in workers:
            for i in ops:
                needs = {operation(k, worker, j) for j in inputs[i]}
                if i in updates:
                    rank = (k, 1, i)
                    for p in awaited(i, updates, graph, trained):
                        needs |= arrived(k, p) if reads[i] else seen(k, p)
                    if not needed_by(i, updates, graph, trained):
                        # It needs no gradient, but an optimizer's step is what it is part of.
                        others = accompanied(i, updates, graph, trained)
                        needs |= set().union(*(arrived(k, p) for p in others)) if others else barrier(k)
                else:
                    rank = (k, 0, main.index(i))
                    if plan.compute_order is not None and main.index(i) > 0:
                        needs.add(operation(k, worker, main[main.index(i) - 1]))
                    if k > 0:
                        needs |= barrier(k - 1)
                        needs |= {operation(k - 1, worker, j) for j in main}
                        needs |= {
                            operation(k - 1, worker, j) for j in updates for p in reads[i] if p in reads[j]
                        }
                        for p in [*reads[i], *produces[i]]:
                            needs |= arrived(k - 1, p) if p in trained else set()
                work = float(graph.durations_s[i, samples[k][worker]]) / speeds[worker]
                items.append(Item(operation(k, worker, i), ("worker", worker), rank, work, needs))
    end = ends(items, network)
    over = [
        max(end[operation(k, worker, i)] for worker in workers for i in main) for k in range(len(samples))
    ]
    return over, [(item, end[item.name]) for item in items]


def server_steps(
    graph: StepGraph,
    plan: Plan,
    network: Network,
    samples: Sequence[Sequence[int]],
    server_samples: Sequence[int],
    speeds: Sequence[float] | None = None,
    topology: Topology | None = None,
) -> list[float]:
    """When all workers have ended operations and pulls, for each of ``len(samples)`` steps.

    ``samples[k][w]``: which measured step worker w repeats in step k; ``server_samples[k]``: which one the
    servers do. Pulls are whole: the plan has no chunks. ``speeds``, ``topology``: as of ``simulate_step``.
    """
    return server_run(graph, plan, network, samples, server_samples, speeds, topology)[0]


def server_run(
    graph: StepGraph,
    plan: Plan,
    network: Network,
    samples: Sequence[Sequence[int]],
    server_samples: Sequence[int],
    speeds: Sequence[float] | None = None,
    topology: Topology | None = None,
) -> tuple[list[float], list[tuple[Item, float]]]:
    """What :func:`server_steps` returns, and everything that ran with when it ended."""
    speeds = speeds or [1.0] * network.num_workers
    parses = network.parse_s > 0 or network.parse_s_per_byte > 0
    ops = range(graph.num_operations)
    names = list(graph.parameter_names)
    sizes = graph.parameter_bytes.tolist()
    home = assign(sizes, network.num_servers)
    inputs: list[list[int]] = [graph.inputs.row(i).tolist() for i in ops]
    reads: list[list[int]] = [graph.reads.row(i).tolist() for i in ops]
    produces: list[list[int]] = [graph.produces.row(i).tolist() for i in ops]
    updates = updates_of(graph)
    main = in_order(graph, plan, [i for i in ops if i not in updates])
    workers, servers = range(network.num_workers), range(network.num_servers)
    pulls = [[names.index(name) for name in pull.parameters] for pull in plan.pulls]
    pushes = [[names.index(name) for name in push.parameters] for push in plan.pushes]
    trained = {p for batch in pushes for p in batch}

    def place(i: int) -> int:
        if reads[i]:
            return home[reads[i][0]]
        for j in inputs[i]:
            if j in updates:
                return place(j)
            if produces[j]:
                return home[produces[j][0]]
        return 0

    def part(batch: list[int], server: int) -> list[int]:
        return [p for p in batch if home[p] == server]

    def transfers(direction: str, k: int, worker: int, among: set[int]) -> set[Name]:
        """The transfers of step k between ``worker`` and the servers that carry any parameter ``among``.

        Or, where messages are parsed, what parses them.
        """
        return {
            (f"{direction} parsed" if parses else direction, k, worker, server, b)
            for b, batch in enumerate(pulls if direction == "pull" else pushes)
            for server in servers
            if set(part(batch, server)) & among
        }

    def operation(k: int, worker: int, i: int) -> Name:
        return ("operation", k, worker, i)

    def parsed(direction: str, k: int, worker: int, server: int, b: int, own: list[int]) -> Item:
        name = (f"{direction} parsed", k, worker, server, b)
        seconds = network.parse_s + network.parse_s_per_byte * sum(sizes[p] for p in own)
        needs: set[Name] = {(direction, k, worker, server, b)}
        if direction == "push":
            return Item(name, ("receiver", worker, server), (k, b), seconds, needs)
        readers = [place for place, i in enumerate(main) if set(reads[i]) & set(own)]
        rank = (k, min(readers, default=len(main)), 0, b, pulls[b].index(own[0]))
        return Item(name, ("worker", worker), rank, seconds / speeds[worker], needs)

    def begun(k: int, worker: int) -> set[Name]:
        if k == 0:
            return set()
        return {operation(k - 1, worker, i) for i in main} | transfers(
            "pull", k - 1, worker, set(range(len(names)))
        )

    items = []
    for k in range(len(samples)):
        for i in updates:
            needs: set[Name] = set()
            for j in inputs[i]:
                if j in updates:
                    needs.add(("update", k, j))
                elif not produces[j]:
                    needs |= {operation(k, worker, j) for worker in workers}
            for worker in workers:
                needs |= transfers("push", k, worker, awaited(i, updates, graph, trained))
            work = float(graph.durations_s[i, server_samples[k]])
            items.append(Item(("update", k, i), ("server", place(i)), (k, i), work, needs))
        for worker in workers:
            for i in main:
                needs = {operation(k, worker, j) for j in inputs[i]}
                needs |= transfers("pull", k, worker, set(reads[i])) | begun(k, worker)
                if plan.compute_order is not None and main.index(i) > 0:
                    needs.add(operation(k, worker, main[main.index(i) - 1]))
                work = float(graph.durations_s[i, samples[k][worker]]) / speeds[worker]
                rank = (k, main.index(i), 1)
                items.append(Item(operation(k, worker, i), ("worker", worker), rank, work, needs))
            for server in servers:
                for b, batch in enumerate(pulls):
                    own = part(batch, server)
                    if not own:
                        continue
                    needs = set()
                    if k > 0:
                        needs |= begun(k - 1, worker)
                        for other in workers:
                            needs |= transfers("push", k - 1, other, set(own) & trained)
                        needs |= {("update", k - 1, i) for i in updates if set(reads[i]) & set(own)}
                        needs |= {operation(k - 1, worker, i) for i in main if set(reads[i]) & set(own)}
                    work = 8.0 * sum(sizes[p] for p in own)
                    name = ("pull", k, worker, server, b)
                    items.append(Item(name, ("pull", worker, server), (k, b), work, needs))
                    if parses:
                        items.append(parsed("pull", k, worker, server, b, own))
                previous = None
                for b, batch in enumerate(pushes):
                    own = part(batch, server)
                    if not own:
                        continue
                    needs = {operation(k, worker, i) for i in ops if set(produces[i]) & set(batch)}
                    if plan.issue == "listed" and previous is not None:
                        needs.add(previous)
                    work = 8.0 * sum(sizes[p] for p in own)
                    previous = ("push", k, worker, server, b)
                    items.append(Item(previous, ("push", worker, server), (k, b), work, needs))
                    if parses:
                        items.append(parsed("push", k, worker, server, b, own))
    end = ends(items, network, topology)
    over = [
        max(end[name] for worker in workers for name in begun(k + 1, worker)) for k in range(len(samples))
    ]
    return over, [(item, end[item.name]) for item in items]
