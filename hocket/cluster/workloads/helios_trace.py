"""SenseTime's Helios traces (``cluster_log.csv``; Hu et al., SC 2021).

Columns: ``job_id``; ``user``; ``vc``, the virtual cluster; ``gpu_num``; ``cpu_num``; ``node_num``; ``state``
(COMPLETED, CANCELLED, FAILED, TIMEOUT, NODE_FAIL); ``submit_time``, ``start_time``, ``end_time``, local, as
2020-06-09 18:41:01; ``duration``, seconds from start to end; ``queue``, seconds from submission to start.
Read are the id, the user or the virtual cluster, the GPUs, the state, the submission and the duration.

Assumed: jobs of every state count unless only those that succeeded are asked for, since they held their GPUs;
those without a GPU, that ended at once or that are not over (an empty duration, or None) are left out. The
models are not known: a model of the contention paper's Table III is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from hocket.cluster.jobs import Job
from hocket.cluster.workloads.trace_jobs import (
    ImportedJobs,
    TraceRequest,
    job_of_duration,
    job_set,
    model_draws,
    user_field,
    user_named,
)
from hocket.cluster.workloads.trace_notes import (
    DRAWN_NOTE,
    DURATION_NOTE,
    Tally,
    user_note,
)
from hocket.cluster.workloads.trace_rows import Table, read_rows

_NEEDED = ("job_id", "gpu_num", "submit_time", "duration")
_USERS = ("user", "vc")


def import_helios(request: TraceRequest) -> ImportedJobs:
    """The jobs of a Helios cluster.

    Raises
    ------
    FormatError, UnknownNameError
        Naming the file, the line and the rule; for a user that is no column.
    """
    field = user_field(request, _USERS)
    tally = Tally(request, "COMPLETED")
    jobs = job_set(_jobs(request, field, tally), request)
    notes = (DRAWN_NOTE, DURATION_NOTE, user_note(field, _USERS, jobs), *tally.notes())
    return ImportedJobs(jobs, notes)


def _jobs(request: TraceRequest, field: str, tally: Tally) -> Iterator[Job]:
    lines: dict[str, int] = {}
    needed = (*_NEEDED, *([] if request.user is None else [field]), *_state_column(request))
    rows = read_rows(request.path, Table(needed))
    for row, model in zip(rows, model_draws(request.seed), strict=False):
        gpus, duration_s = row.whole("gpu_num"), row.number_or_zero("duration")
        if not gpus:
            tally.leave_out("no GPU")
        elif not row.says("duration"):
            tally.leave_out("not over")
        elif not duration_s:
            tally.leave_out("over at once")
        elif tally.takes(row.cells.get("state", "")):
            name = row.new_id("job_id", lines)
            job = job_of_duration(name, gpus, row.moment("submit_time"), duration_s, model)
            yield msgspec.structs.replace(job, user=user_named(row.cells.get(field)))


def _state_column(request: TraceRequest) -> list[str]:
    return ["state"] if request.states == "finished" else []
