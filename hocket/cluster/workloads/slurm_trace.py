"""Slurm's accounting (``sacct --parsable2``): what a cluster's own jobs were.

Columns, by name, in any order, with ``|`` between them: ``JobID``; ``State``; ``Submit``; ``AllocTRES`` or
``ReqTRES``, such as ``billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,node=1``; and ``ElapsedRaw`` (seconds),
``Elapsed`` (``1-02:03:04``) or ``Start`` and ``End``. Times are local, as 2026-01-31T18:41:01, or with a zone
or seconds since 1970 (SLURM_TIME_FORMAT), or Unknown, None or empty. Read where they are there: ``User``, or
``Account``, ``Partition`` or ``QOS`` in its place; ``Priority``; ``QOS``, where priorities of its names are
given. They come, for example, from

    sacct -a -D --parsable2 -S 2026-01-01 -E now \\
        -o JobID,User,Account,Partition,QOS,Priority,State,Submit,ElapsedRaw,AllocTRES

``12.batch``, ``12.extern``, ``12.0`` are steps of job 12, which is counted as a whole; ``12_7`` is a task of
an array, a job like others; ``12+0`` and ``12+1`` are parts of one heterogeneous job.

Assumed: jobs that have ended count whatever their state unless only completed ones are asked for, because
they held their GPUs; those without a GPU, that never began or that are not over are left out. Records of one
id are runs of one job, which was requeued: it arrives with the first submission, takes the time of all (or of
the last) and the GPUs of the largest, and ended as the last did. A heterogeneous job wants the GPUs of all
its parts. A part of a GPU (MIG) is one. The model is not known: one of the contention paper's Table III is
drawn. A job that says a type of GPU, ``gres/gpu:a100``, runs on that alone. A priority is Slurm's as last
computed, its age in the queue and fair share included.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hocket.cluster.workloads.slurm_records import FINISHED, USERS, SlurmJob, SlurmRecords
from hocket.cluster.workloads.trace_jobs import (
    ImportedJobs,
    TraceRequest,
    check_qos,
    job_of_duration,
    job_set,
    model_draws,
    ranked,
    speeds_on,
)
from hocket.cluster.workloads.trace_notes import (
    DRAWN_NOTE,
    DURATION_NOTE,
    Tally,
    qos_note,
    typed_note,
    user_note,
)
from hocket.text import counted


def import_slurm(request: TraceRequest) -> ImportedJobs:
    """The jobs of ``sacct --parsable2``.

    Raises
    ------
    FormatError, UnknownNameError
        Naming the file, the line and the rule; for a user that is no column, a quality of service of no job.
    """
    records = SlurmRecords(request)
    records.read()
    tally = Tally(request, FINISHED)
    for reason in records.reasons():
        tally.leave_out(reason)
    drawn = zip(records.found.items(), model_draws(request.seed), strict=False)
    taken = [(name, job, model) for (name, job), model in drawn if tally.takes(job.state())]
    check_qos(request, {job.qos for job in records.found.values()})
    priorities, by_rank = _priorities(request, [job for _, job, _ in taken])
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
            priority=priority,
        )
        for (name, job, model), priority in zip(taken, priorities, strict=True)
    ]
    imported = job_set(jobs, request)
    users = user_note(records.field, [name for name in USERS if name in records.columns], imported)
    notes = (*_notes(request, records, by_rank), users, *typed_note(jobs), *tally.notes())
    return ImportedJobs(imported, notes)


def _priorities(request: TraceRequest, jobs: Sequence[SlurmJob]) -> tuple[list[int], bool]:
    """The priorities of jobs, and whether they are ranks."""
    if request.qos is not None:
        return [request.qos.get(job.qos, 0) for job in jobs], False
    return ranked([job.priority for job in jobs])


def _notes(request: TraceRequest, records: SlurmRecords, by_rank: bool) -> list[str]:
    """Lines on what was assumed."""
    again = sum(any(part.runs > 1 for part in job.parts.values()) for job in records.found.values())
    several = sum(len(job.parts) > 1 for job in records.found.values())
    held = "AllocTRES" if "AllocTRES" in records.columns else "ReqTRES, as many as were asked for"
    lines = [
        DRAWN_NOTE,
        DURATION_NOTE,
        f"GPUs are gres/gpu of {held}; a part of a GPU (MIG) counts as one",
        "Slurm gives a GPU to one job: simulate with --exclusive to keep it so",
    ]
    if again:
        time = "of the last" if request.attempts == "last" else "of all runs (--attempts last: of the last)"
        lines.append(f"{counted(again, 'job')} with several records taken for requeued, with the time {time}")
    if several:
        lines.append(f"{counted(several, 'job')} heterogeneous, with the GPUs of all parts")
    return lines + _priority_note(request, records, by_rank)


def _priority_note(request: TraceRequest, records: SlurmRecords, by_rank: bool) -> list[str]:
    if request.qos is not None:
        return [qos_note(request.qos)]
    if "Priority" in records.columns:
        are = "the ranks of Slurm's Priority" if by_rank else "Slurm's Priority"
        return [
            f"priorities are {are}, as last computed, and come before a policy's order (without the"
            " column jobs have none; --qos NAME=PRIORITY,...: by QOS)"
        ]
    return []
