"""Jobs and GPUs of the cluster engine's naive twin: the speeds, loads and room of each instant."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.gpu_type import GpuType
from hocket.cluster.jobs import Job, JobSet
from hocket.cluster.simulator.outages import Outages

NEVER = None


def exact(value: float) -> Fraction:
    """The decimal that a number is written as."""
    return Fraction(repr(float(value)))


def is_even(seconds: Fraction) -> bool:
    """True if a time is of whole ticks, of the longest that the engine counts small job sets in."""
    return (seconds * 10**9).denominator == 1


@dataclass(eq=False)
class Run:
    """One job as it goes along."""

    job: Job
    number: int
    num: int  # GPUs that it has, or needs at least while it queues
    work_kept: int = 0  # iterations of one GPU, done when it queued last
    iterations: int = 0  # on so many GPUs
    remaining: int = 0
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
    uneven: bool = False  # its transfer began, or was slowed down, between two ticks
    start: Fraction | None = None
    finish: Fraction | None = None
    reserved: Fraction | None = None  # when it fits at the latest by what it holds
    first_start: Fraction | None = None
    queueing: Fraction = Fraction(0)
    interruptions: int = 0
    stays: list[tuple[Fraction, Fraction, int]] = field(default_factory=list)  # until it was interrupted
    preemptions: int = 0
    shrunk: int = 0
    grown: int = 0
    saved_at: Fraction = Fraction(0)  # when it has its last checkpoint
    launch: Fraction = Fraction(0)  # from its next start to its first iteration then
    launches_for: Fraction = Fraction(0)  # that of its last start
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


class State:
    """Jobs on a cluster at an instant; ``runs`` holds their course."""

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
        self.promised: dict[int, Fraction] = {}  # how long those ahead in it are to have a GPU
        self.leaving: list[Run] = []  # jobs that count as over, meanwhile
        self.offered: dict[Run, set[int]] = {}  # GPUs that jobs would give
        self.vacated: dict[int, Fraction] = {}  # when those that were preempted on a GPU have saved
        self.kept: dict[str, Run] = {}  # the only job of a user that may be, meanwhile
        self.num_arrived = 0
        self.stopping: list[Fraction] = []
        self.runs = [
            Run(job, i, job.fewest_gpus, launch=exact(job.startup_s)) for i, job in enumerate(jobs.jobs)
        ]
        for run in self.runs:
            self.take_number(run, run.num)
        self.now = Fraction(0)
        self.coinciding = 0  # what ends, or comes, at the next instant
        self.meets_unevenly = False
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

    def take_number(self, run: Run, num: int) -> None:
        """Let a job that queues have so many GPUs: as many of its iterations as cover its work."""
        run.num = num
        run.iterations = -(-run.job.gpus * run.job.iterations // num)
        run.kept = run.work_kept // num
        run.remaining = run.iterations - run.kept
        run.iteration, run.arrived = run.kept, run.kept * len(run.job.batches)

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
        """True if there are enough GPUs of a type, large enough, with nobody on them."""
        there = [m for m, other in zip(self.memory, self.type, strict=True) if other == name]
        return sum(memory >= run.job.memory_bytes for memory in there) >= run.num

    def compute_at(self, run: Run, speed: Fraction) -> None:
        run.speed = speed
        self.times[run] = self.times_of(run)
        self.pieces[run] = self.pieces_of(run)
        if run.job.batches:
            self.alone[run] = self.settled(run, Fraction(1))

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
            iterations = run.iterations - run.remaining
        return (iterations * self.per_iteration(run) * run.num, *tie)

    def transfer_key(self, run: Run) -> Any:
        if self.policy != "srpt":
            return self.key(run)
        left = run.bytes_left
        if run.running and not (run.whole and run.fresh_since != self.now):
            left -= run.chunks[0][1]
        return (left, run.job.arrival_s, run.job.id)

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
        staying = [other for other in self.placed() if other not in self.leaving]
        there = [
            other.job.memory_bytes
            for other in staying
            if g in other.gpus and g not in self.offered.get(other, ())
        ]
        most = self.scheduling.jobs_per_gpu
        if most is not None and len(there) >= most:
            return False
        return sum(there) + run.job.memory_bytes <= self.memory[g]

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

    def users(self, link: Any) -> int:
        return sum(link in self.links(run) for run in self.placed())

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
        """The time that transfers so much slower than alone add to an iteration."""
        if run.job.batches:
            return self.settled(run, slowdown) - self.computing(run)
        return self.reduce(run) * slowdown

    def settled(self, run: Run, slowdown: Fraction) -> Fraction:
        """The time of the sixteenth iteration where each transfer takes so many times as long as alone."""
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
