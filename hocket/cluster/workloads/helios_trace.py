"""SenseTime's Helios traces (``cluster_log.csv``; Hu et al., SC 2021).

Columns: ``job_id``; ``user``; ``vc``; ``gpu_num``; ``cpu_num``; ``node_num``; ``state`` (COMPLETED,
CANCELLED, FAILED, TIMEOUT, NODE_FAIL); ``submit_time``, ``start_time``, ``end_time``, local, as 2020-06-09
18:41:01; ``duration``, seconds from start to end; ``queue``, seconds from submission to start. Read are the
id, the user if there is one, the GPUs, the submission and the duration.

Assumed: jobs of every state count, since they held their GPUs; those without a GPU, that ended at once or
that are not over (an empty duration, or None) are left out. The models are not known: a model of the
contention paper's Table III is drawn.
"""

from __future__ import annotations

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
    user_named,
)

_COLUMNS = ("job_id", "gpu_num", "submit_time", "duration")


def import_helios(request: TraceRequest) -> ImportedJobs:
    """The jobs of a Helios cluster.

    Raises
    ------
    FormatError
        Naming the file, the line and the rule.
    """
    rows = list(read_rows(request.path, _COLUMNS))
    jobs = []
    for row, model in zip(rows, draw_models(len(rows), request.seed), strict=True):
        gpus, duration_s = row.whole("gpu_num"), row.number_or_zero("duration")
        if gpus and duration_s > 0:
            job = job_of_duration(row.cells["job_id"], gpus, row.moment("submit_time"), duration_s, model)
            jobs.append(msgspec.structs.replace(job, user=user_named(row.cells.get("user"))))
    notes = (
        DRAWN_NOTE,
        DURATION_NOTE,
        "jobs of every state are kept: they held their GPUs",
        *skipped_note(len(rows) - len(jobs), "no GPU, over at once, or not over"),
    )
    return ImportedJobs(job_set(jobs, request), notes)
