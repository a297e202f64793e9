"""Naive twin of the cluster engine: everything is computed anew at every event, in exact rational numbers.

No ticks, no stretches, no lists of what may have changed: at each instant all tasks and transfers move on,
everybody who is ready is asked, in order. Preempted transfers stop at the end of every chunk to be asked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.gpu_type import GpuType
from hocket.cluster.jobs import Job, JobSet
from hocket.cluster.simulator.outages import Outages
from hocket.sim.draws import draw_number

NEVER = None


def exact(value: float) -> Fraction:
    """The decimal that a number is written as."""
    return Fraction(repr(float(value)))


@dataclass(eq=False)
class Run:
    """One job as it goes along."""

    job: Job
    number: int
    remaining: int
    speed: Fraction = Fraction(1)  # of its computing on the GPUs that it has, or would be best on
    gpus: list[int] = field(default_factory=list)
    phase: dict[int, str] = field(default_factory=dict)  # of each GPU
    ends: dict[int, Fraction] = field(default_factory=dict)  # of GPUs that compute
    launched: Fraction | None = None  # when it has its processes, until then
    servers: list[int] = field(default_factory=list)  # empty inside one server
    chunks: list[list[Fraction]] = field(default_factory=list)  # [startup left, bytes left] of each
    ready: bool = False
    running: bool = False
    fresh_since: Fraction | None = None  # when the transfer started or resumed
    whole: bool = False  # nothing of the first chunk is sent
    start: Fraction | None = None
    finish: Fraction | None = None
    reserved: Fraction | None = None  # when it fits at the latest by what it holds
    first_start: Fraction | None = None
    queueing: Fraction = Fraction(0)
    interruptions: int = 0
    had: Fraction = Fraction(0)  # GPUs, times how long, until it was interrupted
    kept: int = 0  # iterations that were complete when it was placed
    computed: Fraction = Fraction(0)  # what these took
    transferring: Fraction = Fraction(0)
    network_wait: Fraction = Fraction(0)
    # Of a job on several servers that has batches.
    overlaps: bool = False
    iteration: int = 0  # the one that it computes
    arrived: int = 0  # batches, of all iterations
    piece: dict[int, int] = field(default_factory=dict)  # of each GPU, which part of the iteration is next
    between: set[int] = field(default_factory=set)  # GPUs that it has in the middle of a task

    @property
    def bytes_left(self) -> Fraction:
        return sum((chunk[1] for chunk in self.chunks), Fraction(0))


class Simulation:
    """One run of a job set; ``runs`` holds what came of it."""

    def __init__(
        self, jobs: JobSet, cluster: Cluster, scheduling: Scheduling, outages: Outages | None = None
    ) -> None:
        self.outages = outages
        windows = () if outages is None else outages.maintenance
        self.windows = [(server, exact(begin), exact(end)) for server, begin, end in windows]
        self.cluster, self.scheduling = cluster, scheduling
        self.placement, self.policy, self.seed = scheduling.placement, scheduling.policy, scheduling.seed
        self.a, self.b, self.eta = exact(cluster.startup_s), exact(cluster.per_byte_s), exact(cluster.eta_s)
        self.preemptive = self.policy in ("psrsf", "srpt")
        self.chunk = exact(scheduling.chunk_bytes)
        self.held_gpus: dict[int, Run] = {}  # while the queue is placed
        self.kept: dict[str, Run] = {}  # the only job of a user that may be, meanwhile
        self.num_arrived = 0
        self.runs = [Run(job, i, job.iterations) for i, job in enumerate(jobs.jobs)]
        self.now = Fraction(0)
        self.per_server = cluster.gpus_per_server
        self.rack = cluster.rack_of().tolist()
        # Of each GPU its type and its memory.
        whole = (GpuType(name="", num_gpus=cluster.num_gpus),)
        runs_of_gpus = [each for each in cluster.gpu_types or whole for _ in range(each.num_gpus)]
        self.type = [each.name for each in runs_of_gpus]
        self.memory = [each.memory_bytes or cluster.gpu_memory_bytes for each in runs_of_gpus]
        self.times: dict[Run, list[tuple[Fraction, Fraction]]] = {}
        self.pieces: dict[Run, list[tuple[Fraction, Fraction, str]]] = {}
        self.alone: dict[Run, Fraction] = {}
        for run in self.runs:
            self.compute_at(run, self.best_speed(run))

    # Types of GPUs.

    def speeds(self, run: Run) -> dict[str, Fraction]:
        """The types that it accepts, in the order in which the cluster has them."""
        names = list(dict.fromkeys(self.type))
        if names == [""] or not run.job.speeds:
            return dict.fromkeys(names, Fraction(1))
        return {name: exact(run.job.speeds[name]) for name in names if name in run.job.speeds}

    def best_speed(self, run: Run) -> Fraction:
        speeds = self.speeds(run)
        return max(speeds[name] for name in speeds if self.could_fit(run, name))

    def could_fit(self, run: Run, name: str) -> bool:
        """Whether there are enough GPUs of a type, large enough, with nobody on them."""
        there = [m for m, other in zip(self.memory, self.type, strict=True) if other == name]
        return sum(memory >= run.job.memory_bytes for memory in there) >= run.job.gpus

    def compute_at(self, run: Run, speed: Fraction) -> None:
        run.speed = speed
        self.times[run] = self.times_of(run)
        self.pieces[run] = self.pieces_of(run)
        if run.job.batches:
            self.alone[run] = self.settled(run, Fraction(1))

    # What orders jobs.

    def reduce(self, run: Run) -> Fraction:
        if run.job.batches:
            return self.alone[run] - self.computing(run)
        return self.a + self.b * exact(run.job.size_bytes)

    def computing(self, run: Run) -> Fraction:
        return (exact(run.job.forward_s) + exact(run.job.backward_s)) / run.speed

    def per_iteration(self, run: Run) -> Fraction:
        return self.computing(run) + (self.reduce(run) if run.servers else 0)

    def key(self, run: Run) -> Any:
        tie = (run.job.arrival_s, run.job.id)
        if self.policy in ("fifo", "strict-fifo", "fair-share"):
            return tie
        iterations = run.remaining
        if self.policy == "tiresias":
            iterations = run.job.iterations - run.remaining
        return (iterations * self.per_iteration(run) * run.job.gpus, *tie)

    def transfer_key(self, run: Run) -> Any:
        if self.policy != "srpt":
            return self.key(run)
        left = run.bytes_left
        if run.running and not (run.whole and run.fresh_since != self.now):
            left -= run.chunks[0][1]
        return (left, run.job.arrival_s, run.job.id)

    # Placement.

    def placed(self) -> list[Run]:
        return [run for run in self.runs if run.start is not None and run.finish is None]

    def load(self, gpu: int) -> Fraction:
        here = [run for run in self.placed() if gpu in run.gpus]
        return sum((run.remaining * self.per_iteration(run) for run in here), Fraction(0))

    def free(self, run: Run) -> list[int]:
        """GPUs that have room for the job, and that nobody holds."""
        return [g for g in range(self.cluster.num_gpus) if g not in self.held_gpus and self.has_room(g, run)]

    def is_down(self, server: int) -> bool:
        return any(server == s and begin <= self.now < end for s, begin, end in self.windows)

    def has_room(self, g: int, run: Run) -> bool:
        if self.is_down(g // self.per_server):
            return False
        there = [other.job.memory_bytes for other in self.placed() if g in other.gpus]
        most = self.scheduling.jobs_per_gpu
        if most is not None and len(there) >= most:
            return False
        return sum(there) + run.job.memory_bytes <= self.memory[g]

    def by_servers(self, free: list[int], servers: list[int]) -> list[int]:
        """Free GPUs of servers in the order of their load, in that of their own."""
        of = {s: range(s * self.per_server, (s + 1) * self.per_server) for s in servers}
        ordered = sorted(servers, key=lambda s: (sum(self.load(g) for g in of[s]), s))
        return [g for s in ordered for g in sorted(of[s], key=lambda g: (self.load(g), g)) if g in free]

    def choose(self, run: Run) -> list[int] | None:
        """GPUs of the type on which it computes fastest, of those where it fits."""
        free, speeds, suits = self.free(run), self.speeds(run), run.speed
        of_type = {name: [g for g in free if self.type[g] == name] for name in speeds}
        fitting = [name for name in speeds if len(of_type[name]) >= run.job.gpus]
        if not fitting:
            return None
        speed = max(speeds[name] for name in fitting)
        equal = [name for name in fitting if speeds[name] == speed]
        self.compute_at(run, speed)
        if self.placement == "blocks":
            found = self.in_block(run, {name: of_type[name] for name in equal})
            if found is None:
                self.compute_at(run, suits)
            return found
        if self.placement == "earliest":
            options = [self.choose_from(run, of_type[name]) for name in equal]
            return min(options, key=lambda option: self.lost_time(run, option))
        first = self.choose_from(run, [g for g in free if self.type[g] in equal])[0]
        return self.choose_from(run, of_type[self.type[first]])

    def choose_from(self, run: Run, free: list[int]) -> list[int]:
        """The GPUs among these that the placement takes, in the order in which it does."""
        n = run.job.gpus
        servers = list(range(self.cluster.num_servers))
        anywhere = sorted(free, key=lambda g: (self.load(g), g))
        if self.placement == "ff":
            return free[:n]
        if self.placement == "ls":
            return anywhere[:n]
        if self.placement == "rand":
            return sorted(free, key=lambda g: (draw_number(self.seed, run.number, g), g))[:n]
        if self.placement.startswith("lwf-"):
            if n <= int(self.placement[4:]):
                return anywhere[:n]
            return self.by_servers(free, servers)[:n]
        assert self.placement == "earliest"
        options = [self.by_servers(free, [s]) for s in servers]
        if self.cluster.racks > 1:
            racks = [[s for s in servers if self.rack[s] == rack] for rack in range(self.cluster.racks)]
            options += [self.by_servers(free, rack) for rack in racks]
        options += [self.by_servers(free, servers), anywhere]
        options = [sorted(option[:n]) for option in options if len(option) >= n]
        return min(options, key=lambda option: self.lost_time(run, option))

    def in_block(self, run: Run, of_type: dict[str, list[int]]) -> list[int] | None:
        """GPUs of one of these types in a block; None while some block would have room."""
        size, n = 1, run.job.gpus
        while size * self.per_server < n:
            size *= 2
        servers = list(range(self.cluster.num_servers))
        blocks = [servers[first : first + size] for first in range(0, len(servers), size)]
        options = [self.by_servers(free, block)[:n] for free in of_type.values() for block in blocks]
        options = [option for option in options if len(option) == n]
        if options:
            return min(options, key=lambda option: self.lost_service(run, option))
        waited = self.now - exact(run.job.arrival_s)
        starving = self.scheduling.starvation_s is not None and waited >= exact(self.scheduling.starvation_s)
        large = [
            g
            for g in range(self.cluster.num_gpus)
            if self.memory[g] >= run.job.memory_bytes and not self.is_down(g // self.per_server)
        ]
        some_day = any(
            sum(self.type[g] == name and g // self.per_server in block for g in large) >= n
            for name in of_type
            for block in blocks
        )
        if some_day and not starving:
            return None
        first = self.by_servers([g for free in of_type.values() for g in free], servers)[0]
        return self.by_servers(of_type[self.type[first]], servers)[:n]

    def lost_service(self, run: Run, option: list[int]) -> Fraction:
        """What goes before the job on the busiest server and GPU, and what it delays on them."""
        wide = run.job.gpus > self.per_server
        computing = run.remaining * self.computing(run)
        transfers = run.remaining * self.reduce(run) if wide else Fraction(0)
        service = (computing + transfers) * run.job.gpus

        def lost(there: list[list[tuple[Run, Fraction]]], own: Fraction) -> Fraction:
            first = [
                sum((work for other, work in each if self.service_left(other) <= service), Fraction(0))
                for each in there
            ]
            delayed = [sum(self.service_left(other) > service for other, _ in each) for each in there]
            return max(first) + max(delayed) * own

        here = self.placed()
        found = lost(
            [[(r, r.remaining * self.computing(r)) for r in here if g in r.gpus] for g in option], computing
        )
        if wide:
            links = {g // self.per_server for g in option}
            found += lost(
                [[(r, r.remaining * self.reduce(r)) for r in here if s in r.servers] for s in links],
                transfers,
            )
        return found

    def service_left(self, run: Run) -> Fraction:
        return run.remaining * self.per_iteration(run) * run.job.gpus

    def lost_time(self, run: Run, option: list[int]) -> Fraction:
        servers = {g // self.per_server for g in option}
        computing = run.job.iterations * self.computing(run)
        alone = computing
        if len(servers) > 1:
            shares = [Fraction(1 + self.users(("server", s))) for s in servers]
            racks = {self.rack[s] for s in servers}
            if len(racks) > 1:
                for rack in racks:
                    carried = self.capacity(("rack", rack)) * self.b
                    shares.append((1 + self.users(("rack", rack))) / carried)
            alone += run.job.iterations * self.exposed(run, max(shares))
        ahead, delayed = Fraction(0), 0
        for g in option:
            here = [other for other in self.placed() if g in other.gpus]
            left = {other: other.remaining * self.per_iteration(other) for other in here}
            first = [other for other in here if left[other] * other.job.gpus <= alone * run.job.gpus]
            ahead = max(ahead, sum((left[other] for other in first), Fraction(0)))
            delayed = max(delayed, len(here) - len(first))
        return alone + ahead + computing * delayed

    def users(self, link: Any) -> int:
        return sum(link in self.links(run) for run in self.placed())

    # Users.

    def held(self, user: str) -> int:
        """GPUs that jobs of a user hold."""
        return sum(run.job.gpus for run in self.placed() if run.job.user == user)

    def in_quota(self, run: Run) -> bool:
        user, quotas = run.job.user, self.scheduling.quotas
        quota = quotas.get(user, quotas.get("*", 10**9))
        return self.kept.get(user, run) is run and self.held(user) + run.job.gpus <= quota

    def keep_quota(self, run: Run) -> None:
        """Until the queue is placed no other job of the user is, if it has a quota."""
        if run.job.user in self.scheduling.quotas or "*" in self.scheduling.quotas:
            self.kept.setdefault(run.job.user, run)

    def had(self, user: str) -> Fraction:
        """GPU seconds of a user's jobs until now, over its share."""
        shares = self.scheduling.shares
        total = Fraction(0)
        for run in self.runs:
            if run.job.user == user:
                total += run.had
            if run.job.user == user and run.start is not None:
                total += run.job.gpus * ((self.now if run.finish is None else run.finish) - run.start)
        return total / shares.get(user, shares.get("*", 1))

    def queue_key(self, run: Run) -> Any:
        if self.policy == "fair-share":
            return (-run.job.priority, self.had(run.job.user), self.key(run))
        return (-run.job.priority, self.key(run))

    # The queue.

    def place(self) -> None:
        """Place who fits; first those that have queued for long, which hold GPUs where they do not."""
        queue = [r for r in self.runs if exact(r.job.arrival_s) <= self.now and r.start is None]
        if self.scheduling.starvation_s is not None:
            since = self.now - exact(self.scheduling.starvation_s)
            starving = [run for run in queue if exact(run.job.arrival_s) <= since]
            for run in sorted(starving, key=lambda run: (run.job.arrival_s, run.job.id)):
                if self.in_quota(run):
                    if self.place_on(run, self.choose(run)):
                        continue
                    if not self.hold(run):
                        break
                self.keep_quota(run)
        held = dict(self.held_gpus)
        for run in sorted((run for run in queue if run.start is None), key=self.queue_key):
            if not self.in_quota(run):
                continue
            placed = self.place_on(run, self.choose(run))
            if not placed and held:
                self.held_gpus = {g: by for g, by in held.items() if not self.is_open(run, g, by)}
                placed = self.place_on(run, self.choose(run))
                self.held_gpus = dict(held)
            if not placed and self.policy == "strict-fifo":
                break
        self.held_gpus, self.kept = {}, {}

    def hold(self, run: Run) -> bool:
        waits = {
            g: Fraction(0) if self.has_room(g, run) else self.load(g)
            for g in range(self.cluster.num_gpus)
            if g not in self.held_gpus and self.memory[g] >= run.job.memory_bytes
            if not self.is_down(g // self.per_server)
        }
        options = []
        for name, speed in self.speeds(run).items():
            there = sorted((g for g in waits if self.type[g] == name), key=lambda g: (waits[g], g))
            if len(there) >= run.job.gpus:
                first = there[: run.job.gpus]
                options.append((waits[first[-1]] + self.service(run, speed), first))
        if not options:
            return False
        _, first = min(options, key=lambda option: option[0])
        reserved = self.now + waits[first[-1]]
        run.reserved = reserved if run.reserved is None else min(run.reserved, reserved)
        self.held_gpus |= dict.fromkeys(first, run)
        return True

    def is_open(self, run: Run, g: int, by: Run) -> bool:
        """True if the job may have a GPU that another one holds."""
        speeds = self.speeds(run)
        if self.type[g] not in speeds:
            return False
        end = self.now + exact(run.job.startup_s) + self.service(run, speeds[self.type[g]]) + self.load(g)
        assert by.reserved is not None
        return self.has_room(g, run) and (by is run or end <= by.reserved)

    def service(self, run: Run, speed: Fraction) -> Fraction:
        """What is left of a job that queues, at a speed of computing."""
        before = run.speed
        self.compute_at(run, speed)
        found = run.remaining * (self.computing(run) + (self.reduce(run) if run.job.gpus > 1 else 0))
        self.compute_at(run, before)
        return found

    def place_on(self, run: Run, gpus: list[int] | None) -> bool:
        """Place a job on these GPUs, if there are any."""
        if gpus is None:
            return False
        run.gpus, run.start = sorted(gpus), self.now
        run.first_start = self.now if run.first_start is None else run.first_start
        assert len({self.type[g] for g in gpus}) == 1
        self.compute_at(run, self.speeds(run)[self.type[gpus[0]]])
        servers = sorted({g // self.per_server for g in gpus})
        run.servers = servers if len(servers) > 1 else []
        run.overlaps = bool(run.servers and run.job.batches)
        run.piece = dict.fromkeys(run.gpus, 0)
        run.phase = dict.fromkeys(run.gpus, "waits" if run.overlaps else "forward")
        if run.job.startup_s:
            run.phase = dict.fromkeys(run.gpus, "launches")
            run.launched = self.now + exact(run.job.startup_s)
        return True

    # Links.

    def links(self, run: Run) -> list[Any]:
        """Servers, and racks if there are several and the job is in several."""
        links: list[Any] = [("server", s) for s in run.servers]
        racks = {self.rack[s] for s in run.servers}
        return links + ([("rack", r) for r in racks] if len(racks) > 1 else [])

    def capacity(self, link: Any) -> Fraction:
        """Bytes a second."""
        kind, number = link
        if kind == "server":
            return 1 / self.b
        return self.rack.count(number) / self.b / exact(self.cluster.oversubscription)

    def per_byte(self) -> dict[Run, Fraction]:
        """Seconds a byte of each transfer under way."""
        running = [run for run in self.runs if run.running]
        if self.cluster.sharing == "equation5":
            costs = {}
            for run in running:
                k = max(sum(s in other.servers for other in running) for s in run.servers)
                costs[run] = k * self.b + (k - 1) * self.eta
            return costs
        rate = {run: Fraction(0) for run in running}
        growing = set(running)
        while growing:
            links = {link for run in growing for link in self.links(run)}
            room = {}
            for link in links:
                used = sum((rate[run] for run in running if link in self.links(run)), Fraction(0))
                room[link] = (self.capacity(link) - used) / sum(link in self.links(run) for run in growing)
            least = min(room.values())
            for run in growing:
                rate[run] += least
            full = {link for link in links if room[link] == least}
            growing = {run for run in growing if not full & set(self.links(run))}
        return {run: 1 / rate[run] for run in running}

    # Who may transfer.

    def sharing(self, server: int) -> list[Run]:
        return [run for run in self.runs if run.running and server in run.servers]

    def admits(self, run: Run) -> bool:
        size = run.bytes_left
        for server in run.servers:
            others = self.sharing(server)
            if self.policy == "ada-srsf":
                if len(others) > 1:
                    return False
                for other in others:
                    threshold = self.b / (2 * (self.b + self.eta))
                    if size and size >= threshold * other.bytes_left:
                        return False
            elif self.policy == "kway":
                left = sorted(other.bytes_left for other in others)
                totals = [self.total_finish(left, size, after) for after in range(len(left) + 1)]
                if totals[0] > min(totals):
                    return False
            else:
                most = int(self.policy[5:]) if self.policy.startswith("srsf-") else 1
                if len(others) >= most:
                    return False
        return True

    def total_finish(self, left: list[Fraction], size: Fraction, after: int) -> Fraction:
        """Finish times added up, of transfers on one link and one more that starts after so many ends."""
        running = [*left, size] if after == 0 else list(left)
        time, total, ended = Fraction(0), Fraction(0), 0
        while running:
            k, least = len(running), min(running)
            time += least * (k * self.b + (k - 1) * self.eta)
            running = [rest - least for rest in running]
            for _ in range(running.count(0)):
                running.remove(0)
                total += time
                ended += 1
                if ended == after:
                    running.append(size)
        return total

    def admit(self) -> None:
        for run in sorted((run for run in self.runs if run.ready), key=self.key):
            if self.admits(run):
                self.start_transfer(run)

    def preempt(self) -> None:
        active = sorted((run for run in self.runs if run.ready or run.running), key=self.transfer_key)
        claimed: set[int] = set()
        claims = []
        for run in active:
            if not claimed & set(run.servers):
                claimed |= set(run.servers)
                claims.append(run)
        for run in active:
            if run.running and run not in claims and run.whole and run.fresh_since != self.now:
                run.running, run.ready = False, True
        for run in claims:
            if run.ready and not any(self.sharing(s) for s in run.servers):
                self.start_transfer(run)

    def start_transfer(self, run: Run) -> None:
        run.ready, run.running, run.fresh_since = False, True, self.now

    # Jobs that overlap: an iteration in pieces, cut wherever a batch is complete or due.

    def times_of(self, run: Run) -> list[tuple[Fraction, Fraction]]:
        """When each batch is complete, and when it is due."""
        end = self.computing(run)
        return [
            (min(exact(batch.ready_s) / run.speed, end), exact(batch.due_s) / run.speed)
            for batch in run.job.batches
        ]

    def pieces_of(self, run: Run) -> list[tuple[Fraction, Fraction, str]]:
        forward, end = exact(run.job.forward_s) / run.speed, self.computing(run)
        marks = sorted({mark for times in self.times[run] for mark in times})
        pieces = []
        for first, last, task in ((Fraction(0), forward, "forward"), (forward, end, "backward")):
            cuts = [first, *(mark for mark in marks if first < mark < last), last]
            pieces += [(cuts[i], cuts[i + 1], task) for i in range(len(cuts) - 1)]
        return pieces

    def exposed(self, run: Run, slowdown: Fraction) -> Fraction:
        """What transfers that are so much slower than alone add to an iteration."""
        if run.job.batches:
            return self.settled(run, slowdown) - self.computing(run)
        return self.reduce(run) * slowdown

    def settled(self, run: Run, slowdown: Fraction) -> Fraction:
        """What the sixteenth iteration takes where each transfer takes so many times what it does alone."""
        times = self.times[run]
        now = free = begun = Fraction(0)
        arrivals = [Fraction(0) for _ in times]
        for _ in range(16):
            begun = now
            ready: dict[int, Fraction] = {}
            for first, last, _ in self.pieces[run]:
                now = max([now, *(arrivals[i] for i, (_, due) in enumerate(times) if due <= first)])
                now += last - first
                for i, (complete, _) in enumerate(times):
                    if complete <= last:
                        ready.setdefault(i, now)
            for i, batch in enumerate(run.job.batches):
                free = max(free, ready[i]) + slowdown * (self.a + self.b * exact(batch.size_bytes))
                arrivals[i] = free
        return now - begun

    def reached(self, run: Run, g: int) -> Fraction:
        """How far the job has computed its iteration on a GPU."""
        pieces = self.pieces[run]
        return pieces[run.piece[g]][0] if run.piece[g] < len(pieces) else self.computing(run)

    def complete(self, run: Run, number: int) -> bool:
        """Whether a batch can be sent; batches of all iterations are numbered through."""
        iteration, batch = divmod(number, len(run.job.batches))
        if iteration != run.iteration:
            return iteration < run.iteration
        return all(self.reached(run, g) >= self.times[run][batch][0] for g in run.gpus)

    def may_compute(self, run: Run, g: int) -> bool:
        if not run.overlaps:
            return run.phase.get(g) in ("forward", "backward")
        before = (run.iteration - 1) * len(run.job.batches)
        due = [i for i, (_, due) in enumerate(self.times[run]) if due <= self.reached(run, g)]
        return run.phase[g] == "waits" and all(before + i < run.arrived for i in due)

    def stalled(self, run: Run) -> bool:
        return not run.ends and not any(self.may_compute(run, g) for g in run.gpus)

    def end_piece(self, run: Run, g: int) -> None:
        pieces = self.pieces[run]
        task = pieces[run.piece[g]][2]
        run.piece[g] += 1
        if run.piece[g] == len(pieces):
            run.phase[g] = "done"
            return
        run.phase[g] = "waits"
        if pieces[run.piece[g]][2] == task:
            run.between.add(g)

    def go_on(self, run: Run) -> None:
        """Begin the next iteration where this one is computed, and be ready to send what is complete."""
        if set(run.phase.values()) == {"done"} and run.iteration < run.job.iterations:
            run.iteration += 1
            if run.iteration < run.job.iterations:
                run.phase, run.piece = dict.fromkeys(run.gpus, "waits"), dict.fromkeys(run.gpus, 0)
        sent = run.arrived // len(run.job.batches)
        run.remaining = run.job.iterations - min(run.iteration, sent)
        if run.remaining == 0:
            run.finish = self.now
        elif not run.chunks and self.complete(run, run.arrived):
            batch = run.job.batches[run.arrived % len(run.job.batches)]
            run.chunks, run.ready = self.cut(exact(batch.size_bytes)), True

    # Time.

    def cut(self, size: Fraction) -> list[list[Fraction]]:
        if not self.preemptive or size <= self.chunk:
            return [[self.a, size]]
        return [[self.a, self.chunk], *self.cut(size - self.chunk)]

    def next_instant(self, costs: dict[Run, Fraction]) -> Fraction | None:
        times = [end for run in self.runs for end in run.ends.values()]
        times += [run.launched for run in self.runs if run.launched is not None]
        times += [self.now + run.chunks[0][0] + run.chunks[0][1] * costs[run] for run in costs]
        times += [exact(run.job.arrival_s) for run in self.runs if exact(run.job.arrival_s) > self.now]
        if any(run.finish is None for run in self.runs):
            times += [at for _, *window in self.windows for at in window if at > self.now]
        return min(times, default=NEVER)

    def advance(self, until: Fraction, costs: dict[Run, Fraction]) -> list[Run]:
        """Let transfers move on; those that are over."""
        elapsed = until - self.now
        over = []
        for run in self.runs:
            run.queueing += elapsed if run.start is None and exact(run.job.arrival_s) <= self.now else 0
            idle = not run.overlaps or self.stalled(run)
            run.network_wait += elapsed if run.ready and idle else 0
            if not run.running:
                continue
            run.transferring += elapsed if idle else 0
            startup, size = run.chunks[0]
            begun = min(elapsed, startup)
            run.chunks[0] = [startup - begun, size - (elapsed - begun) / costs[run]]
            if elapsed > 0:
                run.whole = False
            if run.chunks[0] == [0, 0]:
                run.chunks.pop(0)
                run.whole = True
                if not run.chunks:
                    over.append(run)
        self.now = until
        return over

    def end_iteration(self, run: Run) -> None:
        run.remaining -= 1
        if run.remaining == 0:
            run.finish = self.now
        else:
            run.phase = dict.fromkeys(run.gpus, "forward")

    # Servers that go down.

    def interrupt(self) -> bool:
        """Let jobs on servers that go down queue again; whether a server did, or came back."""
        if self.outages is None or not any(self.now in window for _, *window in self.windows):
            return False
        for run in self.placed():
            if not any(self.is_down(g // self.per_server) for g in run.gpus):
                continue
            done = run.job.iterations - run.remaining
            every = self.outages.checkpoint_every_s
            if every is None:
                kept = 0
            else:
                of_one = exact(run.job.forward_s) + exact(run.job.backward_s)
                iterations = max(1, int(exact(every) / of_one))
                kept = done - done % iterations
            assert run.start is not None
            run.had += run.job.gpus * (self.now - run.start)
            run.computed += (kept - run.kept) * self.computing(run)
            run.kept, run.remaining = kept, run.job.iterations - kept
            self.compute_at(run, self.best_speed(run))
            run.iteration, run.arrived = kept, kept * len(run.job.batches)
            run.gpus, run.servers, run.phase, run.ends, run.chunks = [], [], {}, {}, []
            run.piece, run.between, run.overlaps = {}, set(), False
            run.ready = run.running = run.whole = False
            run.start = run.launched = run.reserved = run.fresh_since = None
            run.interruptions += 1
        return True

    def instant(self, over: list[Run]) -> None:
        unfinished = [run for run in self.runs if run.finish is None]
        for run in over:
            run.running = False
            if run.overlaps:
                run.arrived += 1
            else:
                self.end_iteration(run)
        for run in self.placed():
            for g in [g for g in run.ends if run.ends[g] == self.now]:
                del run.ends[g]
                if run.overlaps:
                    self.end_piece(run, g)
                else:
                    run.phase[g] = {"in forward": "backward", "in backward": "done"}[run.phase[g]]
            if run.launched == self.now:
                run.launched = None
                run.phase = dict.fromkeys(run.gpus, "waits" if run.overlaps else "forward")
        for run in self.placed():
            if run.overlaps:
                self.go_on(run)
            elif set(run.phase.values()) == {"done"} and not run.chunks:
                if run.servers:
                    run.chunks, run.ready, run.phase = self.cut(exact(run.job.size_bytes)), True, {}
                else:
                    self.end_iteration(run)
        num_arrived = sum(exact(run.job.arrival_s) <= self.now for run in self.runs)
        # What a job would hold is looked at when one arrives or ends, not at other instants.
        changed = self.interrupt()
        if changed or num_arrived > self.num_arrived or any(run.finish is not None for run in unfinished):
            self.place()
        self.num_arrived = num_arrived
        if self.preemptive:
            self.preempt()
        else:
            self.admit()
        for g in range(self.cluster.num_gpus):
            here = [run for run in self.placed() if g in run.gpus]
            waiting = [run for run in here if self.may_compute(run, g)]
            for run in here:
                if g in run.between:
                    run.between.remove(g)
                    waiting = [run] if run in waiting else waiting
            if waiting and not any(g in run.ends for run in here):
                first = min(waiting, key=self.key)
                if first.overlaps:
                    begin, end, _ = self.pieces[first][first.piece[g]]
                    first.phase[g], first.ends[g] = "computes", self.now + end - begin
                else:
                    forward = first.phase[g] == "forward"
                    duration = first.job.forward_s if forward else first.job.backward_s
                    first.phase[g] = f"in {first.phase[g]}"
                    first.ends[g] = self.now + exact(duration) / first.speed

    def run(self) -> None:
        """Let time pass until every job is over."""
        self.now = Fraction(-1)
        until = self.next_instant({})
        costs: dict[Run, Fraction] = {}
        while until is not None:
            over = self.advance(until, costs)
            self.instant(over)
            costs = self.per_byte()
            until = self.next_instant(costs)
        assert all(run.finish is not None for run in self.runs)
        for run in self.runs:
            run.computed += (run.job.iterations - run.kept) * self.computing(run)


def simulate(
    jobs: JobSet, cluster: Cluster, scheduling: Scheduling, outages: Outages | None = None
) -> list[Run]:
    """What becomes of each job; of outages only maintenance, which may be any time that a server is down."""
    simulation = Simulation(jobs, cluster, scheduling, outages)
    simulation.run()
    return simulation.runs
