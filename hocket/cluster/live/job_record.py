"""A job as a cluster's database has it: a row, and what the manager knows by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from hocket.cluster.jobs import Job
from hocket.cluster.live.runnable_jobs import LiveJob

JobState = Literal["queued", "running", "finished", "failed", "cancelled"]
OVER: tuple[JobState, ...] = ("finished", "failed", "cancelled")

MOST_TRIED = 20


class Tried(msgspec.Struct, frozen=True, array_like=True):
    """An attempt that is over and was followed, or is to be, by another one; ``why``: how it ended."""

    gpus: tuple[int, ...]
    start_s: float
    end_s: float
    why: str


class Leaving(msgspec.Struct, frozen=True, array_like=True):
    """A preemption or a resize under way: since when, and why, the last attempt's ranks are to save and end.

    ``asked``: whether they have been told; before that one that ends does so by itself. ``gpus``: of a resize
    those with which the job goes on.
    """

    since_s: float
    why: str
    asked: bool = False
    gpus: tuple[int, ...] = ()


@dataclass(kw_only=True)
class Record:
    """A job as the database has it; times in seconds since the cluster's beginning.

    ``attempt``: how often it was started; ``iteration``: how many are over, counted in those of the last
    attempt, whose GPUs are ``gpus``;
    ``parts``: seconds that it computed, waited for GPUs, transferred and waited for the network in all.
    ``cancelled``: it is to end, if it has not; ``lost_attempts``: how many ended because a node was gone,
    ``own_failures``: because its own processes failed; ``placed_s``: when the last one began, ``tried``:
    those before, the newest of them; ``preempted``: how many ended because the job left its GPUs to another,
    ``shrunk``, ``grown``: because it went on with fewer GPUs, or with more; ``leaving``: what the last one
    is about to end for. ``busy_gpu_s``: seconds that its GPUs computed together.
    """

    number: int
    job: LiveJob
    state: JobState = "queued"
    arrival_s: float
    start_s: float | None = None
    finish_s: float | None = None
    attempt: int = 0
    iteration: int = 0
    gpus: tuple[int, ...] = ()
    parts: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    why: str = ""
    cancelled: bool = False
    lost_attempts: int = 0
    own_failures: int = 0
    placed_s: float | None = None
    tried: tuple[Tried, ...] = ()
    preempted: int = 0
    leaving: Leaving | None = None
    shrunk: int = 0
    grown: int = 0
    busy_gpu_s: float = 0.0

    @property
    def over(self) -> bool:
        """True if nothing is going to happen to it any more."""
        return self.state in OVER

    @property
    def num_gpus(self) -> int:
        """The GPUs of the last attempt; before the first one the most that it may have."""
        return len(self.gpus) or self.job.gpus

    @property
    def iterations(self) -> int:
        """The job's iterations on so many GPUs."""
        return self.job.iterations_on(self.num_gpus)

    @property
    def is_last_tried(self) -> bool:
        """True if the last attempt is among those that were tried: another one was to follow it."""
        return bool(self.tried) and self.tried[-1].start_s == self.placed_s

    @property
    def retries(self) -> int:
        """The attempts that failed and that another one follows, or was to follow."""
        followed = self.attempt - (not self.is_last_tried)
        return max(0, followed - self.preempted - self.shrunk - self.grown)

    def take_gpus(self, gpus: Sequence[int]) -> None:
        """Let its next attempt have these GPUs: what is over is counted in iterations of so many."""
        work = self.iteration * self.num_gpus
        self.gpus = tuple(gpus)
        self.iteration = min(work // self.num_gpus, self.iterations)


def wanted_text(job: Job) -> str:
    """The number of GPUs that a job is to have, or its range."""
    return f"{job.gpus}" if job.fewest_gpus == job.gpus else f"{job.fewest_gpus} to {job.gpus}"


def share_text(record: Record) -> str:
    """The number of GPUs that a job has of those that it may have; empty where that is no choice."""
    job = record.job
    return "" if job.fewest_gpus == job.gpus else f"{len(record.gpus)} of {wanted_text(job)} GPUs"


def row_of(record: Record) -> tuple[Any, ...]:
    """The values of a job's row in the database, in the order of its columns."""
    return (
        record.number,
        record.job.id,
        msgspec.json.encode(record.job).decode(),
        record.state,
        record.arrival_s,
        record.start_s,
        record.finish_s,
        record.attempt,
        record.iteration,
        msgspec.json.encode(record.gpus).decode(),
        msgspec.json.encode(record.parts).decode(),
        record.why,
        int(record.cancelled),
        record.lost_attempts,
        record.own_failures,
        record.placed_s,
        msgspec.json.encode(record.tried).decode(),
        record.preempted,
        msgspec.json.encode(record.leaving).decode(),
        record.shrunk,
        record.grown,
        record.busy_gpu_s,
    )


def record_of(row: tuple[Any, ...]) -> Record:
    """The job of a row of the database; ValueError where it is not one."""
    number, _, job, state, arrival_s, start_s, finish_s, attempt, iteration = row[:9]
    gpus, parts, why, cancelled, lost, own_failures, placed_s, tried, preempted, leaving = row[9:19]
    shrunk, grown, busy_gpu_s = row[19:]
    return Record(
        number=number,
        job=msgspec.json.decode(job, type=LiveJob),
        state=state,
        arrival_s=arrival_s,
        start_s=start_s,
        finish_s=finish_s,
        attempt=attempt,
        iteration=iteration,
        gpus=msgspec.json.decode(gpus, type=tuple[int, ...]),
        parts=msgspec.json.decode(parts, type=tuple[float, float, float, float]),
        why=why,
        cancelled=bool(cancelled),
        lost_attempts=lost,
        own_failures=own_failures,
        placed_s=placed_s,
        tried=msgspec.json.decode(tried, type=tuple[Tried, ...]),
        preempted=preempted,
        leaving=msgspec.json.decode(leaving, type=Leaving | None),
        shrunk=shrunk,
        grown=grown,
        busy_gpu_s=busy_gpu_s,
    )
