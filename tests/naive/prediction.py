"""Naive twin of the prediction kernel: Algorithm 3.1 of the throughput-prediction paper, read aloud.

Dictionaries of strings, every rate computed anew after every event, the next event found by looking at
everything; nothing is joined. Rates are max-min fair, by raising all of them together.

Differs from the paper's listing as the package does: a worker that begins a step is active on its downlink
again, a resource's next chunk starts when that worker's previous chunk on it ends, and a processor takes the
first ready operation in the file. With commits each server begins a worker's next step by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hocket.graph import Plan, StepGraph
from hocket.network import Network
from tests.naive.list_schedule import assign


def max_min(routes: dict[Any, list[Any]], capacity: dict[Any, float]) -> dict[Any, float]:
    """Bits per second of each flow; ``routes``: the links of each."""
    rates = dict.fromkeys(routes, 0.0)
    growing = set(routes)
    left = dict(capacity)
    while growing:
        users = {link: sum(link in routes[f] for f in growing) for link in capacity}
        step = min(left[link] / users[link] for link in capacity if users[link])
        full = set()
        for link in capacity:
            if users[link]:
                if left[link] / users[link] <= step * (1 + 1e-12):
                    full.add(link)
                left[link] = max(0.0, left[link] - step * users[link])
        for f in growing:
            rates[f] += step
        growing = {f for f in growing if not full & set(routes[f])}
    return rates


class Job:
    """What one step of one worker consists of: ``tasks`` by name, and what waits for what."""

    def __init__(self, graph: StepGraph, plan: Plan, network: Network, commits: bool = False) -> None:
        self.graph, self.plan, self.network, self.commits = graph, plan, network, commits
        self.servers = range(network.num_servers)
        names = list(graph.parameter_names)
        sizes = graph.parameter_bytes.tolist()
        home = dict(zip(names, assign(sizes, network.num_servers), strict=True))
        size = dict(zip(names, sizes, strict=True))
        ops = graph.operation_names
        n = graph.num_operations
        inputs = {ops[i]: [ops[j] for j in graph.inputs.row(i)] for i in range(n)}
        reads = {ops[i]: [names[j] for j in graph.reads.row(i)] for i in range(n)}
        produces = {ops[i]: [names[j] for j in graph.produces.row(i)] for i in range(n)}
        users = {op: [o for o in ops if op in inputs[o]] for op in ops}
        server = {ops[i] for i in range(n) if graph.phases[i] == 2 and not produces[ops[i]]}
        while any(not set(users[op]) <= server for op in server):
            server = {op for op in server if set(users[op]) <= server}
        trained = {p for op in ops for p in produces[op]}
        self.resource: dict[Any, Any] = {}
        self.waiting_for: dict[Any, set[Any]] = {}
        self.rank: dict[Any, Any] = {}
        self.work: dict[Any, float] = {}  # bits of a transfer, seconds of a parsing
        self.batch: dict[Any, int] = {}
        order = plan.compute_order or ops
        place = {op: k for k, op in enumerate(order)}
        parses = network.parse_s > 0 or network.parse_s_per_byte > 0
        pulled: dict[str, Any] = {}
        pushed: dict[str, Any] = {}

        def message(kind: str, k: int, batch: tuple[str, ...], arrive: dict[str, Any], after: Any) -> None:
            for j, s in enumerate(dict.fromkeys(home[p] for p in batch)):
                part = [p for p in batch if home[p] == s]
                task = (kind, k, s)
                self.resource[task] = (kind, s)
                self.waiting_for[task] = set(after)
                self.rank[task] = k
                self.work[task] = 8.0 * sum(size[p] for p in part)
                self.batch[task] = k
                if parses:
                    parse = ("parse", *task)
                    first = [place[op] for op in order if op not in server and set(reads[op]) & set(part)]
                    self.resource[parse] = "worker" if kind == "pull" else ("server", s)
                    self.waiting_for[parse] = {task}
                    self.rank[parse] = (min(first, default=math.inf), 0, k, j) if kind == "pull" else (0, k)
                    self.work[parse] = network.parse_s_per_byte * sum(size[p] for p in part) + network.parse_s
                    task = parse
                arrive |= dict.fromkeys(part, task)

        for k, pull in enumerate(plan.pulls):
            message("pull", k, pull.parameters, pulled, set())
        before: dict[int, Any] = {}
        for k, push in enumerate(plan.pushes):
            makers = {op for op in ops if set(produces[op]) & set(push.parameters)}
            message("push", k, push.parameters, pushed, makers)
            if commits:
                for p in push.parameters:
                    self.waiting_for["push", k, home[p]].add(pulled[p])
            for s in {home[p] for p in push.parameters}:
                if plan.issue == "listed" and s in before:
                    self.waiting_for["push", k, s].add(before[s])
                before[s] = ("push", k, s)

        def server_of(op: str) -> int:
            if reads[op]:
                return home[reads[op][0]]
            for other in inputs[op]:
                if other in server:
                    return server_of(other)
                if produces[other]:
                    return home[produces[other][0]]
            return 0

        self.arrivals = set(pushed.values())
        self.updates = set(server)
        self.server_of = {op: server_of(op) for op in server}
        for op in ops:
            self.rank[op] = (place.get(op, 0), 1) if op not in server else (1, list(ops).index(op))
            if op not in server:
                self.resource[op] = "worker"
                self.waiting_for[op] = set(inputs[op]) | {pulled[p] for p in reads[op]}
                if plan.compute_order and place[op]:
                    earlier = [o for o in order[: place[op]] if o not in server]
                    self.waiting_for[op] |= set(earlier[-1:])
                continue
            self.resource[op] = ("server", self.server_of[op])
            gradients = set(reads[op]) & trained
            needs = set()
            for other in inputs[op]:
                if other in server or not produces[other]:
                    needs.add(other)
                else:
                    gradients |= set(produces[other]) & set(reads[op]) or set(produces[other])
            self.waiting_for[op] = needs | {pushed[p] for p in gradients}
        if commits:
            self.resource["commit"] = "worker"
            self.waiting_for["commit"] = {op for op in ops if op not in server} | set(pulled.values())
            self.rank["commit"] = (math.inf, 2)
            self.work["commit"] = 0.0
            for op in server:
                self.waiting_for[op].add("commit")

    def server(self, task: Any) -> Any:
        """The server that a transfer, a parsing or an update belongs to; None: it is the worker's."""
        if task in self.updates:
            return self.server_of[task]
        return task[-1] if isinstance(task, tuple) else None

    def seconds(self, task: Any, sample: int) -> float:
        if task in self.work:
            return self.work[task]
        return float(self.graph.durations_s[self.graph.operation_names.index(task), sample])


