"""Alibaba's GPU trace of 2020 (``pai_task_table.csv``; Weng et al., NSDI 2022).

Columns, with or without a header: ``job_name``; ``task_name``, such as worker or ps; ``inst_num``, the
task's instances; ``status`` (Running, Terminated, Failed, Waiting); ``start_time`` and ``end_time``, seconds
(missing or 0: not known); ``plan_cpu``; ``plan_mem``; ``plan_gpu``, percent of a GPU for each instance
(missing: none); ``gpu_type``. Read are all but ``task_name``, ``plan_cpu``, ``plan_mem``.

The job table, ``pai_job_table.csv``, if it is given: ``job_name``; ``inst_id``; ``user``; ``status``;
``start_time``, the submission; ``end_time``. Read are the name, the user, the status and the submission.

Assumed: a job is its tasks with GPUs that have a beginning and an end; the others are left out. It arrives
when it was submitted, or without a job table when the first of its tasks was launched, and runs from that
launch until the last task has ended. Without a job table it has no user, and failed if one of its tasks did.
Each instance takes its GPUs rounded up; one that asked for less than a whole GPU has as much of a GPU's
memory (16 GB) as its part, so that others may share the GPU, and one that asked for a whole GPU has all. What
was trained is not known: times and size are those of a model of the contention paper's Table III, drawn. A
job whose tasks say one type of GPU runs on that alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from hocket.cluster.jobs import Job
from hocket.cluster.workloads.trace_jobs import (
    GPU_BYTES,
    ImportedJobs,
    TraceRequest,
    job_of_duration,
    job_set,
    model_draws,
    speeds_on,
    user_named,
)
from hocket.cluster.workloads.trace_notes import (
    DRAWN_NOTE,
    DURATION_NOTE,
    PART_NOTE,
    Tally,
    typed_note,
)
from hocket.cluster.workloads.trace_rows import Table, TraceRow, read_rows
from hocket.cluster.workloads.trained_models import ModelProfile
from hocket.text import counted

_TASKS = Table(
    (
        *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
        *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
    ),
    header=None,
    needed=("job_name", "inst_num", "status", "start_time", "end_time", "plan_gpu"),
)
_JOBS = Table(
    ("job_name", "inst_id", "user", "status", "start_time", "end_time"),
    header=None,
    needed=("job_name", "user", "status", "start_time"),
)
_FINISHED, _FAILED = "Terminated", "Failed"


@dataclass
class _Tasks:
    """A job's tasks with GPUs so far, and what the job table says of it."""

    gpus: int = 0
    start_s: float = math.inf
    end_s: float = 0.0
    share: float = 0.0
    types: set[str] = field(default_factory=set)
    status: str = _FINISHED
    user: str = ""
    submitted_s: float | None = None


def import_alibaba(request: TraceRequest) -> ImportedJobs:
    """The jobs of Alibaba's task table.

    Raises
    ------
    FormatError
        Naming the file, the line and the rule.
    """
    tally = Tally(request, _FINISHED)
    found = _tasks(request.path, tally)
    submitted = (
        "jobs arrive with the launch of their first task and have no user: --job-table FILE says when they"
        " were submitted, and by whom"
    )
    if request.job_table is not None:
        unknown = _look_up(found, request.job_table)
        submitted = "jobs arrive when they were submitted, and belong to their user, as the job table says"
        if unknown:
            submitted += f"; {counted(unknown, 'job')} not in it: with the first task, of no user"
    drawn = zip(found.items(), model_draws(request.seed), strict=False)
    jobs = [_job(name, tasks, model) for (name, tasks), model in drawn if tally.takes(tasks.status)]
    notes = (
        DRAWN_NOTE.replace(", size and memory", " and size"),
        DURATION_NOTE + ", from the launch of the first task with GPUs to the end of the last",
        submitted,
        PART_NOTE,
        *typed_note(jobs),
        *tally.notes(),
    )
    return ImportedJobs(job_set(jobs, request), notes)


def _tasks(path: Path, tally: Tally) -> dict[str, _Tasks]:
    """The tasks with GPUs that are over, by job; jobs without any are left out."""
    found: dict[str, _Tasks] = {}
    without: set[str] = set()
    for row in read_rows(path, _TASKS):
        name = row.cells["job_name"]
        if not name:
            row.refuse("job_name", "is empty; name the job")
        start_s, end_s, percent = (
            row.number_or_zero(column) for column in ("start_time", "end_time", "plan_gpu")
        )
        status = row.cells["status"]
        over = status in (_FINISHED, _FAILED) and start_s and end_s > start_s
        if not over or not percent:
            without.add(name)
            continue
        tasks = found.setdefault(name, _Tasks())
        tasks.gpus += row.whole("inst_num", 1) * math.ceil(percent / 100)
        tasks.start_s, tasks.end_s = min(tasks.start_s, start_s), max(tasks.end_s, end_s)
        if row.cells.get("gpu_type"):
            tasks.types.add(row.cells["gpu_type"])
        tasks.share = max(tasks.share, min(1.0, percent / 100))
        if status == _FAILED:
            tasks.status = _FAILED
    for _ in without - found.keys():
        tally.leave_out("no task with a GPU that has begun and is over")
    return found


def _look_up(found: dict[str, _Tasks], job_table: Path) -> int:
    """Add what the job table says; the number of jobs that are not in it."""
    unknown = set(found)
    for row in read_rows(job_table, _JOBS):
        tasks = found.get(row.cells["job_name"])
        if tasks is None:
            continue
        unknown.discard(row.cells["job_name"])
        tasks.user, tasks.status = user_named(row.cells["user"]), row.cells["status"]
        tasks.submitted_s = _submission(row, tasks)
    return len(unknown)


def _submission(row: TraceRow, tasks: _Tasks) -> float:
    submitted_s = row.number_or_zero("start_time")
    return submitted_s if 0 < submitted_s <= tasks.start_s else tasks.start_s


def _job(name: str, tasks: _Tasks, model: ModelProfile) -> Job:
    arrival_s = tasks.start_s if tasks.submitted_s is None else tasks.submitted_s
    job = job_of_duration(name, tasks.gpus, arrival_s, tasks.end_s - tasks.start_s, model)
    return msgspec.structs.replace(
        job, memory_bytes=tasks.share * GPU_BYTES, speeds=speeds_on(tasks.types), user=tasks.user
    )
