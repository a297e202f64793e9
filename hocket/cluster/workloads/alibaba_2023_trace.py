"""Alibaba's GPU trace of 2023 (``openb_pod_list_*.csv``; Weng et al., USENIX ATC 2023): tasks as pods.

Columns: ``name``; ``cpu_milli``; ``memory_mib``; ``num_gpu``; ``gpu_milli``, thousandths of a GPU where that
is one; ``gpu_spec``, the types that it may run on (``V100M16|V100M32``; empty: any); ``qos`` (LS, latency
sensitive; Guaranteed; Burstable; BE, best effort); ``pod_phase`` (Succeeded, Running, Pending, Failed);
``creation_time``, ``deletion_time``, ``scheduled_time``, seconds (empty: never). Read are all but the CPUs
and the memory.

Assumed: each pod is a job, of no user, that arrives when it was created and computes from when it was
scheduled until it was deleted; those without a GPU, never scheduled or over at once are left out. One that
still ran is over when the trace is. It runs on the types that it asked for, on each at speed 1. A part of a
GPU has that part of a GPU's memory. Best effort has priority 0, Burstable 1, LS and Guaranteed 2. What was
trained is not known: times and size are those of a model of the contention paper's Table III, drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from hocket.cluster.gpu_type import TYPE_RULE, is_type_name
from hocket.cluster.jobs import Job
from hocket.cluster.workloads.trace_jobs import (
    GPU_BYTES,
    ImportedJobs,
    TraceRequest,
    check_qos,
    job_of_duration,
    job_set,
    model_draws,
)
from hocket.cluster.workloads.trace_notes import (
    DRAWN_NOTE,
    DURATION_NOTE,
    PART_NOTE,
    Tally,
    qos_note,
    typed_note,
)
from hocket.cluster.workloads.trace_rows import Table, TraceRow, read_rows

_PODS = Table(
    (
        *("name", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase"),
        *("creation_time", "deletion_time", "scheduled_time"),
    )
)
_QOS = {"BE": 0, "Burstable": 1, "Guaranteed": 2, "LS": 2}
_WHOLE = 1000


def import_alibaba_2023(request: TraceRequest) -> ImportedJobs:
    """The jobs of Alibaba's list of pods.

    Raises
    ------
    FormatError, UnknownNameError
        Naming the file, the line and the rule; for a quality of service that no job has.
    """
    tally = Tally(request, "Succeeded")
    found: set[str] = set()
    priorities = _QOS if request.qos is None else request.qos
    jobs = job_set(_jobs(request, priorities, tally, found), request)
    check_qos(request, found)
    notes = (
        DRAWN_NOTE.replace(", size and memory", " and size"),
        DURATION_NOTE + ", from when a pod was scheduled to when it was deleted",
        "jobs have no user: the trace does not say whose they are",
        qos_note(priorities),
        PART_NOTE,
        *typed_note(jobs.jobs),
        *tally.notes(),
    )
    return ImportedJobs(jobs, notes)


def _jobs(
    request: TraceRequest, priorities: Mapping[str, int], tally: Tally, found: set[str]
) -> Iterator[Job]:
    lines: dict[str, int] = {}
    for row, model in zip(read_rows(request.path, _PODS), model_draws(request.seed), strict=False):
        qos = row.cells["qos"]
        found.add(qos)
        gpus = row.whole("num_gpu")
        if not gpus:
            tally.leave_out("no GPU")
        elif not row.says("scheduled_time"):
            tally.leave_out("never began")
        elif not row.says("deletion_time"):
            tally.leave_out("not over")
        elif (duration_s := row.number("deletion_time") - row.number("scheduled_time")) <= 0:
            tally.leave_out("over at once")
        elif tally.takes(row.cells["pod_phase"]):
            name = row.new_id("name", lines)
            yield msgspec.structs.replace(
                job_of_duration(name, gpus, row.number("creation_time"), duration_s, model),
                memory_bytes=_part(row, gpus) * GPU_BYTES,
                speeds=_speeds(row),
                priority=priorities.get(qos, 0),
            )


def _part(row: TraceRow, gpus: int) -> float:
    """The part of each of its GPUs that a pod has."""
    milli = row.whole("gpu_milli", 1) if row.says("gpu_milli") else _WHOLE
    if milli > _WHOLE or (gpus > 1 and milli < _WHOLE):
        row.refuse("gpu_milli", f"{milli} of {gpus} GPUs is no part of one, up to 1000; several are whole")
    return milli / _WHOLE


def _speeds(row: TraceRow) -> dict[str, float]:
    """Speed 1 on each type that a pod may run on; none: on any."""
    if not row.says("gpu_spec"):
        return {}
    names = [name.lower() for name in row.cells["gpu_spec"].split("|") if name]
    for name in names:
        if not is_type_name(name):
            row.refuse("gpu_spec", f"'{name}': {TYPE_RULE}")
    return dict.fromkeys(names, 1.0)
