"""The jobs that the engine knows of: how far each is, and where it is in the engine's state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.gpu_numbers import take_number
from hocket.cluster.engine.placement.named_placements import placement_of
from hocket.cluster.engine.placing import order_queue
from hocket.cluster.engine.policies.named_policies import policy_of
from hocket.cluster.engine.queued_needs import count_queued
from hocket.cluster.engine.records import (
    BACKWARD,
    COMPUTING,
    EXCLUDED,
    FORWARD,
    IN_BACKWARD,
    IN_FORWARD,
    NEVER,
    NONE,
    QUEUED,
    READY,
    SUBMITTED,
    TRANSFERRING,
    Ints,
    Rules,
)
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.engine.starvation import starving_jobs
from hocket.cluster.engine.state import EngineState, count_room, make_state
from hocket.cluster.engine.users import user_names
from hocket.cluster.jobs import Job, JobSet
from hocket.cluster.live.job_progress import JobProgress, TimeParts
from hocket.cluster.live.state_migration import carry
from hocket.errors import HocketError
from hocket.text import counted, listed, scaled_text

TICK_S = 1e-9

_STAGES = {
    SUBMITTED: "to arrive",
    QUEUED: "queued",
    COMPUTING: "computing",
    READY: "waits for the network",
    TRANSFERRING: "transferring",
}


class EngineRows:
    """The jobs of a cluster, each a row of the engine's state, which is made anew when some are added.

    ``progress_of``: by id; ``by_row``: in the state's order, None for those that have left. ``arrived_jobs``:
    who is to queue at the next decision; ``ending_jobs``: those with no iteration left, but processes that
    have yet to end; ``has_new_room``: whether a job may fit now that did not before; ``next_stop``: the tick
    at which one may be preempted or resized that may not be now. ``withheld``: bytes of each GPU that the
    engine takes for used and no job has, ``EXCLUDED`` where nobody is to be placed.
    """

    def __init__(self, cluster: Cluster, scheduling: Scheduling) -> None:
        self.cluster = cluster
        scheduling.check()
        self._scheduling = scheduling
        self._state: EngineState | None = None
        self._rules: Rules | None = None
        self.progress_of: dict[str, JobProgress] = {}
        self.by_row: list[JobProgress | None] = []
        self.arrived_jobs: list[JobProgress] = []
        self.ending_jobs: list[JobProgress] = []
        self.has_new_room = False
        self.next_stop = NEVER
        self._drained_servers: set[int] = set()
        self._lacking = np.zeros(cluster.num_gpus, np.int64)
        self.withheld = np.zeros(cluster.num_gpus, np.int64)
        self._ranks: dict[str, int] = {}
        self._users: list[str] = []
        self._attained, self._attained_by = np.zeros(0), 0

    @property
    def preemptive(self) -> bool:
        """True if transfers may be stopped between chunks."""
        return policy_of(self._scheduling.policy).preemptive

    @property
    def placement_waits(self) -> bool:
        """True if a job may wait where GPUs enough have room for it."""
        return placement_of(self._scheduling.placement).waits

    def check(self, job: Job) -> None:
        """Refuse what can never be placed or counted; raises HocketError."""
        if job.speeds and not self.cluster.gpu_types:
            raise HocketError(
                f"job '{job.id}' runs on {listed(list(job.speeds), 'or')}, and the types of the cluster's"
                " GPUs are not known; name them (--gpus 0:a100), or leave out its speeds"
            )
        state, _ = self._make_state([job])
        has = self.cluster.gpu_memory_bytes - self._lacking
        fitting = state.gpus["type"][has >= job.memory_bytes]
        types = [kind for kind in range(len(self.cluster.types)) if int(state.jobs[0]["types"]) >> kind & 1]
        if (fits := max(int((fitting == kind).sum()) for kind in types)) < job.fewest_gpus:
            there = int((self._lacking < EXCLUDED).sum())
            raise HocketError(
                f"job '{job.id}' needs {counted(job.fewest_gpus, 'GPU')} with"
                f" {scaled_text(job.memory_bytes, 'B')} of memory each, and of the cluster's {there} {fits}"
                " can have it: it can never be placed; give it fewer GPUs or less memory_bytes"
            )

    def add(
        self,
        jobs: Sequence[Job],
        work_done: Sequence[int],
        free_running: Sequence[bool],
        places: Sequence[int],
    ) -> None:
        """Let these jobs be known. They have yet to arrive.

        work_done: of each, in iterations of one GPU. places: of each among all jobs that ever came, from 0:
        RAND draws by it, as for the simulator's jobs, and the same after a restart.

        Raises
        ------
        HocketError
            When one can never be placed, or all together cannot be counted; nothing has changed then.
        """
        kept = [progress for progress in self.by_row if progress is not None]
        new = [JobProgress(job, 0, free) for job, free in zip(jobs, free_running, strict=True)]
        state, rules = self._make_state([progress.job for progress in (*kept, *new)])
        # Ties go by arrival, then id; a job that is tried again keeps its place.
        for place in np.argsort(state.jobs["rank"][len(kept) :]).tolist():
            self._ranks.setdefault(new[place].job.id, len(self._ranks))
        if self._state is None:
            self._state = state
            state.users["attained"][: len(self._users)] = self._attained
            state.users["since"][: len(self._users)] = self._attained_by
            self.withheld[:] = 0
            self._withhold()
        else:
            carry(self._state, np.array([progress.row for progress in kept], np.int64), state)
            self._state = state
        self._users = user_names(self._users, jobs)
        self._rules = rules
        for row, progress in enumerate((*kept, *new)):
            progress.row = row
            if row >= len(kept):
                state.jobs[row]["draw"] = places[row - len(kept)]
                state.jobs[row]["work_kept"] = work_done[row - len(kept)]
                self.take_number(progress, progress.job.fewest_gpus)
                state.jobs[row]["rank"] = self._ranks[progress.job.id]
                self.progress_of[progress.job.id] = progress
        self.by_row = [*kept, *new]

    def take_number(self, progress: JobProgress, gpus: int) -> None:
        """Let a job that has yet to be placed have so many GPUs."""
        take_number(self.state.jobs, progress.row, gpus)
        progress.take_number(gpus, int(self.state.jobs[progress.row]["kept"]))

    def _make_state(self, jobs: Sequence[Job]) -> tuple[EngineState, Rules]:
        state, rules, _ = make_state(
            JobSet(jobs=tuple(jobs), source="jobs"),
            self.cluster,
            self._scheduling,
            TICK_S,
            self._users,
        )
        state.jobs["launch"] = 0  # processes say when they are ready
        return state, rules

    def set_attained(self, gpu_seconds: Mapping[str, float], now_s: float) -> None:
        """Set what users have had of GPUs by now, as far as it counts; before any job is added."""
        assert self.empty
        self._users = list(gpu_seconds)
        self._attained = np.array(list(gpu_seconds.values()), np.float64) / TICK_S
        self._attained_by = round(now_s / TICK_S)

    def set_stops(self, times: Mapping[str, tuple[int, int, int]]) -> None:
        """Set how often each of these jobs has been preempted, has shrunk, and has grown."""
        for job, numbers in times.items():
            row = self.state.jobs[self.progress_of[job].row]
            row["preemptions"], row["shrunk"], row["grown"] = numbers

    def drain(self, server: int, *, on: bool) -> None:
        """Place nothing on a server any more, or again; jobs that are there stay."""
        (self._drained_servers.add if on else self._drained_servers.discard)(server)
        self._withhold()

    def set_lacking(self, bytes_of_gpu: Ints) -> None:
        """Set how many bytes each GPU lacks of the cluster's memory; ``EXCLUDED`` where it is not there."""
        self._lacking[:] = bytes_of_gpu
        self._withhold()

    def _withhold(self) -> None:
        """Take from each GPU what it does not have, all memory of drained ones, and give back the rest."""
        if self._state is None:
            return
        server = np.arange(self.cluster.num_gpus) // self.cluster.gpus_per_server
        wanted = np.where(np.isin(server, list(self._drained_servers)), EXCLUDED, self._lacking)
        self.state.gpus["free"] -= wanted - self.withheld
        self.withheld[:] = wanted
        count_room(self.state)
        self.has_new_room = True

    # State of jobs.

    @property
    def empty(self) -> bool:
        """True if no job was ever added."""
        return self._state is None

    @property
    def state(self) -> EngineState:
        """The engine's own."""
        assert self._state is not None, "no job is known"
        return self._state

    @property
    def rules(self) -> Rules:
        """The rules that the engine decides by."""
        assert self._rules is not None, "no job is known"
        return self._rules

    def queue(self, now_s: float) -> list[int]:
        """Rows of the jobs that queue, in the order in which they are to be placed."""
        order_queue(self.state, self.rules, round(now_s / TICK_S))
        rows: list[int] = self.state.candidates[: self.state.counts[0]["queued"]].tolist()
        return rows

    def starving(self, now_s: float) -> list[int]:
        """Rows of the jobs that have queued for so long that GPUs are held for them, in their order."""
        num = starving_jobs(self.state, self.rules, round(now_s / TICK_S))
        rows: list[int] = self.state.altered_jobs[:num].tolist()
        return rows

    def begin_leaving(self, progress: JobProgress) -> None:
        """Let a job whose row has left its GPUs wait for its ranks' end; nobody asks it to leave again."""
        progress.parts_at_leaving = self.parts(progress)
        self.state.jobs[progress.row]["checkpoint"] = NONE

    def job_at(self, row: int) -> JobProgress:
        """The job of a row that has not left."""
        progress = self.by_row[row]
        assert progress is not None, row
        return progress

    def leave_queue(self, j: int) -> None:
        """Take a job off the queue, if it is there."""
        s = self.state
        left = [other for other in s.queue[: s.counts[0]["queued"]].tolist() if other != j]
        s.queue[: len(left)] = left
        s.counts[0]["queued"] = len(left)
        count_queued(s.needs, s.queue[: len(left)])

    def iterations_done(self, job: str) -> int:
        """Iterations of a job that are over."""
        return self.progress_of[job].iterations_done

    def stage(self, job: str) -> str:
        """The stage of a job, in words."""
        progress = self.progress_of[job]
        if progress in self.ending_jobs:
            return "ending"
        if progress.leaves:
            return "saving"
        if self.held_rank(progress) is not None:
            return "waits for its GPU"
        return _STAGES[int(self.state.jobs[progress.row]["stage"])]

    def held_rank(self, progress: JobProgress) -> int | None:
        """A rank that waits for its GPU while none of the job's computes; None where it does not wait."""
        s = self.state
        if s.jobs[progress.row]["stage"] != COMPUTING or progress in self.ending_jobs:
            return None
        phases = s.workers["phase"][self.workers(progress)]
        if np.isin(phases, (IN_FORWARD, IN_BACKWARD)).any():
            return None
        waiting = np.flatnonzero(np.isin(phases, (FORWARD, BACKWARD)))
        return int(waiting[0]) if len(waiting) else None

    def user_of(self, gpu: int) -> str | None:
        """The job that computes on a GPU now."""
        running = int(self.state.gpus[gpu]["running"])
        progress = None if running == NONE else self.by_row[int(self.state.workers[running]["job"])]
        return None if progress is None else progress.job.id

    def waits_now_s(self, job: str, now_s: float) -> float:
        """Seconds for which a job has waited for its GPU or for the network, 0 where it does not wait."""
        progress = self.progress_of[job]
        row, now = self.state.jobs[progress.row], round(now_s / TICK_S)
        if row["stage"] == READY:
            return max(0, now - int(row["since"])) * TICK_S
        if (rank := self.held_rank(progress)) is None:
            return 0.0
        phase = self.state.workers["phase"][self.workers(progress)[rank]]
        ready = int(row["iteration_start"]) + (int(row["forward"]) if phase == BACKWARD else 0)
        return max(0, now - ready) * TICK_S

    def transferring(self) -> dict[str, int]:
        """Of each job that transfers, the tick at which that began."""
        rows = {name: self.state.jobs[progress.row] for name, progress in self.progress_of.items()}
        return {name: int(row["since"]) for name, row in rows.items() if row["stage"] == TRANSFERRING}

    def workers(self, progress: JobProgress) -> list[int]:
        """The engine's workers that a job's ranks are, in order."""
        first = int(self.state.jobs[progress.row]["first_worker"])
        return list(range(first, first + progress.gpus))

    def shares(self, progress: JobProgress, rank: int) -> bool:
        """True if another job is on the rank's GPU."""
        s = self.state
        w = self.workers(progress)[rank]
        return int(s.gpus[s.workers[w]["gpu"]]["resident"]) != w or int(s.workers[w]["next"]) != NONE

    def parts(self, progress: JobProgress) -> TimeParts:
        """Seconds of the job's time, until it has been preempted or resized, by what they went into."""
        if progress.parts_at_leaving is not None:
            return progress.parts_at_leaving
        row = self.state.jobs[progress.row]
        computing = (progress.iterations_done - progress.iterations_before) * (
            row["forward"] + row["backward"]
        )
        # Where a rank computed shorter than its job says, waiting would be negative.
        short = min(0, int(row["gpu_wait"]))
        seconds = [int(computing) + short, int(row["gpu_wait"]) - short]
        seconds += [int(row["transferring"]), int(row["network_wait"])]
        return TimeParts(*(max(0, ticks) * TICK_S for ticks in seconds))
