"""Naive twin of the simulator: plain Python, small time steps of a dictionary world, no cleverness.

One function simulates one synchronous parameter-server step of :mod:`hocket.sim` for given durations and
pull orders. It keeps bytes left per transfer, recomputes every rate after every event, and looks for the
next event by scanning everything.
"""

from __future__ import annotations

import math

from hocket.graph import Plan, StepGraph
from hocket.network import Network

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
) -> float:
    """The end of the step in seconds. ``pull_orders``: for each worker the plan's pulls by position."""
    workers, servers = range(network.num_workers), range(network.num_servers)
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
    channels: dict[tuple[str, int, int], dict[str, float]] = {}
    position = {name: k for k, name in enumerate(plan.compute_order or ())}
    strict = plan.compute_order is not None
    in_order = sorted(
        (i for i in ops if not on_server[i]), key=lambda i: position.get(graph.operation_names[i], i)
    )

    def op_ready(w: int, i: int) -> bool:
        return all((w, j) in done for j in inputs[i]) and all((w, p) in have for p in reads[i])

    def push_ready(w: int, b: int) -> bool:
        makers = [i for i in ops if set(produces[i]) & set(pushes[b])]
        return all((w, i) in done for i in makers)

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
    while True:
        # Start whatever can start.
        for w in workers:
            if ("worker", w) not in running:
                left = [i for i in in_order if (w, i) not in started]
                candidates = left[:1] if strict else left
                for i in candidates:
                    if op_ready(w, i):
                        started.add((w, i))
                        running["worker", w] = (now + graph.durations_s[i, samples[w]], i)
                        break
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
                if ("pull", w, s) not in channels and pull_queue[w, s]:
                    b, bits = pull_queue[w, s].pop(0)
                    channels["pull", w, s] = {"batch": b, "bits": bits, "starts": now + network.startup_s}
                if ("push", w, s) not in channels:
                    for k, (b, bits) in enumerate(push_queue[w, s]):
                        if push_ready(w, b):
                            del push_queue[w, s][k]
                            channels["push", w, s] = {
                                "batch": b,
                                "bits": bits,
                                "starts": now + network.startup_s,
                            }
                            break
                        if plan.issue == "listed":
                            break

        # Find the next event.
        moving = [key for key, channel in channels.items() if channel["starts"] <= now + SAME]
        rates = {}
        for kind, w, s in moving:
            at_server = sum(1 for key in moving if key[0] == kind and key[2] == s)
            at_worker = sum(1 for key in moving if key[0] == kind and key[1] == w)
            rates[kind, w, s] = network.bandwidth_bps / max(at_server, at_worker)
        events = [end for end, _ in running.values()]
        events += [c["starts"] for key, c in channels.items() if key not in rates]
        events += [now + channels[key]["bits"] / rates[key] for key in rates]
        if not events:
            break
        after = min(events)
        for key in rates:
            channels[key]["bits"] -= rates[key] * (after - now)
        # Finish whatever finishes.
        now = after
        for processor, (end, i) in list(running.items()):
            if end <= now + SAME:
                del running[processor]
                kind, number = processor  # type: ignore[misc]
                done.add((number, i)) if kind == "worker" else server_done.add(i)  # type: ignore[arg-type, func-returns-value]
        for key in list(rates):
            kind, w, s = key
            if channels[key]["bits"] <= SAME * network.bandwidth_bps:
                batch = (pulls if kind == "pull" else pushes)[int(channels.pop(key)["batch"])]
                (have if kind == "pull" else arrived).update((w, p) for p in batch if home[p] == s)
    assert all((w, i) in done for w in workers for i in ops if not on_server[i])
    assert all(i in server_done for i in ops if on_server[i])
    assert not math.isnan(now)
    return now
