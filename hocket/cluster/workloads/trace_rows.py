"""Tools that importers share: strict rows of delimited text, and jobs from what a trace knows of them."""

from __future__ import annotations

import contextlib
import csv
import io
import math
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, NamedTuple, NoReturn

import msgspec
import numpy as np

from hocket.cluster.gpu_type import is_type_name
from hocket.cluster.jobs import Job, JobSet, is_user_name
from hocket.cluster.workloads.trained_models import TABLE_III, ModelProfile
from hocket.document import read_bytes
from hocket.errors import FormatError

# One way to match each text: digits that two parts of a pattern could take make it quadratic.
_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
_NOT_IN_USERS = re.compile(r"[ ,=*]")
_MOST = 1e18
_MOMENTS = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S")
_EPOCH = datetime(1970, 1, 1)


class ImportedJobs(NamedTuple):
    """A trace as jobs, and what had to be assumed for that, a line each."""

    jobs: JobSet
    notes: tuple[str, ...]


class TraceRequest(NamedTuple):
    """A trace to import.

    ``limit``: only so many jobs, those that arrive first. ``seed`` decides what a trace leaves open and is
    drawn. ``throughputs``, ``gpu``: Gavel's measurements, and the device among them, None: all.
    """

    path: Path
    limit: int | None = None
    seed: int = 0
    throughputs: Path | None = None
    gpu: str | None = None


class TraceRow(NamedTuple):
    """One line of a trace: its cells by column."""

    source: str
    line: int
    cells: dict[str, str]

    def refuse(self, column: str, rule: str) -> NoReturn:
        """Raise FormatError for a cell."""
        raise FormatError(self.source, f"line {self.line}, {column}", rule)

    def number(self, column: str) -> float:
        """A number from 0 to 1e18."""
        text = self.cells[column].strip()
        value = float(text) if _NUMBER.fullmatch(text) else math.nan
        if not 0 <= value <= _MOST:
            self.refuse(column, f"'{text}' is not a number of 0 or more, up to {_MOST:g}")
        return value

    def number_or_zero(self, column: str) -> float:
        """A number, 0 where the trace does not say it: an empty cell, or None."""
        return 0.0 if self.cells[column].strip() in ("", "None") else self.number(column)

    def whole(self, column: str, least: int = 0) -> int:
        """A whole number of ``least`` or more."""
        value = self.number(column)
        if value < least or value != int(value):
            self.refuse(column, f"'{self.cells[column]}' is not a whole number of {least} or more")
        return int(value)

    def moment(self, column: str) -> float:
        """Seconds since 1970, of a local time such as 2020-06-09 18:41:01."""
        seconds = moment(self.cells[column])
        if seconds is None:
            self.refuse(column, f"'{self.cells[column]}' is not a time like 2020-06-09 18:41:01")
        return seconds


def moment(text: str) -> float | None:
    """Seconds since 1970 of a local time such as 2020-06-09 18:41:01 or 2020-06-09T18:41:01; else None."""
    for form in _MOMENTS:
        with contextlib.suppress(ValueError):
            return (datetime.strptime(text.strip(), form) - _EPOCH).total_seconds()
    return None


def read_rows(
    path: Path,
    columns: Sequence[str],
    *,
    delimiter: str = ",",
    header: bool | None = True,
    needed_columns: Sequence[str] | None = None,
) -> Iterator[TraceRow]:
    """The rows of delimited text that has at least ``columns``; ``needed_columns`` where a line names them.

    header : True: the first line names the columns, False: there is none and ``columns`` are all of them,
        None: there is one if its first cell is the first column's name.

    Raises
    ------
    FormatError
        Naming the file, the line and the rule.
    """
    source = str(path)
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(source, "", f"is not text in UTF-8: {error}") from None
    # Gavel's tab-separated cells hold command lines, and Slurm's names of jobs: their quotes mean nothing.
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if delimiter == "," else csv.QUOTE_NONE
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting, strict=True)
    names = list(columns)
    named = header is False
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if not named:
                named = True
                if header or cells[0].strip() == columns[0]:
                    names = _column_names(cells, needed_columns or columns, source)
                    continue
            if len(cells) != len(names):
                rule = f"has {len(cells)} cells where {len(names)} columns are expected: {', '.join(names)}"
                raise FormatError(source, f"line {reader.line_num}", rule)
            values = (cell.strip() for cell in cells)
            yield TraceRow(source, reader.line_num, dict(zip(names, values, strict=True)))
    except csv.Error as error:
        raise FormatError(source, f"line {reader.line_num}", f"is not delimited text: {error}") from None


