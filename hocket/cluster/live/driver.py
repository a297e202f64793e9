"""The engine, driven by what ranks say: the same functions that the simulator's clock calls, in its order.

It does no I/O and knows no clock. Ranks count: a worker has ended so many tasks, two an iteration, a job has
transferred so many iterations. What the engine believes follows these counts, so a message that was lost, or
a rank that went ahead while nobody answered, is made up for by the next one.

What a rank that runs a program of its own may do at once, and what in the engine's tasks it corresponds to:
computing ends with the first gradients, from then on it transfers. Its next step may begin while the last
one's transfers are under way, unless it shares a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine import end_task, end_transfer, start_tasks, submit, touch
from hocket.cluster.jobs import Job, JobSet
from hocket.cluster.live.carry import carry, count_room
from hocket.cluster.placement.registry import placement_of
from hocket.cluster.placing import finish_jobs, place_on, place_queue
from hocket.cluster.policies.registry import policy_of
from hocket.cluster.progress import reset, settle
from hocket.cluster.records import (
    BACKWARD,
    COMPUTING,
    FINISHED,
    FORWARD,
    IN_BACKWARD,
    IN_FORWARD,
    NONE,
    QUEUED,
    READY,
    SUBMITTED,
    TRANSFERRING,
    WAITING,
    Rules,
)
from hocket.cluster.state import State, make_state
from hocket.cluster.transfers import account, decide_transfers, leave, occupy, stop_transfer

TICK_S = 1e-9
_FULL = 2**61  # bytes that no job leaves free: nobody is placed on a drained server's GPUs


@dataclass(eq=False)
class Course:
    """How far a job is.

    ``tasks``: of each rank how many tasks it says it has ended, two an iteration; ``ended``: how many of them
    the engine knows of. ``begun``, ``done``: iterations that were over when it was added, and are now.
    ``transferred``: iterations whose transfers have ended. ``chunks``: how many of the one under way were let
    go. ``here``: ranks that talk to the gate, ``parked``: those that do not and have
    left their GPU; ``computes``, ``transfers``: the task that each waits for,
    and the iteration whose chunk rank 0 waits with.
    """

    job: Job
    row: int
    free_running: bool
    begun: int = 0
    done: int = 0
    tasks: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    transferred: int = 0
    chunks: int = 0
    here: set[int] = field(default_factory=set)
    parked: set[int] = field(default_factory=set)
    computes: dict[int, int] = field(default_factory=dict)
    transfers: int | None = None


@dataclass
class Actions:
    """What is to be done: jobs to start with their GPUs; ranks that may compute; jobs whose chunk may go."""

    placed: dict[str, list[int]] = field(default_factory=dict)
    compute: list[tuple[str, int]] = field(default_factory=list)
    transfer: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Parts:
    """What a job's time on its GPUs went into, in seconds."""

    computing_s: float
    gpu_wait_s: float
    transferring_s: float
    network_wait_s: float


