"""Slurm's accounting (``sacct --parsable2``): what a cluster's own jobs were.

Columns, by name, in any order, with ``|`` between them: ``JobID``; ``State``; ``Submit``; ``AllocTRES`` or
``ReqTRES``, such as ``billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,node=1``; and ``ElapsedRaw`` (seconds),
``Elapsed`` (``1-02:03:04``) or ``Start`` and ``End``. Times are local, as 2026-01-31T18:41:01, or Unknown,
None or empty. ``User`` is read where it is there, others are not. They come, for example, from

    sacct -a -D --parsable2 -S 2026-01-01 -E now -o JobID,User,State,Submit,ElapsedRaw,AllocTRES

``12.batch``, ``12.extern``, ``12.0`` are steps of job 12, which is counted as a whole; ``12_7`` is a task of
an array, a job like others; ``12+0`` and ``12+1`` are parts of one heterogeneous job.

Assumed: jobs that have ended count whatever their state, because they held their GPUs; those without a GPU,
that never began or that are not over are left out. Records of one id are runs of one job, which was requeued:
it arrives with the first submission, takes the time of all and the GPUs of the largest. A heterogeneous job
wants the GPUs of all its parts. A part of a GPU (MIG) is one. The model is not known: one of the contention
paper's Table III is drawn. A job that says a type of GPU, ``gres/gpu:a100``, runs on that alone.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

import msgspec

from hocket.cluster.workloads.trace_rows import (
    DRAWN_NOTE,
    DURATION_NOTE,
    ImportedJobs,
    TraceRequest,
    TraceRow,
    draw_models,
    job_of_duration,
    job_set,
    read_rows,
    skipped_note,
    speeds_on,
    typed_note,
    user_named,
)

_NEEDED = ("JobID", "State", "Submit")
_JOB = re.compile(r"(?P<job>\d+(?:_\d+)?)(?:\+(?P<part>\d+))?", re.ASCII)
_WAITING_TASKS = re.compile(r"\d+_\[[^\]]*\]?(?:\.\.\.)?", re.ASCII)
_ELAPSED = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?", re.ASCII)
_GPU = re.compile(r"gres/gpu(?P<type>:[^=]*)?=(?P<count>\d+)", re.ASCII)
_NOT_KNOWN = ("", "Unknown", "None", "N/A")
_NOT_OVER = ("PENDING", "RUNNING", "SUSPENDED", "RESIZING", "REVOKED", "CONFIGURING", "COMPLETING", "STOPPED")
_NO_GPU, _NEVER_BEGAN, _STILL_THERE = "no GPU", "never began", "not over, or another cluster's"


@dataclass
class _Part:
    """A job, or one part of a heterogeneous one, over all its runs."""

    gpus: int = 0
    duration_s: float = 0.0
    runs: int = 0


@dataclass
class _Found:
    """A job as its records say it."""

    submit_s: float
    user: str
    parts: dict[str, _Part] = field(default_factory=dict)
    types: set[str] = field(default_factory=set)


def import_slurm(request: TraceRequest) -> ImportedJobs:
    """The jobs of ``sacct --parsable2``.

    Raises
    ------
    FormatError
        Naming the file, the line and the rule.
    """
    found: dict[str, _Found] = {}
    left_out: dict[str, str] = {}
    columns: set[str] = set()
    for row in read_rows(request.path, _NEEDED, delimiter="|"):
        if not columns:
            columns = set(row.cells)
            _check_columns(row)
        name = row.cells["JobID"]
        if "." in name.partition("[")[0]:
            continue
        reason = _take(row, name, found)
        if reason:
            left_out[name.partition("+")[0]] = reason
    models = draw_models(len(found), request.seed)
    jobs = [
        msgspec.structs.replace(
            job_of_duration(
                name,
                sum(part.gpus for part in job.parts.values()),
                job.submit_s,
                max(part.duration_s for part in job.parts.values()),
                model,
            ),
            user=job.user,
            speeds=speeds_on(job.types),
        )
        for (name, job), model in zip(found.items(), models, strict=True)
    ]
    reasons = Counter(reason for name, reason in left_out.items() if name not in found)
    return ImportedJobs(job_set(jobs, request), (*_notes(found, reasons, columns), *typed_note(jobs)))


def _notes(found: dict[str, _Found], reasons: Counter[str], columns: set[str]) -> tuple[str, ...]:
    again = sum(any(part.runs > 1 for part in job.parts.values()) for job in found.values())
    several = sum(len(job.parts) > 1 for job in found.values())
    held = "AllocTRES" if "AllocTRES" in columns else "ReqTRES, as many as were asked for"
    return (
        DRAWN_NOTE,
        DURATION_NOTE,
        f"GPUs are gres/gpu of {held}; a part of a GPU (MIG) counts as one",
        "jobs of every final state are kept, cancelled ones too if they had begun: they held their GPUs",
        "Slurm gives a GPU to one job: simulate with --exclusive to keep it so",
        *([f"{again} with several records taken for requeued, with the time of all runs"] if again else []),
        *([f"{several} heterogeneous, with the GPUs of all parts"] if several else []),
        *(line for reason, count in sorted(reasons.items()) for line in skipped_note(count, reason)),
    )


def _check_columns(row: TraceRow) -> None:
    """Refuse records that do not say what GPUs a job had, or for how long."""
    if not {"AllocTRES", "ReqTRES"} & set(row.cells):
        row.refuse("AllocTRES", "is no column, nor is ReqTRES; give sacct -o ...,AllocTRES")
    if not ({"ElapsedRaw", "Elapsed"} & set(row.cells) or {"Start", "End"} <= set(row.cells)):
        row.refuse("ElapsedRaw", "is no column, nor Elapsed, nor Start and End; give sacct -o ...,ElapsedRaw")


def _take(row: TraceRow, name: str, found: dict[str, _Found]) -> str:
    """Add a record to the jobs found; why it is left out, or nothing."""
    state = row.cells["State"].partition(" ")[0].rstrip("+")
    if state in _NOT_OVER:
        return _STILL_THERE
    if _WAITING_TASKS.fullmatch(name):
        return _NEVER_BEGAN  # an array's tasks that were cancelled together
    matched = _JOB.fullmatch(name)
    if matched is None:
        row.refuse("JobID", f"'{name}' is not a job like 12, 12_7 or 12+0, nor a step like 12.batch")
    duration_s = _duration_s(row)
    if not duration_s:
        return _NEVER_BEGAN
    gpus, types = _gpus(row.cells.get("AllocTRES") or row.cells.get("ReqTRES", ""))
    if not gpus:
        return _NO_GPU
    submit_s = row.moment("Submit")
    job = found.setdefault(matched["job"], _Found(submit_s, user_named(row.cells.get("User"))))
    job.submit_s = min(job.submit_s, submit_s)
    job.types |= types
    part = job.parts.setdefault(matched["part"] or "", _Part())
    part.gpus, part.duration_s, part.runs = max(part.gpus, gpus), part.duration_s + duration_s, part.runs + 1
    return ""


def _gpus(resources: str) -> tuple[int, set[str]]:
    """The GPUs among trackable resources, their sum where it is given, or that of the types; and these."""
    total, of_types = 0, Counter[str]()
    for resource in resources.split(","):
        if (matched := _GPU.fullmatch(resource.strip())) is not None:
            if matched["type"]:
                of_types[matched["type"][1:]] += int(matched["count"])
            else:
                total = int(matched["count"])
    return total or of_types.total(), set(+of_types)


def _duration_s(row: TraceRow) -> float:
    """Seconds for which a job had its resources; 0 where it never did."""
    if row.cells.get("ElapsedRaw", "") not in _NOT_KNOWN:
        return row.number("ElapsedRaw")
    if (text := row.cells.get("Elapsed", "")) not in _NOT_KNOWN:
        matched = _ELAPSED.fullmatch(text)
        if matched is None:
            row.refuse("Elapsed", f"'{text}' is not a time like 1-02:03:04")
        days, hours, minutes, seconds = (int(part or 0) for part in matched.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    if any(row.cells.get(column, "") in _NOT_KNOWN for column in ("Start", "End")):
        return 0.0
    return max(0.0, row.moment("End") - row.moment("Start"))
