"""Jobs from what a trace knows of them, and what an importer has to say about that."""

from __future__ import annotations

import heapq
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from hocket.cluster.gpu_type import is_type_name
from hocket.cluster.jobs import Job, JobSet, is_user_name
from hocket.cluster.workloads.trained_models import TABLE_III, ModelProfile
from hocket.errors import FormatError, UnknownNameError

States = Literal["all", "finished"]
Attempts = Literal["all", "last"]

_NOT_IN_USERS = re.compile(r"[ ,=*]")
_DRAWN_AT_ONCE = 4096
GPU_BYTES = 16e9
"""The memory of a GPU where a part of one has as large a part of it."""
_HIGHEST_PRIORITY = 10**9


class ImportedJobs(NamedTuple):
    """A trace as jobs, and what had to be assumed for that, a line each."""

    jobs: JobSet
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class TraceRequest:
    """A trace to import.

    Attributes
    ----------
    path : the trace.
    limit : only so many jobs, those that arrive first.
    seed : decides what a trace leaves open and is drawn.
    user : the column or field whose value is a job's user, such as a virtual cluster; None: the trace's user.
    states : "finished": only jobs that succeeded; "all": also those that failed, were cancelled or cut off.
    attempts : of a job that ran several times, "all": their time together; "last": the last one's.
    qos : the priority of each quality of service; others have 0. None: the importer's own.
    job_table : Alibaba's ``pai_job_table.csv``, beside its task table.
    throughputs, gpu : Gavel's measurements, and the device among them, None: all.
    """

    path: Path
    limit: int | None = None
    seed: int = 0
    user: str | None = None
    states: States = "all"
    attempts: Attempts = "all"
    qos: Mapping[str, int] | None = None
    job_table: Path | None = None
    throughputs: Path | None = None
    gpu: str | None = None


def model_draws(seed: int) -> Iterator[ModelProfile]:
    """Models of Table III without end, for jobs of a trace that does not say what they trained."""
    rng = np.random.default_rng(seed)
    while True:
        yield from (TABLE_III[k] for k in rng.integers(len(TABLE_III), size=_DRAWN_AT_ONCE))


def job_of_duration(name: str, gpus: int, arrival_s: float, duration_s: float, model: ModelProfile) -> Job:
    """A job that trains ``model`` and, alone in one server, is over after ``duration_s``, rounded."""
    iteration_s = model.forward_s + model.backward_s
    return Job(
        id=name,
        model=model.name,
        gpus=gpus,
        iterations=max(1, round(duration_s / iteration_s)),
        arrival_s=arrival_s,
        forward_s=model.forward_s,
        backward_s=model.backward_s,
        size_bytes=model.size_bytes,
        memory_bytes=model.memory_bytes,
    )


def user_named(name: str | None) -> str:
    """The user of a trace as jobs have it: '_' for signs that may not be in names; "" where there is none."""
    kept = _NOT_IN_USERS.sub("_", (name or "").strip())
    return kept if is_user_name(kept) else ""


def user_field(request: TraceRequest, known: Sequence[str]) -> str:
    """The one of the ``known`` columns that says whose a job is, the first of them unless another is asked.

    Raises
    ------
    UnknownNameError
        If another is asked for.
    """
    by_name = {name.lower(): name for name in known}
    if request.user is not None and request.user.lower() not in by_name:
        raise UnknownNameError("user: column", request.user, list(known))
    return known[0] if request.user is None else by_name[request.user.lower()]


def ranked(priorities: Sequence[float]) -> tuple[list[int], bool]:
    """Priorities as jobs have them, and whether they are ranks because some are no whole number up to 1e9."""
    if all(each == int(each) and each <= _HIGHEST_PRIORITY for each in priorities):
        return [int(each) for each in priorities], False
    rank = {each: place for place, each in enumerate(sorted(set(priorities)))}
    return [rank[each] for each in priorities], True


def check_qos(request: TraceRequest, found: Collection[str]) -> None:
    """Refuse a priority for a quality of service that no job has; raises UnknownNameError."""
    for name in request.qos or {}:
        if name not in found:
            raise UnknownNameError("quality of service", name, sorted(found))


def speeds_on(types: Collection[str]) -> dict[str, float]:
    """The speeds of a job on the one type of GPU that it had; none if it had several: on any, as it took."""
    names = [name.lower() for name in types]
    return {names[0]: 1.0} if len(names) == 1 and is_type_name(names[0]) else {}


def job_set(jobs: Iterable[Job], request: TraceRequest) -> JobSet:
    """``jobs`` by arrival, the first ``limit`` of them, the clock set to 0 at the first arrival.

    Raises
    ------
    FormatError
        Naming the trace, if there is no job in it that used a GPU, or one that breaks a rule of jobs.
    """
    source = str(request.path)
    if request.limit is None:
        kept = sorted(jobs, key=_arrival_s)
    else:  # no more than so many are held at a time
        kept = heapq.nsmallest(request.limit, jobs, key=_arrival_s)
    if not kept:
        raise FormatError(source, "", "holds no job that used a GPU for some time")
    begin_s = kept[0].arrival_s
    shifted = (msgspec.structs.replace(job, arrival_s=job.arrival_s - begin_s) for job in kept)
    return JobSet(jobs=tuple(shifted), source=source)


def _arrival_s(job: Job) -> float:
    return job.arrival_s