class Driver:
    """The jobs of a cluster; ``now_s`` in every method is since the cluster's beginning and never less."""

    def __init__(
        self, cluster: Cluster, *, placement: str, policy: str, seed: int = 0, chunk_bytes: float = 4e6
    ) -> None:
        self.cluster = cluster
        self._placement, self._policy = placement_of(placement), policy_of(policy)
        self._seed, self._chunk_bytes = seed, chunk_bytes
        self._state: State | None = None
        self._rules: Rules | None = None
        self.courses: dict[str, Course] = {}
        self._by_row: list[Course | None] = []
        self._arrived: list[Course] = []
        self._over: list[Course] = []
        self._drained: set[int] = set()
        self._ranks: dict[str, int] = {}
        self._freed = False

    @property
    def preemptive(self) -> bool:
        """Whether transfers may be stopped between chunks."""
        return self._policy.preemptive

    def check(self, job: Job) -> None:
        """Refuse what can never be placed or counted; raises HocketError."""
        self._made([job])

    def add(self, jobs: Sequence[Job], done: Sequence[int], free_running: Sequence[bool]) -> None:
        """Let these jobs be known; ``done`` of each one's iterations are over. They have yet to arrive.

        Raises
        ------
        HocketError
            When one can never be placed, or all together cannot be counted; nothing has changed then.
        """
        kept = [course for course in self._by_row if course is not None]
        new = [
            Course(
                job,
                0,
                free,
                begun=d,
                done=d,
                transferred=d,
                tasks=[2 * d] * job.gpus,
                ended=[2 * d] * job.gpus,
            )
            for job, d, free in zip(jobs, done, free_running, strict=True)
        ]
        state, rules = self._made([course.job for course in (*kept, *new)])
        # Ties go by arrival, then id; a job that is tried again keeps its place.
        for place in np.argsort(state.jobs["rank"][len(kept) :]).tolist():
            self._ranks.setdefault(new[place].job.id, len(self._ranks))
        if self._state is None:
            self._state = state
            self._take_drained()
        else:
            carry(self._state, np.array([course.row for course in kept], np.int64), state)
            self._state = state
        self._rules = rules
        for row, course in enumerate((*kept, *new)):
            course.row = row
            if row >= len(kept):
                state.jobs[row]["remaining"] = course.job.iterations - course.done
                state.jobs[row]["rank"] = self._ranks[course.job.id]
                self.courses[course.job.id] = course
        self._by_row = [*kept, *new]

    def _made(self, jobs: Sequence[Job]) -> tuple[State, Rules]:
        state, rules, _ = make_state(
            JobSet(jobs=tuple(jobs), source="jobs"),
            self.cluster,
            self._policy,
            self._placement,
            self._seed,
            self._chunk_bytes,
            TICK_S,
        )
        return state, rules

    # Events.

    def arrive(self, job: str) -> None:
        """A job that was added is to be placed from the next decision on."""
        self._arrived.append(self.courses[job])

    def adopt(self, job: str, gpus: Sequence[int], now_s: float) -> None:
        """A job that was added runs already, on these GPUs."""
        s, course = self._known(), self.courses[job]
        submit(s.jobs, s.queue, s.counts, self._rules, course.row)
        self._leave_queue(course.row)
        s.sites.chosen[: len(gpus)] = sorted(gpus)
        place_on(
            s.jobs, s.workers, s.gpus, s.ports, s.links, s.segments, s.touched, s.counts, s.sites,
            self._rules, course.row, _tick(now_s),
        )  # fmt: skip

    def joined(self, job: str, rank: int, iteration: int) -> None:
        """A rank talks to us; ``iteration`` of it are over, more or less than we knew."""
        course = self.courses[job]
        course.here.add(rank)
        course.tasks[rank] = max(course.tasks[rank], 2 * iteration)
        if rank == 0:
            course.transferred = max(course.transferred, iteration)

    def left(self, job: str, rank: int) -> None:
        """A rank talks to us no longer: what it asked is void, and it may be anywhere."""
        course = self.courses[job]
        course.here.discard(rank)
        course.computes.pop(rank, None)
        if rank == 0:
            course.transfers = None
        elif course.transfers is not None:
            course.tasks[rank] = max(course.tasks[rank], 2 * course.transfers + 2)

    def ask_compute(self, job: str, rank: int, iteration: int, part: int) -> None:
        """A rank is ready for a task; what comes before it is over."""
        course = self.courses[job]
        course.computes[rank] = 2 * iteration + part
        if not course.free_running:
            course.tasks[rank] = max(course.tasks[rank], 2 * iteration + part)
            if rank == 0:
                course.transferred = max(course.transferred, iteration)

    def computed(self, job: str, rank: int, iteration: int, part: int) -> None:
        """A rank has ended a task, and all before it."""
        course = self.courses[job]
        course.tasks[rank] = max(course.tasks[rank], 2 * iteration + part + 1)

    def ask_transfer(self, job: str, iteration: int, bytes_left: int, of_bytes: int, now_s: float) -> None:
        """Rank 0 has so much of an iteration's transfer left to send."""
        course, s, rules = self.courses[job], self._known(), self._rules
        assert rules is not None
        course.transfers = iteration
        course.transferred = max(course.transferred, iteration)
        for rank in range(course.job.gpus):
            if rank == 0 or rank not in course.here:  # nobody transfers before all have computed
                course.tasks[rank] = max(course.tasks[rank], 2 * iteration + 2)
        row, now = s.jobs[course.row], _tick(now_s)
        if row["stage"] != TRANSFERRING or course.chunks == 0 or iteration != course.done:
            return
        # What has arrived is known now, and was estimated before.
        settle(s.jobs, rules, course.row, now)
        left = row["size"] * min(1.0, bytes_left / max(1, of_bytes))
        row["sent"] += row["chunk_left"] + row["later"] - left
        reset(s.jobs, course.row, left, rules.chunk)
        row["ranked_at"] = NONE
        if rules.preemptive:
            row["startup_left"] = rules.startup
            if not row["claims"]:
                stop_transfer(
                    s.jobs, s.ports, s.links, s.changed, s.flows, s.moved, s.counts, rules, course.row, now
                )

    def ended_transfer(self, job: str, iteration: int) -> None:
        """All that an iteration had to transfer has arrived."""
        course = self.courses[job]
        course.transferred = max(course.transferred, iteration + 1)

    def drain(self, server: int, *, on: bool) -> None:
        """Place nobody on a server any more, or again; whoever is there stays."""
        (self._drained.add if on else self._drained.discard)(server)
        if self._state is not None:
            self._take_drained()

    def withdraw(self, job: str, now_s: float) -> Parts:
        """A job ends, wherever it is: its processes are gone. What its time went into."""
        course, s, now = self.courses.pop(job), self._known(), _tick(now_s)
        row, j = s.jobs[course.row], course.row
        self._by_row[j] = None
        stage = row["stage"]
        if course in self._arrived:
            self._arrived.remove(course)
        if stage == QUEUED:
            self._leave_queue(j)
        if stage in (SUBMITTED, QUEUED):
            row["stage"] = FINISHED
            return Parts(0.0, 0.0, 0.0, 0.0)
        if stage == TRANSFERRING:
            leave(s.jobs, s.ports, s.links, s.changed, s.flows, s.counts, j, now)
        elif stage == READY:
            account(s.jobs, j, now)
            self._give_up_claims(j)
        row["claims"] = 0
        for w in self._workers(course):
            worker = s.workers[w]
            if s.gpus[worker["gpu"]]["running"] == w:
                s.gpus[worker["gpu"]]["running"] = NONE
                touch(s.gpus, s.touched, s.counts, worker["gpu"])
            worker["phase"] = WAITING
        if course in self._over:
            self._over.remove(course)
        s.over[0] = j
        s.counts[0]["over"] = 1
        finish_jobs(s.jobs, s.workers, s.gpus, s.ports, s.links, s.over, s.counts, s.sites, now)
        self._freed = True
        return self._parts(course)

    # Decisions.

    def decide(self, now_s: float) -> Actions:
        """Take in what was said, and decide."""
        actions = Actions()
        if self._state is None:
            return actions
        while self._instant(_tick(now_s), actions):
            pass
        self._answer(actions)
        return actions

    def _instant(self, now: int, actions: Actions) -> bool:
        """One pass in the clock's order; whether something ended, so that another one may find more to do."""
        s, rules = self._known(), self._rules
        ended = sum(self._feed(course, now) for course in self._by_row if course is not None)
        for j in s.over[: s.counts[0]["over"]].tolist():
            # Its GPUs are free when its processes have ended.
            course = self._by_row[j]
            assert course is not None
            self._over.append(course)
            s.jobs[j]["stage"] = COMPUTING
        s.counts[0]["over"] = 0
        arrived, self._arrived = self._arrived, []
        for course in arrived:
            submit(s.jobs, s.queue, s.counts, rules, course.row)
        s.counts[0]["placed"] = 0
        if s.counts[0]["queued"] and (arrived or self._freed):
            place_queue(
                s.jobs, s.workers, s.gpus, s.ports, s.links, s.segments, s.touched, s.queue, s.placed,
                s.counts, s.sites, rules, now,
            )  # fmt: skip
        self._freed = False
        for j in s.placed[: s.counts[0]["placed"]].tolist():
            course = self._by_row[j]
            assert course is not None
            actions.placed[course.job.id] = s.workers["gpu"][self._workers(course)].tolist()
        if s.counts[0]["ready"] or s.counts[0]["changed"]:
            fair = (s.sites.capacity, s.sites.route, s.rate, s.room, s.load)
            decide_transfers(
                s.jobs, s.ports, s.links, s.changed, s.flows, s.moved, s.ready, s.counts, s.candidates,
                s.altered, s.bytes_left, fair, rules, now,
            )  # fmt: skip
        s.jobs["moved"][s.moved[: s.counts[0]["moved"]]] = 0
        s.counts[0]["moved"] = 0
        start_tasks(s.jobs, s.workers, s.gpus, s.touched, s.started, s.counts)
        return bool(ended) or bool(s.counts[0]["placed"])

    def _feed(self, course: Course, now: int) -> bool:
        """Let what ranks have ended end in the engine, as far as it has begun there."""
        s, rules, j = self._known(), self._rules, course.row
        row = s.jobs[j]
        if course in self._over:
            return False
        fed = False
        if row["stage"] == COMPUTING:
            fed = self._park(course)
            for rank, w in enumerate(self._workers(course)):
                running = s.workers[w]["phase"] in (IN_FORWARD, IN_BACKWARD)
                if running and course.ended[rank] < course.tasks[rank]:
                    course.ended[rank] += 1
                    fed = True
                    end_task(
                        s.jobs, s.workers, s.gpus, s.segments, s.batch_bytes, s.touched, s.ready, s.over,
                        s.counts, rules, w, now,
                    )  # fmt: skip
            done = course.job.iterations - int(row["remaining"])
            if done > course.done:
                course.parked.clear()
                course.done, course.transferred = done, max(course.transferred, done)
        elif row["stage"] in (READY, TRANSFERRING) and course.transferred > course.done:
            if row["stage"] == READY:  # it went ahead
                account(s.jobs, j, now)
                occupy(s.jobs, s.ports, s.links, s.changed, s.flows, s.moved, s.counts, j, now)
            end_transfer(
                s.jobs, s.workers, s.gpus, s.segments, s.batch_bytes, s.touched, s.ports, s.links, s.changed,
                s.flows, s.ready, s.over, s.counts, rules, j, now,
            )  # fmt: skip
            course.done += 1
            course.chunks = 0
            course.parked.clear()
            fed = True
        return fed

    def _park(self, course: Course) -> bool:
        """Let ranks that do not talk to us leave their GPUs to others; whether that changed anything."""
        s, changed = self._known(), False
        for rank, w in enumerate(self._workers(course)):
            silent = rank not in course.here and course.tasks[rank] == course.ended[rank]
            if silent == (rank in course.parked):
                continue
            g = int(s.workers[w]["gpu"])
            if not silent:
                course.parked.discard(rank)
                s.workers[w]["phase"] = FORWARD if course.ended[rank] % 2 == 0 else BACKWARD
            elif s.workers[w]["phase"] != WAITING:
                course.parked.add(rank)
                s.workers[w]["phase"] = WAITING
                if s.gpus[g]["running"] == w:
                    s.gpus[g]["running"] = NONE
            else:
                continue
            touch(s.gpus, s.touched, s.counts, g)
            changed = True
        return changed

    def _answer(self, actions: Actions) -> None:
        """Whoever waits for what has begun in the engine, or is over there, may go."""
        s = self._known()
        for course in self._by_row:
            if course is None or not (course.computes or course.transfers is not None):
                continue
            name, over = course.job.id, course in self._over
            first = int(s.jobs[course.row]["first_worker"])
            for rank, task in list(course.computes.items()):
                begun = s.workers[first + rank]["phase"] in (IN_FORWARD, IN_BACKWARD)
                free = course.free_running and not self._shares(course, rank)
                if over or free or task < course.ended[rank] or (begun and task == course.ended[rank]):
                    del course.computes[rank]
                    actions.compute.append((name, rank))
            row, asked = s.jobs[course.row], course.transfers
            if asked is None:
                continue
            local = row["num_servers"] == 0
            if (
                over
                or local
                or asked < course.done
                or (row["stage"] == TRANSFERRING and asked == course.done)
            ):
                course.transfers = None
                course.chunks += 1
                actions.transfer.append(name)

    # What is known.

    def done(self, job: str) -> int:
        """How many iterations of a job are over."""
        return self.courses[job].done

    def stage(self, job: str) -> str:
        """What a job is doing, in a word."""
        course = self.courses[job]
        if course in self._over:
            return "ending"
        names = {
            SUBMITTED: "to arrive",
            QUEUED: "queued",
            COMPUTING: "computing",
            READY: "waits for the network",
            TRANSFERRING: "transferring",
        }
        return names[int(self._known().jobs[course.row]["stage"])]

    def bytes_left(self, job: str) -> float:
        """Of a transfer, when it was last looked at."""
        row = self._known().jobs[self.courses[job].row]
        return float(row["chunk_left"] + row["later"])

    @property
    def state(self) -> tuple[State, Rules]:
        """The engine's own, for checks."""
        assert self._rules is not None
        return self._known(), self._rules

    def _known(self) -> State:
        assert self._state is not None, "no job is known"
        return self._state

    def _workers(self, course: Course) -> list[int]:
        first = int(self._known().jobs[course.row]["first_worker"])
        return list(range(first, first + course.job.gpus))

    def _shares(self, course: Course, rank: int) -> bool:
        """Whether somebody else is on the rank's GPU."""
        s = self._known()
        w = self._workers(course)[rank]
        return int(s.gpus[s.workers[w]["gpu"]]["resident"]) != w or int(s.workers[w]["next"]) != NONE

    def _leave_queue(self, j: int) -> None:
        s = self._known()
        left = [other for other in s.queue[: s.counts[0]["queued"]].tolist() if other != j]
        s.queue[: len(left)] = left
        s.counts[0]["queued"] = len(left)

    def _give_up_claims(self, j: int) -> None:
        """What job j claims is free: whoever waits for it is looked at again."""
        s = self._known()
        s.jobs[j]["claims"] = 0
        first, number = int(s.jobs[j]["first_port"]), int(s.jobs[j]["num_hops"])
        for link in s.ports["link"][first : first + number].tolist():
            row = s.links[link]
            if row["claimant"] == j:
                row["claimant"] = NONE
            row["freed"] = 1
            if not row["changed"]:
                row["changed"] = 1
                s.changed[s.counts[0]["changed"]] = link
                s.counts[0]["changed"] += 1

    def _take_drained(self) -> None:
        """Take all memory of drained servers' GPUs, and give it back to others."""
        s, per_server = self._known(), self.cluster.gpus_per_server
        for g in range(self.cluster.num_gpus):
            drained, taken = g // per_server in self._drained, s.gpus[g]["free"] < -(_FULL // 2)
            if drained != taken:
                s.gpus[g]["free"] += -_FULL if drained else _FULL
        count_room(s)
        self._freed = True

    def _parts(self, course: Course) -> Parts:
        row = self._known().jobs[course.row]
        computing = (course.done - course.begun) * (row["forward"] + row["backward"])
        # Where a rank computed shorter than its job says, waiting would be negative.
        short = min(0, int(row["gpu_wait"]))
        seconds = [int(computing) + short, int(row["gpu_wait"]) - short]
        seconds += [int(row["transferring"]), int(row["network_wait"])]
        return Parts(*(max(0, ticks) * TICK_S for ticks in seconds))


def _tick(now_s: float) -> int:
    return round(now_s / TICK_S)


def warm() -> None:
    """Compile what decisions call, or load it: a manager must not do so while ranks wait."""
    job = Job(
        id="warm", model="", gpus=2, iterations=2, arrival_s=0.0, forward_s=1.0, backward_s=1.0,
        size_bytes=8e6, memory_bytes=1.0,
    )  # fmt: skip
    for policy in ("srpt", "ada-srsf"):
        driver = Driver(Cluster(num_servers=2, gpus_per_server=1), placement="lwf-1", policy=policy)
        driver.add([job], [0], [False])
        driver.arrive("warm")
        driver.decide(0.0)
        driver.withdraw("warm", 0.5)
        driver.add([job], [0], [False])
        driver.adopt("warm", [0, 1], 1.0)
        driver.decide(1.0)
        for iteration in range(2):
            for part in range(2):
                for rank in range(2):
                    driver.computed("warm", rank, iteration, part)
            driver.decide(2.0)
            for left in (2, 1):
                driver.ask_transfer("warm", iteration, left, 2, 3.0)
                driver.decide(3.0)
            driver.ended_transfer("warm", iteration)
            driver.decide(4.0)
        driver.withdraw("warm", 5.0)
