"""Gavel's job traces and measured throughputs (Narayanan et al., OSDI 2020).

Columns, separated by tabs and without a header: job type, such as ``ResNet-50 (batch size 64)``; command; its
folder; name of the command's argument for the number of steps; whether it needs a data folder; total steps;
scale factor, the number of GPUs; priority weight; SLO, a deadline as a multiple of the duration, or -1;
arrival time, seconds. Traces of Philly's virtual clusters (``traces/msr``) have seven: type, command,
argument, data folder, steps, arrival, scale factor. Read are the type, the steps, the scale factor, the
weight and the arrival.

``throughputs``: JSON, for each device and ``('<job type>', <scale factor>)`` the steps per second, alone
(``"null"``) or beside another job.

Assumed: a step computes for as long as it takes the job type alone on one GPU of the device; what more GPUs
cost is simulated, so that devices called ``_unconsolidated``, GPUs of several machines, are left out. Unless
one device is asked for, a job's times are those of a V100 (of the first device that runs it, if that does
not), and its ``speeds`` are the steps per second of each device over that one's; where they are 0 it does not
run. Weights are priorities: a heavier job is placed first, where Gavel gives it a larger share.
Without throughputs (given, or lying beside the trace as ``gavel_throughputs.json`` or
``simulation_throughputs.json``, perhaps with .gz or .zst) the duration of a step is a guess: that of the
contention paper's ResNet-50, whatever the job trains. Each GPU runs all of the total steps. 40% of a step is
forward. Sizes: published parameter counts of networks, approximate ones of the rest; memory from them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from hocket.cluster.gpu_type import TYPE_RULE, is_type_name
from hocket.cluster.jobs import Job
from hocket.cluster.workloads.trace_jobs import ImportedJobs, TraceRequest, job_set, ranked
from hocket.cluster.workloads.trace_rows import Table, TraceRow, read_rows
from hocket.cluster.workloads.trained_models import (
    FLOAT_BYTES,
    FORWARD_SHARE,
    TABLE_III,
    estimated_memory_bytes,
    published_sizes,
)
from hocket.document import read_document
from hocket.errors import FormatError
from hocket.text import counted, listed

_COLUMNS = (
    *("job type", "command", "folder", "steps argument", "needs data", "total steps"),
    *("scale factor", "priority", "SLO", "arrival time"),
)
_OF_VIRTUAL_CLUSTERS = (
    *("job type", "command", "steps argument", "needs data", "total steps", "arrival time", "scale factor"),
)
_TYPE = re.compile(r"(?P<model>.+?)(?: \(batch size \d+\))?")
_BESIDE = ("gavel_throughputs.json", "simulation_throughputs.json")
_GUESSED_S = next(model.forward_s + model.backward_s for model in TABLE_III if model.name == "resnet50")
_FIRST = "v100"
_SPREAD = "_unconsolidated"

# Parameters: ResNets as published; the others about as many as their scripts' defaults make.
_APPROXIMATE = {
    "Transformer": 49_000_000,
    "LM": 14_000_000,
    "Recommendation": 8_000_000,
    "CycleGAN": 28_300_000,
    "A3C": 800_000,
}


def import_gavel(request: TraceRequest) -> ImportedJobs:
    """The jobs of a Gavel trace.

    Raises
    ------
    FormatError
        Naming the file, the line or the field, and the rule.
    """
    published = published_sizes()
    sizes = {"ResNet-18": published["resnet18"], "ResNet-50": published["resnet50"]}
    sizes |= {name: float(FLOAT_BYTES * count) for name, count in _APPROXIMATE.items()}
    throughputs = request.throughputs or _found_beside(request.path)
    measured = None if throughputs is None else _Throughputs(throughputs, request.gpu)
    jobs, weights, deadlines = [], [], 0
    table = Table(_COLUMNS, delimiter="\t", header=False, older=_OF_VIRTUAL_CLUSTERS)
    for i, row in enumerate(read_rows(request.path, table)):
        kind = row.cells["job type"]
        match = _TYPE.fullmatch(kind)
        if match is None or match["model"] not in sizes:
            row.refuse("job type", f"'{kind}' has no known size; known are {', '.join(sizes)}")
        weights.append(row.number("priority") if "priority" in row.cells else 1.0)
        deadlines += not row.cells.get("SLO", "-").startswith("-")
        step_s, speeds = (_GUESSED_S, {}) if measured is None else measured.times_of(row)
        size = sizes[match["model"]]
        jobs.append(
            Job(
                id=str(i),
                model=kind,
                gpus=row.whole("scale factor", 1),
                iterations=row.whole("total steps", 1),
                arrival_s=row.number("arrival time"),
                forward_s=FORWARD_SHARE * step_s,
                backward_s=(1 - FORWARD_SHARE) * step_s,
                size_bytes=size,
                memory_bytes=estimated_memory_bytes(size),
                speeds=speeds,
            )
        )
    priorities, by_rank = ranked(weights) if len(set(weights)) > 1 else ([0] * len(jobs), False)
    jobs = [
        msgspec.structs.replace(job, priority=priority)
        for job, priority in zip(jobs, priorities, strict=True)
    ]
    notes = (
        _times_note(measured, throughputs),
        "each GPU of a job runs all of its steps",
        "sizes are published parameter counts of ResNets, approximate ones of the rest; memory is 4 sizes "
        "and 2.5 GB",
        *_weight_notes(weights, by_rank, deadlines),
    )
    return ImportedJobs(job_set(jobs, request), notes)


def _times_note(measured: _Throughputs | None, throughputs: Path | None) -> str:
    if measured is None:
        return (
            "no throughputs are given or lie beside the trace: a step computes for as long as the contention "
            "paper's ResNet-50 on a V100, a guess; give --throughputs FILE"
        )
    line = (
        f"a step computes for as long as {throughputs} says of one {measured.first} alone, 40% forward;"
        " what more GPUs cost is simulated"
    )
    if len(measured.devices) > 1:
        line += (
            f"; each job has its speeds on {listed(measured.devices)}, of one alone, and does not run"
            " where it has none (--gpu NAME: the times of one device, and no speeds)"
        )
    return line


def _weight_notes(weights: list[float], by_rank: bool, deadlines: int) -> list[str]:
    lines = []
    if len(set(weights)) > 1:
        are = "the ranks of priority weights" if by_rank else "priority weights"
        lines.append(
            f"priorities are {are}: a heavier job is placed first, where Gavel gives it a larger share"
        )
    if deadlines:
        lines.append(f"{counted(deadlines, 'deadline')} (SLO) left out: jobs here have none")
    return lines


def _found_beside(trace: Path) -> Path | None:
    named = (trace.with_name(name + ending) for name in _BESIDE for ending in ("", ".gz", ".zst"))
    return next((path for path in named if path.is_file()), None)


class _Throughputs:
    """Steps per second of each job type alone on one GPU of each device, or of ``gpu`` alone.

    ``devices``: those, ``first``: the one that times are for, where it runs the job type.
    """

    def __init__(self, path: Path, gpu: str | None) -> None:
        document = read_document(path)
        if not isinstance(document, dict) or not all(isinstance(of, dict) for of in document.values()):
            raise FormatError(str(path), "", "is not an object of devices, each with its throughputs")
        if gpu is not None and gpu not in document:
            raise FormatError(str(path), "", f"has no device '{gpu}'; it has {', '.join(document)}")
        self.devices = [name for name in document if not name.endswith(_SPREAD)] if gpu is None else [gpu]
        if not self.devices:
            raise FormatError(str(path), "", "has no device; it has the throughputs of at least one")
        for name in self.devices:
            if gpu is None and not is_type_name(name):
                raise FormatError(str(path), name, TYPE_RULE)
        self.first = _FIRST if _FIRST in self.devices else self.devices[0]
        self._source = f"{path}: {listed(self.devices)}"
        self._document: dict[str, Any] = document

    def times_of(self, row: TraceRow) -> tuple[float, dict[str, float]]:
        """Seconds of a step of the row's job type, and its speeds: of one device none."""
        key = repr((row.cells["job type"], 1))
        rates = {}
        for name in self.devices:
            alone = self._document[name].get(key)
            rate = alone.get("null") if isinstance(alone, dict) else None
            if isinstance(rate, int | float) and not isinstance(rate, bool) and 1e-9 < rate < 1e9:
                rates[name] = rate
        if not rates:
            has = "has" if len(self.devices) == 1 else "have"
            row.refuse("job type", f"{self._source} {has} no steps per second of {key} alone")
        first = rates.get(self.first, next(iter(rates.values())))
        speeds = {name: rate / first for name, rate in rates.items()} if len(self.devices) > 1 else {}
        return 1 / first, speeds
