"""Microsoft's Philly trace (``cluster_job_log``, JSON; Jeon et al., USENIX ATC 2019).

A list of jobs: ``jobid``; ``submitted_time``; ``attempts``, each with ``start_time`` and ``end_time`` and
``detail``, the servers (``ip``) with the GPUs (``gpus``) that it had; ``user``; ``vc``, the virtual cluster;
``status`` (Pass, Killed, Failed). Times are local, as 2017-10-07 01:11:39, and may be missing (null, "" or
"None"). Jobs are read one at a time.

Assumed: a job wants as many GPUs as its largest attempt had, and for as long as all attempts together (or the
last one) that have a beginning and an end, whatever its status unless only those that passed are asked for:
failed and killed jobs held their GPUs, too. Jobs without a submission, such an attempt or a GPU are left out.
The models are not known: a model of the contention paper's Table III is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, NoReturn

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
from hocket.cluster.workloads.trace_text import read_records
from hocket.cluster.workloads.trace_times import TraceClock
from hocket.document import convert_document
from hocket.errors import FormatError
from hocket.text import counted

_USERS = ("user", "vc")


class _PhillyServer(msgspec.Struct):
    gpus: list[str]


class _Attempt(msgspec.Struct):
    start_time: str | None = None
    end_time: str | None = None
    detail: list[_PhillyServer] | None = None


class _PhillyJob(msgspec.Struct):
    jobid: str
    user: str | None = None
    vc: str | None = None
    status: str | None = None
    submitted_time: str | None = None
    attempts: list[_Attempt] = []


class _Span(NamedTuple):
    """An attempt that has begun and ended."""

    duration_s: float
    gpus: int


def import_philly(request: TraceRequest) -> ImportedJobs:
    """The jobs of Philly's job log.

    Raises
    ------
    FormatError, UnknownNameError
        Naming the file, the field and the rule; for a user that is no field.
    """
    field = user_field(request, _USERS)
    tally = Tally(request, "Pass")
    reader = _PhillyLog(request, field, tally)
    jobs = job_set(reader.jobs(), request)
    last = request.attempts == "last"
    which = "the last attempt that has ended" if last else "all attempts together (--attempts last: the last)"
    notes = (
        DRAWN_NOTE,
        f"{DURATION_NOTE}; of {which}, with the most GPUs of any",
        user_note(field, _USERS, jobs),
        *reader.notes(),
        *tally.notes(),
    )
    return ImportedJobs(jobs, notes)


class _PhillyLog:
    """The jobs of one log, and counts of what they had."""

    def __init__(self, request: TraceRequest, field: str, tally: Tally) -> None:
        self._request = request
        self._field = field
        self._tally = tally
        self._clock = TraceClock()
        self._again = 0
        self._running = 0

    def jobs(self) -> Iterator[Job]:
        """Each job that counts, in the order of the log."""
        places: dict[str, int] = {}
        records = read_records(self._request.path)
        for i, (record, model) in enumerate(zip(records, model_draws(self._request.seed), strict=False)):
            found = convert_document(record, _PhillyJob, f"{self._request.path}: [{i}]")
            submitted_s = self._seconds(found.submitted_time, f"[{i}].submitted_time")
            spans = self._spans(found, f"[{i}]")
            if submitted_s is None:
                self._tally.leave_out("no submission")
            elif not spans:
                self._tally.leave_out("no attempt with a beginning, an end and a GPU")
            elif self._tally.takes(found.status or ""):
                name = found.jobid
                if places.setdefault(name, i) != i:
                    rule = f"'{name}' is a duplicate, of [{places[name]}]; ids are unique: leave one out"
                    self._refuse(f"[{i}].jobid", rule)
                if not name:
                    self._refuse(f"[{i}].jobid", "is empty; name the job")
                self._again += len(spans) > 1
                self._running += found.attempts[-1].end_time in (None, "", "None")
                counted_spans = spans[-1:] if self._request.attempts == "last" else spans
                duration_s = sum(span.duration_s for span in counted_spans)
                gpus = max(span.gpus for span in counted_spans)
                job = job_of_duration(name, gpus, submitted_s, duration_s, model)
                yield msgspec.structs.replace(job, user=user_named(getattr(found, self._field)))

    def notes(self) -> list[str]:
        """Lines on jobs that ran several times, and on those that still ran."""
        lines = []
        if self._again:
            lines.append(f"{counted(self._again, 'job')} had several attempts, which replays do not repeat")
        if self._running:
            what = "the attempt without an end is left out"
            lines.append(f"{counted(self._running, 'job')} had an attempt that was not over: {what}")
        return lines

    def _spans(self, job: _PhillyJob, where: str) -> list[_Span]:
        spans = []
        for k, attempt in enumerate(job.attempts):
            start_s = self._seconds(attempt.start_time, f"{where}.attempts[{k}].start_time")
            end_s = self._seconds(attempt.end_time, f"{where}.attempts[{k}].end_time")
            gpus = sum(len(server.gpus) for server in attempt.detail or ())
            if gpus and start_s is not None and end_s is not None and end_s > start_s:
                spans.append(_Span(end_s - start_s, gpus))
        return spans

    def _seconds(self, text: str | None, field: str) -> float | None:
        if text is None or text in ("", "None"):
            return None
        try:
            return self._clock.seconds(text)
        except ValueError as error:
            self._refuse(field, str(error))

    def _refuse(self, field: str, rule: str) -> NoReturn:
        raise FormatError(str(self._request.path), field, rule)
