"""The engine, driven by what ranks say: the same functions that the simulator's clock calls, in its order.

It does no I/O and knows no clock. Ranks count: a worker has ended so many tasks, two an iteration, a job has
transferred so many iterations. The engine follows these counts, so a message that was lost, or
a rank that went ahead while nobody answered, is made up for by the next one.

A rank that runs a program of its own corresponds to the engine's tasks as follows: computing ends with the
first gradients, from then on it transfers. Its next step may begin while the last one's transfers are under
way, unless it shares a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.engine import submit
from hocket.cluster.engine.gpu_numbers import take_number
from hocket.cluster.engine.interruptions import stop_job
from hocket.cluster.engine.placing import finish_jobs, place_on
from hocket.cluster.engine.records import FINISHED, NEVER, NONE, QUEUED, SUBMITTED, TRANSFERRING
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.engine.state_parts import network_state
from hocket.cluster.engine.transfer_progress import reset, update_progress
from hocket.cluster.engine.transfers import stop_transfer
from hocket.cluster.jobs import Job
from hocket.cluster.live.actions import Actions
from hocket.cluster.live.engine_decisions import decide
from hocket.cluster.live.engine_rows import TICK_S, EngineRows
from hocket.cluster.live.job_progress import TimeParts


class Driver(EngineRows):
    """The jobs of a cluster; ``now_s`` in every method is since the cluster's beginning and never less."""

    def arrive(self, job: str) -> None:
        """A job that was added is to be placed from the next decision on."""
        self.arrived_jobs.append(self.progress_of[job])

    def adopt(self, job: str, gpus: Sequence[int], now_s: float) -> None:
        """A job that was added runs already, on these GPUs."""
        s, progress = self.state, self.progress_of[job]
        submit(s.jobs, s.queue, s.counts, s.needs, self.rules, progress.row)
        self.leave_queue(progress.row)
        self.take_number(progress, len(gpus))
        s.sites.chosen[: len(gpus)] = sorted(gpus)
        place_on(s, self.rules, progress.row, _tick(now_s))

    def leave(self, job: str, num_gpus: int, goes_on_with: Sequence[int], now_s: float) -> None:
        """A job that was added runs already, on so many GPUs, and is leaving these.

        goes_on_with: the GPUs that it has then, of which nobody else may have any; none if it was preempted.
        """
        progress = self.progress_of[job]
        if goes_on_with:
            self.adopt(job, goes_on_with, now_s)
            stop_job(self.state, progress.row, _tick(now_s))
        else:
            take_number(self.state.jobs, progress.row, num_gpus)
        progress.take_number(num_gpus, int(self.state.jobs[progress.row]["work_kept"]) // num_gpus)
        self.begin_leaving(progress)

    def add_rank(self, job: str, rank: int, iteration: int) -> None:
        """A rank talks to us; ``iteration`` of it are over, more or less than we knew."""
        progress = self.progress_of[job]
        progress.connected_ranks.add(rank)
        progress.reported = True
        progress.tasks_ended[rank] = max(progress.tasks_ended[rank], 2 * iteration)
        if rank == 0:
            progress.iterations_transferred = max(progress.iterations_transferred, iteration)

    def remove_rank(self, job: str, rank: int) -> None:
        """A rank talks to us no longer: what it asked is void, and it may be anywhere."""
        progress = self.progress_of[job]
        progress.connected_ranks.discard(rank)
        progress.task_requests.pop(rank, None)
        if rank == 0:
            progress.transfer_request = None
        elif progress.transfer_request is not None:
            progress.tasks_ended[rank] = max(progress.tasks_ended[rank], 2 * progress.transfer_request + 2)

    def ask_compute(self, job: str, rank: int, iteration: int, part: int) -> None:
        """A rank is ready for a task; what comes before it is over."""
        progress = self.progress_of[job]
        progress.task_requests[rank] = 2 * iteration + part
        if not progress.free_running:
            progress.tasks_ended[rank] = max(progress.tasks_ended[rank], 2 * iteration + part)
            if rank == 0:
                progress.iterations_transferred = max(progress.iterations_transferred, iteration)

    def note_task_end(self, job: str, rank: int, iteration: int, part: int) -> None:
        """A rank has ended a task, and all before it."""
        progress = self.progress_of[job]
        progress.tasks_ended[rank] = max(progress.tasks_ended[rank], 2 * iteration + part + 1)

    def ask_transfer(self, job: str, iteration: int, bytes_left: int, of_bytes: int, now_s: float) -> None:
        """Rank 0 has so much of an iteration's transfer left to send."""
        progress, s, rules = self.progress_of[job], self.state, self.rules
        progress.transfer_request = iteration
        progress.iterations_transferred = max(progress.iterations_transferred, iteration)
        for rank in range(progress.gpus):
            if rank == 0 or rank not in progress.connected_ranks:  # nobody transfers before all have computed
                progress.tasks_ended[rank] = max(progress.tasks_ended[rank], 2 * iteration + 2)
        row, now = s.jobs[progress.row], _tick(now_s)
        if (
            row["stage"] != TRANSFERRING
            or progress.chunks_granted == 0
            or iteration != progress.iterations_done
        ):
            return
        # Bytes that have arrived are known now, and were estimated before.
        update_progress(s.jobs, rules, progress.row, now)
        left = row["size"] * min(1.0, bytes_left / max(1, of_bytes))
        row["bytes_sent"] += row["chunk_left"] + row["later"] - left
        reset(s.jobs, progress.row, left, rules.chunk)
        row["ranked_at"] = NONE
        if rules.preemptive:
            row["startup_left"] = rules.startup
            if not row["claims"]:
                stop_transfer(network_state(s), rules, progress.row, now)

    def note_transfer_end(self, job: str, iteration: int) -> None:
        """All that an iteration had to transfer has arrived."""
        progress = self.progress_of[job]
        progress.iterations_transferred = max(progress.iterations_transferred, iteration + 1)

    def withdraw(self, job: str, now_s: float) -> TimeParts:
        """End a job, wherever it is, as its processes are gone; returns what its time went into."""
        progress, s, now = self.progress_of.pop(job), self.state, _tick(now_s)
        row, j = s.jobs[progress.row], progress.row
        self.by_row[j] = None
        stage = row["stage"]
        if progress in self.arrived_jobs:
            self.arrived_jobs.remove(progress)
        if stage == QUEUED:
            self.leave_queue(j)
        if stage in (SUBMITTED, QUEUED):
            row["stage"] = FINISHED
            return self.parts(progress)
        stop_job(s, j, now)
        if progress in self.ending_jobs:
            self.ending_jobs.remove(progress)
        s.ended_jobs[0] = j
        s.counts[0]["over"] = 1
        finish_jobs(s, self.rules, now)
        self.has_new_room = True
        return self.parts(progress)

    def decide(self, now_s: float) -> Actions:
        """Take in what was said, and decide."""
        return Actions() if self.empty else decide(self, _tick(now_s))

    def next_stop_s(self) -> float | None:
        """The time at which the next decision is due if nothing is said until then; None: none is.

        A job may then be preempted or resized that has not been on its GPUs for long enough now.
        """
        return None if self.next_stop == NEVER else self.next_stop * TICK_S


def _tick(now_s: float) -> int:
    return round(now_s / TICK_S)


def warm() -> None:
    """Compile what decisions call, or load it: a manager must not do so while ranks wait."""
    job = Job(
        id="warm", model="", gpus=2, iterations=2, arrival_s=0.0, forward_s=1.0, backward_s=1.0,
        size_bytes=8e6, memory_bytes=1.0,
    )  # fmt: skip
    for policy in ("srpt", "ada-srsf"):
        cluster = Cluster(num_servers=2, gpus_per_server=1)
        driver = Driver(cluster, Scheduling(placement="lwf-1", policy=policy))
        driver.add([job], [0], [False], [0])
        driver.arrive("warm")
        driver.starving(0.0)
        driver.decide(0.0)
        driver.withdraw("warm", 0.5)
        driver.add([job], [0], [False], [0])
        driver.adopt("warm", [0, 1], 1.0)
        driver.decide(1.0)
        for iteration in range(2):
            for part in range(2):
                for rank in range(2):
                    driver.note_task_end("warm", rank, iteration, part)
            driver.decide(2.0)
            for left in (2, 1):
                driver.ask_transfer("warm", iteration, left, 2, 3.0)
                driver.decide(3.0)
            driver.note_transfer_end("warm", iteration)
            driver.decide(4.0)
        driver.withdraw("warm", 5.0)
    _warm_preemption(job, cluster)
    _warm_resizing(job)


def _warm_preemption(job: Job, cluster: Cluster) -> None:
    long = msgspec.structs.replace(job, id="long", iterations=100, checkpoint_s=0.0)
    driver = Driver(cluster, Scheduling(placement="lwf-1", policy="srsf-requeue", jobs_per_gpu=1))
    driver.add([long, job], [0, 0], [False, False], [0, 1])
    for now_s, each in enumerate((long, job)):
        driver.arrive(each.id)
        driver.decide(float(now_s))
    driver.withdraw(long.id, 2.0)


def _warm_resizing(job: Job) -> None:
    """A job of two GPUs gives one of them to another, and takes it again when that is over."""
    wide = msgspec.structs.replace(job, id="wide", iterations=100, checkpoint_s=0.0, gpus_min=1)
    single = msgspec.structs.replace(job, id="single", gpus=1, arrival_s=1.0)
    driver = Driver(
        Cluster(num_servers=2, gpus_per_server=1),
        Scheduling(placement="ls", policy="srsf-1", jobs_per_gpu=1, resize=True),
    )
    driver.add([wide, single], [0, 0], [False, False], [0, 1])
    for now_s, each in enumerate((wide, single)):
        driver.arrive(each.id)
        driver.decide(float(now_s))
    driver.withdraw("wide", 2.0)
    driver.add([wide], [0], [False], [0])
    driver.adopt("wide", [0], 2.0)
    driver.withdraw("single", 3.0)
    driver.decide(4.0)
