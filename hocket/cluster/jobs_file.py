"""Files of jobs, ``hocket.jobs/1``: read with the steps and plans that they name, and written."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
from msgspec import UNSET, UnsetType

from hocket.cluster.jobs import NO_STARTUP_S, Batch, Job, JobSet
from hocket.cluster.jobs_csv import csv_of_rows, is_csv, rows_of_csv
from hocket.cluster.overlap import read_overlapped
from hocket.document import convert_document, decode, parse, read_bytes, write_bytes, write_json
from hocket.errors import FormatError, UnknownNameError

JOBS_FORMAT = "hocket.jobs/1"

FROM_STEP = ("forward_s", "backward_s", "size_bytes", "batches")
"""The fields of a job that its step and plan say, where it has them."""
OTHER_NAMES = {"gpus_max": "gpus", "max_gpus": "gpus", "min_gpus": "gpus_min"}
"""The field that is meant where another name of it is used: passed over, a job would be another one."""
_REQUIRED = ("model", *FROM_STEP[:-1])


class _JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job as a file has it; ``step`` and ``plan``, if given, say what it leaves out."""

    id: str
    gpus: int
    iterations: int
    arrival_s: float
    memory_bytes: float
    model: str | UnsetType = UNSET
    forward_s: float | UnsetType = UNSET
    backward_s: float | UnsetType = UNSET
    size_bytes: float | UnsetType = UNSET
    batches: tuple[Batch, ...] = ()
    startup_s: float = NO_STARTUP_S
    speeds: dict[str, float] = {}
    user: str = ""
    priority: int = 0
    gpus_min: int | None = None
    checkpoint_s: float | None = None
    step: str | dict[str, Any] | UnsetType = UNSET
    plan: str | dict[str, Any] | UnsetType = UNSET


ROW_FIELDS = _JobRow.__struct_fields__
"""The fields of a job in a file that say what it takes."""
# A dict has str among its arguments, too.
_COLUMNS = {
    field.name: get_origin(field.type) is not dict and str in (field.type, *get_args(field.type))
    for field in msgspec.structs.fields(_JobRow)
}


class _JobsFile(msgspec.Struct, frozen=True, kw_only=True):
    format: Literal["hocket.jobs/1"]
    jobs: tuple[_JobRow, ...]


def read_jobs(path: str | Path) -> JobSet:
    """Read a ``hocket.jobs/1`` file (``.json`` or ``.csv``, with or without ``.gz`` or ``.zst``).

    The steps and plans that it names are read, too, from where they are as seen from the file's folder.

    Raises
    ------
    FormatError, UnknownNameError
        Naming the file, the field and the rule; for a column that is no field.
    """
    return decode_jobs(read_bytes(path, "hocket cluster generate and import write job sets"), path)


def decode_jobs(data: bytes, path: str | Path, of_programs: Sequence[str] | None = None) -> JobSet:
    """The jobs in ``data``, which is what the file at ``path`` holds; raises as :func:`read_jobs` does.

    ``of_programs``: the only other fields that a job may have; None: any that is not nearly one of ours.
    """
    source = str(path)
    if is_csv(path):
        lines = rows_of_csv(data, source, _COLUMNS)
        rows = [(at, convert_document(row, _JobRow, f"{source}: {at}")) for at, row in lines]
    else:
        file = decode(data, _JobsFile, JOBS_FORMAT, source)
        _check_fields(data, source, of_programs)
        rows = [(f"jobs[{i}]", row) for i, row in enumerate(file.jobs)]
    steps = _Steps(Path(path).parent)
    jobs = tuple(_job(row, steps, source, at) for at, row in rows)
    return JobSet(jobs=jobs, source=source)


def _check_fields(data: bytes, source: str, of_programs: Sequence[str] | None) -> None:
    """Refuse a field that would be passed over without a word; UnknownNameError."""
    fields = sorted({*ROW_FIELDS, *(of_programs or ())})
    known = set(fields)
    for place, job in enumerate(parse(data, source)["jobs"]):
        for name in job.keys() - known:
            if name in OTHER_NAMES:
                field = OTHER_NAMES[name]
                raise FormatError(source, f"jobs[{place}].{name}", f"is called {field}; name it so")
            if of_programs is not None or difflib.get_close_matches(name, fields, n=1, cutoff=0.8):
                raise UnknownNameError(f"{source}: jobs[{place}]: field", name, fields)
            known.add(name)


def _job(row: _JobRow, steps: _Steps, source: str, field: str) -> Job:
    if row.step is UNSET and row.plan is UNSET:
        from_step: dict[str, Any] = {}
        for key in _REQUIRED:
            if getattr(row, key) is UNSET:
                raise FormatError(source, field, f"object missing required field `{key}`")
            from_step[key] = getattr(row, key)
        from_step["batches"] = row.batches
    else:
        if row.step is UNSET or row.plan is UNSET:
            given, other = ("step", "plan") if row.plan is UNSET else ("plan", "step")
            raise FormatError(source, f"{field}.{other}", f"is missing beside {given}; give both, or neither")
        for key in FROM_STEP:
            if getattr(row, key) not in (UNSET, ()):
                rule = "is what the step and the plan say; leave it out, or leave them out"
                raise FormatError(source, f"{field}.{key}", rule)
        from_step = steps.job_fields(row.step, row.plan, f"{source}: {field}")
        if row.model is not UNSET:
            from_step = from_step | {"model": row.model}
    return Job(
        id=row.id,
        gpus=row.gpus,
        iterations=row.iterations,
        arrival_s=row.arrival_s,
        memory_bytes=row.memory_bytes,
        startup_s=row.startup_s,
        speeds=row.speeds,
        user=row.user,
        priority=row.priority,
        gpus_min=row.gpus_min,
        checkpoint_s=row.checkpoint_s,
        **from_step,
    )


class _Steps:
    """Steps and plans that jobs carry or name, each file read once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._job_fields: dict[tuple[str, str], dict[str, Any]] = {}

    def job_fields(
        self, step: str | dict[str, Any], plan: str | dict[str, Any], where: str
    ) -> dict[str, Any]:
        """The part of a job that a step and its plan say."""
        if not isinstance(step, str) or not isinstance(plan, str):
            return read_overlapped(step, plan, self._folder, where)
        if (step, plan) not in self._job_fields:
            self._job_fields[step, plan] = read_overlapped(step, plan, self._folder, where)
        return self._job_fields[step, plan]


def write_jobs(jobs: JobSet, path: str | Path) -> None:
    """Write ``jobs`` as ``hocket.jobs/1``, CSV where the name says so, whole or not at all."""
    document = jobs_document(jobs)
    if is_csv(path):
        write_bytes(csv_of_rows(document["jobs"], _COLUMNS), path)
    else:
        write_json(document, path)


def jobs_document(jobs: JobSet) -> dict[str, Any]:
    """The ``hocket.jobs/1`` document of ``jobs`` as plain data; steps and plans are batches in it."""
    return {"format": JOBS_FORMAT, "jobs": [msgspec.to_builtins(job) for job in jobs.jobs]}
