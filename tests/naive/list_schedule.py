"""Naive twin of the simulator: plain Python, small time steps of a dictionary world, no cleverness.

One function simulates one synchronous parameter-server step of :mod:`hocket.sim` for given durations and
pull orders. It keeps bytes left per transfer, recomputes every rate after every event, and looks for the
next event by scanning everything.
"""

from __future__ import annotations

import math
from typing import Any

from hocket.graph import Plan, StepGraph
from hocket.network import Network
from hocket.network.topology import Topology
from tests.naive.max_min import rates

SAME = 1e-9  # seconds within which events are one instant; test data keeps other gaps far larger


def assign(sizes: list[int], num_servers: int) -> list[int]:
    loads = [0] * num_servers
    homes = []
    for size in sizes:
        server = loads.index(min(loads))
        loads[server] += size
        homes.append(server)
    return homes


def simulate_step(
    graph: StepGraph,
    plan: Plan,
    network: Network,
    samples: list[int],
    pull_orders: list[list[int]] | None = None,
    server_sample: int = 0,
    speeds: list[float] | None = None,
    topology: Topology | None = None,
) -> float:
    """The end of the step in seconds. ``pull_orders``: for each worker the plan's pulls by position.

    ``speeds``: how fast each worker's processor is; ``topology``: links other than the network's equal ones.
    """
    speeds = speeds or [1.0] * network.num_workers
    topology = topology or Topology.flat(network)
    workers, servers = range(network.num_workers), range(network.num_servers)
    window_bits = 8.0 * (network.window_bytes or 0.0)
    ops = range(graph.num_operations)
    names = list(graph.parameter_names)
    sizes = graph.parameter_bytes.tolist()
    home = assign(sizes, network.num_servers)
    inputs = [graph.inputs.row(i).tolist() for i in ops]
    reads = [graph.reads.row(i).tolist() for i in ops]
    produces = [graph.produces.row(i).tolist() for i in ops]
    users = [[j for j in ops if i in inputs[j]] for i in ops]

    on_server = [graph.phases[i] == 2 and not produces[i] for i in ops]
    changed = True
    while changed:
        changed = False
        for i in ops:
            if on_server[i] and not all(on_server[j] for j in users[i]):
                on_server[i] = False
                changed = True

    pulls = [[names.index(p) for p in pull.parameters] for pull in plan.pulls]
    pushes = [[names.index(p) for p in push.parameters] for push in plan.pushes]
    orders = pull_orders or [list(range(len(pulls)))] * network.num_workers
    trained = {p for batch in pushes for p in batch}

    # Queues of (batch, bits) per worker and server; a batch has one part on each server it touches.
    def parts(batch: list[int], server: int) -> float | None:
        here = [p for p in batch if home[p] == server]
        return 8.0 * sum(sizes[p] for p in here) if here else None

    pull_queue = {
        (w, s): [(b, parts(pulls[b], s)) for b in orders[w] if parts(pulls[b], s) is not None]
        for w in workers
        for s in servers
    }
    push_queue = {
        (w, s): [(b, parts(pushes[b], s)) for b in range(len(pushes)) if parts(pushes[b], s) is not None]
        for w in workers
        for s in servers
    }
    have: set[tuple[int, int]] = set()  # (worker, parameter) pulled
    arrived: set[tuple[int, int]] = set()  # (worker, parameter) pushed
    done: set[tuple[int, int]] = set()  # (worker, operation)
    server_done: set[int] = set()
    started: set[object] = set()
    running: dict[object, tuple[float, object]] = {}  # processor -> (end, operation)
    channels: dict[tuple[str, int, int], dict[str, Any]] = {}
    # What waits in line for a channel: the batch, the bits of each turn it still has, its startup.
    line: dict[tuple[str, int, int], list[tuple[int, list[float], float]]] = {
        (kind, w, s): [] for kind in ("pull", "push") for w in workers for s in servers
    }
    parses = network.parse_s > 0 or network.parse_s_per_byte > 0
    unparsed: dict[int, set[tuple[int, int]]] = {w: set() for w in workers}  # (batch, server) at a worker
    received = {(w, s): [] for w in workers for s in servers}  # batches that wait at a server's receiver
    position = {name: k for k, name in enumerate(plan.compute_order or ())}
    strict = plan.compute_order is not None
    in_order = sorted(
        (i for i in ops if not on_server[i]), key=lambda i: position.get(graph.operation_names[i], i)
    )

    def turns(bits: float) -> list[float]:
        """What a transfer sends each time that it has its turn."""
        return [window_bits, bits - window_bits] if 0 < window_bits < bits else [bits]

    def start(kind: str, w: int, s: int) -> None:
        b, (bits, *later), startup_s = line[kind, w, s].pop(0)
        channels[kind, w, s] = {"batch": b, "bits": bits, "later": later, "starts": now + startup_s}

    def op_ready(w: int, i: int) -> bool:
        return all((w, j) in done for j in inputs[i]) and all((w, p) in have for p in reads[i])

    def push_ready(w: int, b: int) -> bool:
        makers = [i for i in ops if set(produces[i]) & set(pushes[b])]
        return all((w, i) in done for i in makers)

    def message(batch: list[int], server: int) -> float:
        return network.parse_s + network.parse_s_per_byte * parts(batch, server) / 8

    def first_reader(batch: list[int], server: int) -> int:
        """The place in ``in_order`` of the first operation that reads any of the part, or past the end."""
        here = {p for p in batch if home[p] == server}
        return next((k for k, i in enumerate(in_order) if here & set(reads[i])), len(in_order))

    def server_op_place(i: int) -> int:
        if reads[i]:
            return home[reads[i][0]]
        for j in inputs[i]:
            if on_server[j]:
                return server_op_place(j)
            if produces[j]:
                return home[produces[j][0]]
        return 0

    def gradients_of(i: int) -> set[int]:
        found = set(reads[i]) & trained
        for j in inputs[i]:
            if not on_server[j]:
                found |= set(produces[j]) & set(reads[i]) or set(produces[j])
        return found

    def server_op_ready(i: int) -> bool:
        for j in inputs[i]:
            if on_server[j] and j not in server_done:
                return False
            if not on_server[j] and not produces[j] and any((w, j) not in done for w in workers):
                return False
        return all((w, p) in arrived for w in workers for p in gradients_of(i))

    place = {i: server_op_place(i) for i in ops if on_server[i]}
    now = 0.0
    for (w, s), queue in pull_queue.items():
        line["pull", w, s] = [(b, turns(bits), network.startup_s) for b, bits in queue]
    while True:
        # Start whatever can start.
        for w in workers:
            if ("worker", w) not in running:
                left = [i for i in in_order if (w, i) not in started]
                candidates = left[:1] if strict else left
                ready = [(in_order.index(i), 1, 0, 0, i) for i in candidates if op_ready(w, i)]
                # A message comes before the first operation that reads it; parts of a batch in its order.
                for b, s in unparsed[w]:
                    first = next(k for k, p in enumerate(pulls[b]) if home[p] == s)
                    ready.append((first_reader(pulls[b], s), 0, b, first, s))
                if ready:
                    _, is_operation, b, _, which = min(ready)
                    if is_operation:
                        started.add((w, which))
                        seconds = graph.durations_s[which, samples[w]]
                        running["worker", w] = (now + seconds / speeds[w], which)
                    else:
                        unparsed[w].remove((b, which))
                        seconds = message(pulls[b], which)
                        running["worker", w] = (now + seconds / speeds[w], ("pull", b, which))
        for s in servers:
            if ("server", s) not in running:
                for i in ops:
                    if (
                        on_server[i]
                        and place[i] == s
                        and ("server op", i) not in started
                        and server_op_ready(i)
                    ):
                        started.add(("server op", i))
                        running["server", s] = (now + graph.durations_s[i, server_sample], i)
                        break
        for w in workers:
            for s in servers:
                if ("receiver", (w, s)) not in running and received[w, s]:
                    b = min(received[w, s])
                    received[w, s].remove(b)
                    running["receiver", (w, s)] = (now + message(pushes[b], s), b)
                if line["pull", w, s] and ("pull", w, s) not in channels:
                    start("pull", w, s)
                if window_bits:
                    # Pushes line up as they become ready, those of one instant in the plan's order.
                    for b, bits in list(push_queue[w, s]):
                        busy = ("push", w, s) in channels or line["push", w, s]
                        if plan.issue == "listed" and (busy or not push_ready(w, b)):
                            break
                        if push_ready(w, b):
                            push_queue[w, s].remove((b, bits))
                            line["push", w, s].append((b, turns(bits), network.startup_s))
                elif ("push", w, s) not in channels:
                    for k, (b, bits) in enumerate(push_queue[w, s]):
                        if push_ready(w, b):
                            del push_queue[w, s][k]
                            line["push", w, s].append((b, [bits], network.startup_s))
                            break
                        if plan.issue == "listed":
                            break
                if line["push", w, s] and ("push", w, s) not in channels:
                    start("push", w, s)

        # Find the next event.
        moving = [key for key, channel in channels.items() if channel["starts"] <= now + SAME]
        rate = rates(topology, moving)
        events = [end for end, _ in running.values()]
        events += [c["starts"] for key, c in channels.items() if key not in rate]
        events += [now + channels[key]["bits"] / rate[key] for key in rate]
        if not events:
            break
        after = min(events)
        for key in rate:
            channels[key]["bits"] -= rate[key] * (after - now)
        # Finish whatever finishes.
        now = after
        for processor, (end, i) in list(running.items()):
            if end <= now + SAME:
                del running[processor]
                kind, number = processor  # type: ignore[misc]
                if kind == "server":
                    server_done.add(i)  # type: ignore[arg-type]
                elif kind == "receiver":
                    w, s = number
                    arrived.update((w, p) for p in pushes[i] if home[p] == s)  # type: ignore[index]
                elif isinstance(i, tuple):
                    _, b, s = i
                    have.update((number, p) for p in pulls[b] if home[p] == s)
                else:
                    done.add((number, i))  # type: ignore[arg-type]
        for key in list(rate):
            kind, w, s = key
            if channels[key]["bits"] <= SAME * rate[key]:
                channel = channels.pop(key)
                b = channel["batch"]
                if channel["later"]:
                    line[key].append((b, channel["later"], 0.0))
                    continue
                if parses:
                    unparsed[w].add((b, s)) if kind == "pull" else received[w, s].append(b)
                    continue
                batch = (pulls if kind == "pull" else pushes)[b]
                (have if kind == "pull" else arrived).update((w, p) for p in batch if home[p] == s)
    assert all((w, i) in done for w in workers for i in ops if not on_server[i])
    assert all(i in server_done for i in ops if on_server[i])
    assert not math.isnan(now)
    return now