def _column_names(cells: Sequence[str], columns: Sequence[str], source: str) -> list[str]:
    names = [cell.strip() for cell in cells]
    missing = [column for column in columns if column not in names]
    if missing:
        rule = f"has no column '{missing[0]}'; needed are {', '.join(columns)}"
        raise FormatError(source, "line 1", rule)
    if len(set(names)) < len(names):
        name = next(name for name in names if names.count(name) > 1)
        raise FormatError(source, "line 1", f"'{name}' is a duplicate; each column has a name of its own")
    return names


def draw_models(count: int, seed: int) -> list[ModelProfile]:
    """A model of Table III for each of ``count`` jobs of a trace that does not say what they trained."""
    return [TABLE_III[k] for k in np.random.default_rng(seed).integers(len(TABLE_III), size=count)]


def job_of_duration(name: str, gpus: int, arrival_s: float, duration_s: float, model: ModelProfile) -> Job:
    """A job that trains ``model`` and, alone in one server, is over after ``duration_s``, rounded."""
    iteration_s = model.forward_s + model.backward_s
    return Job(
        id=name,
        model=model.name,
        gpus=gpus,
        iterations=max(1, round(duration_s / iteration_s)),
        arrival_s=arrival_s,
        forward_s=model.forward_s,
        backward_s=model.backward_s,
        size_bytes=model.size_bytes,
        memory_bytes=model.memory_bytes,
    )


def user_named(name: str | None) -> str:
    """The user of a trace as jobs have it: '_' for signs that may not be in names; "" where there is none."""
    kept = _NOT_IN_USERS.sub("_", (name or "").strip())
    return kept if is_user_name(kept) else ""


def speeds_on(types: Collection[str]) -> dict[str, float]:
    """The speeds of a job on the one type of GPU that it had; none if it had several: on any, as it took."""
    names = [name.lower() for name in types]
    return {names[0]: 1.0} if len(names) == 1 and is_type_name(names[0]) else {}


def typed_note(jobs: Iterable[Job]) -> list[str]:
    """A note on jobs that run on one type of GPU alone; none where no job does."""
    names = sorted({name for job in jobs for name in job.speeds})
    if not names:
        return []
    return [
        "jobs run on the type of GPU that they had, at speed 1, where a cluster has types: "
        + ", ".join(names)
    ]


def job_set(jobs: Iterable[Job], request: TraceRequest) -> JobSet:
    """``jobs`` by arrival, the first ``limit`` of them, the clock set to 0 at the first arrival.

    Raises
    ------
    FormatError
        Naming the trace, if there is no job in it that used a GPU, or one that breaks a rule of jobs.
    """
    source = str(request.path)
    kept = sorted(jobs, key=lambda job: job.arrival_s)[: request.limit]
    if not kept:
        raise FormatError(source, "", "holds no job that used a GPU for some time")
    begin_s = kept[0].arrival_s
    shifted = (msgspec.structs.replace(job, arrival_s=job.arrival_s - begin_s) for job in kept)
    return JobSet(jobs=tuple(shifted), source=source)


def skipped_note(num_skipped: int, why: str) -> list[str]:
    """A note that jobs were left out; none of no job."""
    return [f"{num_skipped} job{'' if num_skipped == 1 else 's'} left out: {why}"] if num_skipped else []


DRAWN_NOTE = (
    "the trace does not say what was trained: each job is given a model of the contention paper's Table III, "
    "drawn with the seed, with its times, size and memory on a V100"
)
DURATION_NOTE = (
    "iterations are the recorded duration over the model's forward and backward time: what waiting and "
    "communication it held counts as computing"
)
