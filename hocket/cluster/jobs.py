"""Training jobs that share a cluster, and the ``hocket.jobs/1`` files that hold them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn

import msgspec

from hocket.document import decode, read_bytes, write_json
from hocket.errors import FormatError

JOBS_FORMAT = "hocket.jobs/1"

_MOST_GPUS = 1_000_000
_MOST_ITERATIONS = 10**12
_LONGEST_S = 1e9
_LARGEST_BYTES = 2.0**53  # sizes take part in float arithmetic: past this they would not be exact


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One training job: every iteration, each of its GPUs computes, then all of them AllReduce.

    ``arrival_s``: when it is submitted; ``forward_s``, ``backward_s``: what each GPU computes an iteration;
    ``size_bytes``: what one AllReduce sums up; ``memory_bytes``: what it needs of each of its GPUs.
    """

    id: str
    model: str
    gpus: int
    iterations: int
    arrival_s: float
    forward_s: float
    backward_s: float
    size_bytes: float
    memory_bytes: float


@dataclass(frozen=True, kw_only=True)
class JobSet:
    """Jobs in the order of their file, validated; ``source`` names them in errors.

    Raises
    ------
    FormatError
        On construction, naming ``source``, the field and the rule.
    """

    jobs: tuple[Job, ...]
    source: str = field(default="job set", compare=False)

    def __post_init__(self) -> None:
        if not self.jobs:
            raise FormatError(self.source, "jobs", "is empty; a job set has at least one job")
        first: dict[str, int] = {}
        for i, job in enumerate(self.jobs):
            _check(job, i, self.source)
            if first.setdefault(job.id, i) != i:
                rule = f"'{job.id}' is a duplicate of jobs[{first[job.id]}].id; ids are unique"
                raise FormatError(self.source, f"jobs[{i}].id", rule)


def _check(job: Job, place: int, source: str) -> None:
    def refuse(key: str, rule: str) -> NoReturn:
        raise FormatError(source, f"jobs[{place}].{key}", f"{rule} (job '{job.id}')")

    if not job.id:
        refuse("id", "is empty; name the job")
    for key, most in (("gpus", _MOST_GPUS), ("iterations", _MOST_ITERATIONS)):
        count = getattr(job, key)
        if not 1 <= count <= most:
            refuse(key, f"{count} is not a whole number from 1 to {most}")
    for key in ("arrival_s", "forward_s", "backward_s"):
        seconds = getattr(job, key)
        if not 0 <= seconds <= _LONGEST_S:
            refuse(key, f"{seconds} is not a number of seconds between 0 and 1e9")
    for key in ("size_bytes", "memory_bytes"):
        size = getattr(job, key)
        if not 0 <= size <= _LARGEST_BYTES:
            refuse(key, f"{size} is not a number of bytes between 0 and 2^53")
    if job.forward_s + job.backward_s == 0:
        refuse("backward_s", "is 0 and so is forward_s; an iteration computes for some time")


class _JobsFile(msgspec.Struct, frozen=True, kw_only=True):
    format: Literal["hocket.jobs/1"]
    jobs: tuple[Job, ...]


def read_jobs(path: str | Path) -> JobSet:
    """Read a ``hocket.jobs/1`` file (``.json``, ``.json.gz`` or ``.json.zst``).

    Raises
    ------
    FormatError
        Naming the file, the field and the rule.
    """
    file = decode(read_bytes(path), _JobsFile, JOBS_FORMAT, str(path))
    return JobSet(jobs=file.jobs, source=str(path))


def write_jobs(jobs: JobSet, path: str | Path) -> None:
    """Write ``jobs`` as ``hocket.jobs/1``, whole or not at all."""
    write_json(jobs_document(jobs), path)


def jobs_document(jobs: JobSet) -> dict[str, Any]:
    """The ``hocket.jobs/1`` document of ``jobs`` as plain data."""
    return {"format": JOBS_FORMAT, "jobs": [msgspec.structs.asdict(job) for job in jobs.jobs]}
