"""The traces that can be imported, by name."""

from __future__ import annotations

from collections.abc import Callable

from hocket.cluster.workloads.alibaba_2023_trace import import_alibaba_2023
from hocket.cluster.workloads.alibaba_trace import import_alibaba
from hocket.cluster.workloads.gavel_trace import import_gavel
from hocket.cluster.workloads.helios_trace import import_helios
from hocket.cluster.workloads.job_set_file import import_job_set
from hocket.cluster.workloads.philly_trace import import_philly
from hocket.cluster.workloads.slurm_trace import import_slurm
from hocket.cluster.workloads.tiresias_trace import import_tiresias
from hocket.cluster.workloads.trace_jobs import ImportedJobs, TraceRequest
from hocket.errors import HocketError, UnknownNameError
from hocket.text import listed

IMPORTERS: dict[str, Callable[[TraceRequest], ImportedJobs]] = {
    "tiresias": import_tiresias,
    "gavel": import_gavel,
    "philly": import_philly,
    "alibaba": import_alibaba,
    "alibaba-2023": import_alibaba_2023,
    "helios": import_helios,
    "slurm": import_slurm,
    "jobs": import_job_set,
}

_OPTIONS = {
    "user": ("philly", "helios", "slurm"),
    "states": ("philly", "alibaba", "alibaba-2023", "helios", "slurm"),
    "attempts": ("philly", "slurm"),
    "qos": ("alibaba-2023", "slurm"),
    "job_table": ("alibaba",),
    "throughputs": ("gavel",),
    "gpu": ("gavel",),
}
"""The fields of a request that only some importers know."""


def import_trace(kind: str, request: TraceRequest) -> ImportedJobs:
    """The jobs of a trace of that ``kind``; what each importer assumes is in its docstring and its notes.

    Raises
    ------
    FormatError, HocketError
        Naming the file, the field or line, and the rule; for an option that the importer does not know.
    """
    if kind not in IMPORTERS:
        raise UnknownNameError("trace", kind, list(IMPORTERS))
    if request.limit is not None and request.limit < 1:
        raise HocketError(f"{request.limit} jobs are none; import at least 1")
    defaults = TraceRequest(path=request.path)
    for option, kinds in _OPTIONS.items():
        value = getattr(request, option)
        if value != getattr(defaults, option) and kind not in kinds:
            given = ",".join(f"{name}={of}" for name, of in value.items()) if option == "qos" else value
            named = option.replace("_", "-")
            raise HocketError(f"--{named} '{given}' is for {listed(kinds)}, not for {kind}; leave it out")
    return IMPORTERS[kind](request)
