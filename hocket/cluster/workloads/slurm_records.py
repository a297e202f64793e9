"""Records of Slurm's accounting, and the jobs that they are of."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from hocket.cluster.workloads.trace_jobs import TraceRequest, user_field, user_named
from hocket.cluster.workloads.trace_rows import Table, TraceRow, read_rows

_NEEDED = ("JobID", "State", "Submit")
USERS = ("User", "Account", "Partition", "QOS")
"""Columns that may say whose a job is."""
FINISHED = "COMPLETED"
_JOB = re.compile(r"(?P<job>\d+(?:_\d+)?)(?:\+(?P<part>\d+))?", re.ASCII)
_WAITING_TASKS = re.compile(r"\d+_\[[^\]]*\]?(?:\.\.\.)?", re.ASCII)
_ELAPSED = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?", re.ASCII)
_GPU = re.compile(r"gres/gpu(?P<type>:[^=]*)?=(?P<count>\d+)", re.ASCII)
_NOT_OVER = ("PENDING", "RUNNING", "SUSPENDED", "RESIZING", "REVOKED", "CONFIGURING", "COMPLETING", "STOPPED")
_NO_GPU, _NEVER_BEGAN, _STILL_THERE = "no GPU", "never began", "not over, or another cluster's"


@dataclass
class SlurmPart:
    """A job, or one part of a heterogeneous one, over all its runs."""

    gpus: int = 0
    duration_s: float = 0.0
    runs: int = 0
    last_submit_s: float = -1.0
    state: str = ""


@dataclass
class SlurmJob:
    """A job as its records say it."""

    submit_s: float
    user: str
    qos: str
    priority: float
    parts: dict[str, SlurmPart] = field(default_factory=dict)
    types: set[str] = field(default_factory=set)

    def state(self) -> str:
        """The state that it ended in: of a part that did not complete, if there is one."""
        states = [part.state for part in self.parts.values()]
        return next((state for state in states if state != FINISHED), FINISHED)


class SlurmRecords:
    """The jobs in one file of records, and those that are left out."""

    def __init__(self, request: TraceRequest) -> None:
        self._request = request
        self.field = user_field(request, USERS)
        self.found: dict[str, SlurmJob] = {}
        self.columns: set[str] = set()
        self._left_out: dict[str, str] = {}

    def read(self) -> None:
        """Go through the records."""
        asked = [] if self._request.user is None else [self.field]
        if self._request.qos is not None:
            asked.append("QOS")
        for row in read_rows(self._request.path, Table((*_NEEDED, *asked), delimiter="|")):
            if not self.columns:
                self.columns = set(row.cells)
                _check_columns(row)
            name = row.cells["JobID"]
            if "." in name.partition("[")[0]:
                continue
            reason = self._take(row, name)
            if reason:
                self._left_out[name.partition("+")[0]] = reason

    def reasons(self) -> list[str]:
        """The reason for each job that is left out."""
        return [reason for name, reason in self._left_out.items() if name not in self.found]

    def _take(self, row: TraceRow, name: str) -> str:
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
        job = self.found.get(matched["job"])
        if job is None:
            job = SlurmJob(submit_s, user_named(row.cells.get(self.field)), "", 0.0)
            self.found[matched["job"]] = job
        job.submit_s = min(job.submit_s, submit_s)
        job.types |= types
        part = job.parts.setdefault(matched["part"] or "", SlurmPart())
        later = submit_s >= part.last_submit_s
        if later:
            part.last_submit_s, part.state = submit_s, state
            job.qos = row.cells.get("QOS", "")
            job.priority = float(row.whole("Priority")) if row.says("Priority") else 0.0
        if self._request.attempts == "all":
            part.gpus, part.duration_s = max(part.gpus, gpus), part.duration_s + duration_s
        elif later:
            part.gpus, part.duration_s = gpus, duration_s
        part.runs += 1
        return ""


def _check_columns(row: TraceRow) -> None:
    """Refuse records that do not say what GPUs a job had, or for how long."""
    if not {"AllocTRES", "ReqTRES"} & set(row.cells):
        row.refuse("AllocTRES", "is no column, nor is ReqTRES; give sacct -o ...,AllocTRES")
    if not ({"ElapsedRaw", "Elapsed"} & set(row.cells) or {"Start", "End"} <= set(row.cells)):
        row.refuse("ElapsedRaw", "is no column, nor Elapsed, nor Start and End; give sacct -o ...,ElapsedRaw")


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
    if row.says("ElapsedRaw"):
        return row.number("ElapsedRaw")
    if row.says("Elapsed"):
        matched = _ELAPSED.fullmatch(row.cells["Elapsed"])
        if matched is None:
            row.refuse("Elapsed", f"'{row.cells['Elapsed']}' is not a time like 1-02:03:04")
        days, hours, minutes, seconds = (int(part or 0) for part in matched.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    if not (row.says("Start") and row.says("End")):
        return 0.0
    return max(0.0, row.moment("End") - row.moment("Start"))