def predict(
    job: Job,
    num_workers: int,
    num_ends: int,
    draw: Callable[[int, int], int],
    *,
    links: Callable[[str, int, int], list[Any]],
    capacity: dict[Any, float],
    window_bits: float = 0.0,
    speeds: list[float] | None = None,
    start_s: list[float] | None = None,
    needed: int = 0,
) -> list[float]:
    """The ends of steps: of whoever completes one (needed 0), or of synchronous steps of ``needed`` workers.

    ``draw``: the measured step of a worker's k-th step; of the servers' k-th, for worker ``num_workers``.
    ``links``: what a pull or push between a worker and a server crosses.
    """
    speeds = speeds or [1.0] * num_workers
    start_s = start_s or [0.0] * num_workers
    workers = range(num_workers)
    now = 0.0
    queues: dict[Any, list[Any]] = {}  # (worker, resource) -> tasks, in the order of their keys
    running: dict[Any, dict[str, Any]] = {}  # (worker, resource) -> chunk
    waiting: list[dict[Any, set[Any]]] = [{} for _ in workers]  # (step, task) -> tasks
    ended: list[set[Any]] = [set() for _ in workers]  # (step, task)
    label, clock = [0] * num_workers, 0
    # Of each worker: the step that its own tasks are in, and those of each server.
    own, at_server = [-1] * num_workers, [dict.fromkeys(job.servers, -1) for _ in workers]
    turned: list[set[Any]] = [set() for _ in workers]
    chunk_rest: dict[Any, float] = {}  # what a second turn has to send
    ends: list[float] = []
    # With commits: whose turn it is at a server, and who waits for it.
    turn: dict[int, int] = {}
    line: dict[int, list[int]] = {}
    idle: set[int] = set()
    arrived: dict[Any, int] = {}
    global_wait: dict[Any, set[Any]] = {}
    finished = 0
    server_sample = 0
    local = [t for t in job.resource if not (needed and t in job.updates)]
    apart = job.commits and not needed
    tasks_of: dict[Any, list[Any]] = {}
    for task in local:
        tasks_of.setdefault(job.server(task) if apart else None, []).append(task)

    def key(task: Any) -> Any:
        nonlocal clock
        clock += 1
        return clock if task in job.batch and window_bits else job.rank[task]

    def add(w: int, task: Any) -> None:
        queue = queues.setdefault((w, job.resource[task]), [])
        queue.append((key(task), clock, task))
        queue.sort()

    def step_of(w: int, task: Any) -> int:
        s = job.server(task) if apart else None
        return own[w] if s is None else at_server[w][s]

    def open_tasks(w: int, k: int, group: Any) -> None:
        for task in tasks_of.get(group, []):
            turned[w].discard(task)
            waiting[w][k, task] = {t for t in job.waiting_for[task] if (k, t) not in ended[w]}
            if not waiting[w][k, task]:
                add(w, task)

    def begin(w: int, group: Any = None) -> None:
        k = own[w] + 1
        if group is not None:
            k = at_server[w][group] = at_server[w][group] + 1
        if own[w] < k:
            own[w] = k
            label[w] = len(ends)
            idle.discard(w)
            open_tasks(w, k, None)
        if group is not None:
            open_tasks(w, k, group)

    def all_over(w: int, k: int, group: Any) -> bool:
        return all((k, task) in ended[w] for task in tasks_of.get(group, []))

    def in_turn(task: Any) -> bool:
        return job.commits and not needed and task in job.updates

    def open_step() -> None:
        nonlocal finished, server_sample
        arrived.clear()
        finished = 0
        server_sample = draw(num_workers, len(ends))
        global_wait.clear()
        global_wait.update({t: set(job.waiting_for[t]) for t in job.updates})
        for t in job.updates:
            if not global_wait[t]:
                add(-1, t)

    if needed:
        open_step()
    for w in workers:
        if start_s[w]:
            running[w, "start"] = {"task": None, "ends": start_s[w]}
        else:
            for s in job.servers if apart else (None,):
                begin(w, s)
    left_global = set(job.updates) if needed else set()
    for _ in range(10_000_000):
        # Start.
        for (w, resource), queue in queues.items():
            if (w, resource) in running or not queue:
                continue
            if in_turn(queue[0][2]):
                _, s = resource
                if turn.setdefault(s, w) != w:
                    if w not in line.setdefault(s, []):
                        line[s].append(w)
                    continue
            _, _, task = queue.pop(0)
            chunk = {"task": task}
            if task in job.batch:
                bits = job.work[task] if task not in turned[w] else chunk_rest[w, task]
                chunk["starts"] = now + (job.network.startup_s if task not in turned[w] else 0.0)
                if task not in turned[w] and window_bits and bits > window_bits:
                    chunk_rest[w, task] = bits - window_bits
                    bits = window_bits
                else:
                    chunk_rest[w, task] = 0.0
                turned[w].add(task)
                chunk["bits"] = bits
            elif w < 0:
                chunk["ends"] = now + job.seconds(task, server_sample)
            else:
                slow = speeds[w] if resource == "worker" else 1.0
                chunk["ends"] = now + job.seconds(task, draw(w, step_of(w, task))) / slow
            running[w, resource] = chunk
        # Next event.
        moving = {
            k: links(k[1][0], k[0], k[1][1])
            for k, c in running.items()
            if "bits" in c and c["starts"] <= now + 1e-12 * now
        }
        rates = max_min(moving, capacity) if moving else {}
        times = [c["ends"] for c in running.values() if "ends" in c]
        times += [c["starts"] for k, c in running.items() if "bits" in c and k not in moving]
        times += [now + running[k]["bits"] / rates[k] for k in moving]
        then = min(times)
        over = []
        for k, c in running.items():
            if k in moving:
                c["bits"] -= rates[k] * (then - now)
                if c["bits"] <= 1e-9 * rates[k]:
                    over.append(k)
            elif "ends" in c and c["ends"] <= then + 1e-9:
                over.append(k)
        now = then
        # End.
        done = []
        for k in over:
            w, task = k[0], running.pop(k)["task"]
            if in_turn(task) and not (queues[k] and in_turn(queues[k][0][2])):
                _, s = k[1]
                del turn[s]
                if line.get(s):
                    turn[s] = line[s].pop(0)
            if task is None:
                for s in job.servers if apart else (None,):
                    begin(w, s)
            elif task in job.batch and chunk_rest[w, task] > 0:
                add(w, task)
            else:
                done.append((w, task))
        while done:
            w, task = done.pop(0)
            reached: list[Any] = []
            if w < 0:
                left_global.discard(task)
                reached = [task]
            else:
                k = step_of(w, task)
                del waiting[w][k, task]
                ended[w].add((k, task))
                for (step, t), needs in waiting[w].items():
                    if step == k and task in needs:
                        needs.discard(task)
                        if not needs:
                            add(w, t)
                if needed and label[w] == len(ends):
                    arrived[task] = arrived.get(task, 0) + 1
                    if arrived[task] == needed:
                        reached = [task]
            for r in reached:
                for t, needs in global_wait.items():
                    if r in needs:
                        needs.discard(r)
                        if not needs:
                            add(-1, t)
            if w >= 0 and apart:
                if all(all_over(w, k, group) for group in tasks_of):
                    ends.append(now)
                    if len(ends) == num_ends:
                        return ends
                for s in job.servers:
                    last = at_server[w][s]
                    if all_over(w, last, s) and all_over(w, last, None):
                        begin(w, s)
            elif w >= 0 and not waiting[w]:
                if not needed:
                    ends.append(now)
                    if len(ends) == num_ends:
                        return ends
                    begin(w)
                elif label[w] == len(ends):
                    finished += 1
                    idle.add(w)
                else:
                    begin(w)
            if (
                needed
                and finished >= needed
                and not left_global
                and all(arrived.get(a, 0) >= needed for a in job.arrivals)
            ):
                ends.append(now)
                if len(ends) == num_ends:
                    return ends
                open_step()
                left_global = set(job.updates)
                for v in sorted(idle):
                    begin(v)
    raise AssertionError("no end")
