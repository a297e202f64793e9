"""The traces that can be imported, by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hocket.cluster.workloads.alibaba_trace import import_alibaba
from hocket.cluster.workloads.gavel_trace import import_gavel
from hocket.cluster.workloads.helios_trace import import_helios
from hocket.cluster.workloads.job_set_file import import_job_set
from hocket.cluster.workloads.philly_trace import import_philly
from hocket.cluster.workloads.slurm_trace import import_slurm
from hocket.cluster.workloads.tiresias_trace import import_tiresias
from hocket.cluster.workloads.trace_rows import ImportedJobs, TraceRequest
from hocket.errors import HocketError, UnknownNameError

IMPORTERS: dict[str, Callable[[TraceRequest], ImportedJobs]] = {
    "tiresias": import_tiresias,
    "gavel": import_gavel,
    "philly": import_philly,
    "alibaba": import_alibaba,
    "helios": import_helios,
    "slurm": import_slurm,
    "jobs": import_job_set,
}


def import_trace(
    kind: str,
    path: str | Path,
    *,
    limit: int | None = None,
    seed: int = 0,
    throughputs: str | Path | None = None,
    gpu: str | None = None,
) -> ImportedJobs:
    """The jobs of a trace of that ``kind``; what each importer assumes is in its docstring and its notes.

    limit : only so many jobs, those that arrive first.
    seed : decides what is drawn where a trace does not say what was trained.
    throughputs, gpu : of "gavel" only: its measured throughputs, and the device among them, all by default.

    Raises
    ------
    FormatError, HocketError
        Naming the file, the field or line, and the rule.
    """
    if kind not in IMPORTERS:
        raise UnknownNameError("trace", kind, list(IMPORTERS))
    if limit is not None and limit < 1:
        raise HocketError(f"{limit} jobs are none; import at least 1")
    for what, given in (("throughputs", throughputs), ("gpu", gpu)):
        if given is not None and kind != "gavel":
            raise HocketError(f"{what} '{given}' is of Gavel's throughputs, not for {kind}; leave it out")
    measured = None if throughputs is None else Path(throughputs)
    return IMPORTERS[kind](TraceRequest(Path(path), limit, seed, measured, gpu))
