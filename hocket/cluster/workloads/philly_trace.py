"""Microsoft's Philly trace (``cluster_job_log``, JSON; Jeon et al., USENIX ATC 2019).

A list of jobs: ``jobid``; ``submitted_time``; ``attempts``, each with ``start_time`` and ``end_time`` and
``detail``, the servers (``ip``) with the GPUs (``gpus``) that it had; ``user``; ``status`` (Pass, Killed,
Failed) and ``vc``, which are not read. Times are local, as 2017-10-07 01:11:39, and may be missing (null,
"" or "None").

Assumed: a job wants as many GPUs as its largest attempt had, and for as long as all attempts together that
have a beginning and an end, whatever its status: failed and killed jobs held their GPUs, too. Jobs without a
submission, such an attempt or a GPU are left out. The models are not known: a model of the contention
paper's Table III is drawn.
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
    moment,
    skipped_note,
    user_named,
)
from hocket.document import convert_document, read_document
from hocket.errors import FormatError


class _PhillyServer(msgspec.Struct):
    gpus: list[str]


class _Attempt(msgspec.Struct):
    start_time: str | None = None
    end_time: str | None = None
    detail: list[_PhillyServer] | None = None


class _PhillyJob(msgspec.Struct):
    jobid: str
    user: str | None = None
    submitted_time: str | None = None
    attempts: list[_Attempt] = []


def import_philly(request: TraceRequest) -> ImportedJobs:
    """The jobs of Philly's job log.

    Raises
    ------
    FormatError
        Naming the file, the field and the rule.
    """
    source = str(request.path)
    records = convert_document(read_document(request.path), list[_PhillyJob], source)
    jobs = []
    for i, (record, model) in enumerate(zip(records, draw_models(len(records), request.seed), strict=True)):
        submitted_s = _moment(record.submitted_time, source, f"[{i}].submitted_time")
        spans = []
        for k, attempt in enumerate(record.attempts):
            field = f"[{i}].attempts[{k}]"
            start_s = _moment(attempt.start_time, source, f"{field}.start_time")
            end_s = _moment(attempt.end_time, source, f"{field}.end_time")
            count = sum(len(server.gpus) for server in attempt.detail or ())
            if count and start_s is not None and end_s is not None and end_s > start_s:
                spans.append((end_s - start_s, count))
        gpus = max((count for _, count in spans), default=0)
        if submitted_s is not None and gpus:
            duration_s = sum(duration for duration, _ in spans)
            job = job_of_duration(record.jobid, gpus, submitted_s, duration_s, model)
            jobs.append(msgspec.structs.replace(job, user=user_named(record.user)))
    notes = (
        DRAWN_NOTE,
        DURATION_NOTE + "; all attempts together, with the GPUs of the largest",
        "failed and killed jobs are kept: they held their GPUs, too",
        *skipped_note(len(records) - len(jobs), "no submission, GPU, or attempt with a beginning and an end"),
    )
    return ImportedJobs(job_set(jobs, request), notes)


def _moment(text: str | None, source: str, field: str) -> float | None:
    if text is None or text in ("", "None"):
        return None
    seconds = moment(text)
    if seconds is None:
        raise FormatError(source, field, f"'{text}' is not a time like 2017-10-07 01:11:39")
    return seconds
