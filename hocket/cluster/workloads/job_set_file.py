"""A job set that is one already, as JSON or CSV: to be written as the other, or cut."""

from __future__ import annotations

from hocket.cluster.jobs import JobSet
from hocket.cluster.jobs_file import read_jobs
from hocket.cluster.workloads.trace_jobs import ImportedJobs, TraceRequest


def import_job_set(request: TraceRequest) -> ImportedJobs:
    """The jobs of a ``hocket.jobs/1`` file as they are, in its order; with a limit those that arrive first.

    Raises
    ------
    FormatError, UnknownNameError
        As :func:`hocket.cluster.jobs_file.read_jobs`.
    """
    jobs = read_jobs(request.path)
    if request.limit is None:
        return ImportedJobs(jobs, ())
    first = sorted(jobs.jobs, key=lambda job: job.arrival_s)[: request.limit]
    return ImportedJobs(JobSet(jobs=tuple(first), source=jobs.source), ())
