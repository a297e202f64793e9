"""Alibaba's GPU trace of 2020 (``pai_task_table.csv``; Weng et al., NSDI 2022).

Columns, with or without a header: ``job_name``; ``task_name``, such as worker or ps; ``inst_num``, the
task's instances; ``status`` (Running, Terminated, Failed, Waiting); ``start_time`` and ``end_time``, seconds
(missing or 0: not known); ``plan_cpu``; ``plan_mem``; ``plan_gpu``, percent of a GPU for each instance
(missing: none); ``gpu_type``. Read are all but ``task_name``, ``plan_cpu``, ``plan_mem``.

Assumed: a job is its tasks with GPUs that have a beginning and an end; the others are left out. It arrives
when the first of them was launched (the submission is in another table), and runs until the last has ended.
Each instance takes its GPUs rounded up; one that asked for less than a whole GPU has as much of a GPU's
memory (16 GB) as its part, so that others may share the GPU, and one that asked for a whole GPU has all. What
was trained is not known: times and size are those of a model of the contention paper's Table III, drawn. A
job whose tasks say one type of GPU runs on that alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import msgspec

from hocket.cluster.workloads.trace_rows import (
    DRAWN_NOTE,
    DURATION_NOTE,
    ImportedJobs,
    TraceRequest,
    draw_models,
    job_of_duration,
    job_set,
    read_rows,
    skipped_note,
    speeds_on,
    typed_note,
)

_COLUMNS = (
    *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
    *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
)
_NEEDED = ("job_name", "inst_num", "status", "start_time", "end_time", "plan_gpu")
_GPU_BYTES = 16e9
_OVER = ("Terminated", "Failed")


@dataclass
class _Tasks:
    """A job's tasks with GPUs so far."""

    gpus: int = 0
    start_s: float = math.inf
    end_s: float = 0.0
    share: float = 0.0
    types: set[str] = field(default_factory=set)


def import_alibaba(request: TraceRequest) -> ImportedJobs:
    """The jobs of Alibaba's task table.

    Raises
    ------
    FormatError
        Naming the file, the line and the rule.
    """
    found: dict[str, _Tasks] = {}
    names: set[str] = set()
    for row in read_rows(request.path, _COLUMNS, header=None, needed_columns=_NEEDED):
        name = row.cells["job_name"]
        names.add(name)
        start_s, end_s, percent = (
            row.number_or_zero(column) for column in ("start_time", "end_time", "plan_gpu")
        )
        if row.cells["status"] not in _OVER or not percent or not start_s or not end_s or end_s <= start_s:
            continue
        tasks = found.setdefault(name, _Tasks())
        tasks.gpus += row.whole("inst_num", 1) * math.ceil(percent / 100)
        tasks.start_s, tasks.end_s = min(tasks.start_s, start_s), max(tasks.end_s, end_s)
        if row.cells.get("gpu_type"):
            tasks.types.add(row.cells["gpu_type"])
        tasks.share = max(tasks.share, min(1.0, percent / 100))
    models = draw_models(len(found), request.seed)
    jobs = [
        msgspec.structs.replace(
            job_of_duration(name, tasks.gpus, tasks.start_s, tasks.end_s - tasks.start_s, model),
            memory_bytes=tasks.share * _GPU_BYTES,
            speeds=speeds_on(tasks.types),
        )
        for (name, tasks), model in zip(found.items(), models, strict=True)
    ]
    notes = (
        DRAWN_NOTE.replace(", size and memory", " and size"),
        DURATION_NOTE + ", from the launch of the first task with GPUs to the end of the last",
        "jobs arrive with the launch of their first task: when they were submitted is in another table",
        "an instance with a part of a GPU takes that part of a GPU's 16 GB; one with a whole GPU all of it",
        *typed_note(jobs),
        *skipped_note(len(names) - len(jobs), "no task with a GPU that has begun and is over"),
    )
    return ImportedJobs(job_set(jobs, request), notes)
