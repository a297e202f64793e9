"""Jobs on the types of GPUs of a cluster: those that they can be on, and the times that they take there."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.records import PACE, SEGMENT, Records
from hocket.cluster.engine.segments import Segment, overlapped_segments, steady_ticks, task_segments
from hocket.cluster.jobs import Job, JobSet
from hocket.errors import HocketError
from hocket.text import counted, listed

_FEWEST_TICKS = 1000  # of an iteration: durations are rounded by less than a thousandth


def types_of(job: Job, cluster: Cluster) -> dict[int, Job]:
    """By the number of each type of GPU that the job can ever be placed on, the job as it computes there.

    Raises
    ------
    HocketError
        When there is none.
    """
    accepted = {
        kind: speed
        for kind, each in enumerate(cluster.types)
        if (speed := job.speed_on(each.name) if each.name else 1.0) is not None
    }
    fitting = {
        kind: _at_speed(job, speed)
        for kind, speed in accepted.items()
        if job.fewest_gpus <= cluster.types[kind].num_gpus
        and math.ceil(job.memory_bytes) <= math.floor(cluster.types[kind].memory_bytes)
    }
    if not fitting:
        raise HocketError(_lack(job, cluster, list(accepted)))
    return fitting


def assumptions(jobs: JobSet, cluster: Cluster) -> dict[str, str]:
    """The assumptions about what jobs do not say, by the field that they hang on, a line each."""
    speeds = _assumed_speeds(jobs, cluster)
    return ({"speeds": speeds} if speeds else {}) | assumed_numbers(jobs.jobs)


def assumed_numbers(jobs: Sequence[Job]) -> dict[str, str]:
    """The assumption about jobs whose number of GPUs is chosen, if there are any, by field."""
    ranging = sum(job.fewest_gpus < job.gpus for job in jobs)
    if ranging == 0:
        return {}
    line = (
        f"{ranging} of {counted(len(jobs), 'job')} may have fewer GPUs than gpus: each GPU's batch stays, so "
        "an iteration computes as long, and there are as many more of them"
    )
    return {"gpus_min": line}


def _assumed_speeds(jobs: JobSet, cluster: Cluster) -> str:
    several = len(cluster.types) > 1
    if not several and cluster.gpu_types:
        return ""
    found = sum(bool(job.speeds) != several for job in jobs.jobs)
    if found == 0:
        return ""
    whose = f"{found} of {counted(len(jobs.jobs), 'job')}"
    if several:
        return f"{whose} without speeds on types of GPUs: computing takes the same on each"
    return f"{whose} with speeds on types of GPUs, and the cluster's have no type: computing is at speed 1"


def _lack(job: Job, cluster: Cluster, accepted: Sequence[int]) -> str:
    """The reason for which a job can never be placed."""
    never = "it can never be placed"
    if not accepted:
        return (
            f"job '{job.id}' runs on {listed(list(job.speeds), 'or')} and the cluster has "
            f"{listed([each.name for each in cluster.types])}; {never}: give it a speed on one of these"
        )
    types = [cluster.types[kind] for kind in accepted]
    most = max(each.num_gpus for each in types)
    named = f" of {listed([each.name for each in types], 'or')}" if types[0].name else ""
    if job.fewest_gpus > most:
        of_one = " of one type" if len(types) > 1 else ""
        return (
            f"job '{job.id}' needs {job.fewest_gpus} GPUs{named} and the cluster has {most}{of_one}; "
            f"{never}: give the cluster more, or drop the job"
        )
    memory = max(each.memory_bytes for each in types if each.num_gpus >= job.fewest_gpus)
    return (
        f"job '{job.id}' needs {job.memory_bytes:.15g} bytes of memory of each GPU{named} and the cluster's "
        f"have {memory:.15g}; {never}: raise the memory, or drop it"
    )


def _at_speed(job: Job, speed: float) -> Job:
    """The job with the times that its computing takes at a speed; sizes and its startup stay."""
    if speed == 1.0:
        return job
    return msgspec.structs.replace(
        job,
        forward_s=job.forward_s / speed,
        backward_s=job.backward_s / speed,
        batches=tuple(
            msgspec.structs.replace(b, ready_s=b.ready_s / speed, due_s=b.due_s / speed) for b in job.batches
        ),
    )


def pace_rows(
    jobs: JobSet, types: Sequence[dict[int, Job]], cluster: Cluster, tick_s: float
) -> tuple[Records, Records]:
    """The paces (J, types) of jobs, each as it is on ``types``, and the segments of all of them.

    Raises
    ------
    HocketError
        When an iteration is too short to be counted in ticks.
    """
    paces = np.zeros((len(jobs.jobs), len(cluster.types)), PACE)
    segments: list[Segment] = []
    for row, mine in zip(paces, types, strict=True):
        for kind, job in mine.items():
            pace, overlapped = row[kind], overlapped_segments(job, tick_s)
            pace["forward"], pace["backward"] = round(job.forward_s / tick_s), round(job.backward_s / tick_s)
            if pace["forward"] + pace["backward"] < _FEWEST_TICKS:
                raise HocketError(
                    f"job '{job.id}' computes {job.forward_s + job.backward_s:g} s an iteration: beside jobs "
                    f"of so many hours time is counted in steps of {tick_s:g} s; simulate it in a job set of "
                    "its own"
                )
            pace["reduce"] = _exposed_ticks(job, cluster, tick_s)
            pace["first_segment"], pace["overlapped_segments"] = len(segments), len(overlapped)
            segments += [*task_segments(job, tick_s), *overlapped]
    rows = np.zeros(len(segments), SEGMENT)
    rows["ticks"], rows["backward"], rows["needs"], rows["gives"] = np.array(segments, np.int64).T
    return paces, rows


def alone_ticks(size_bytes: float, cluster: Cluster, tick_s: float) -> int:
    """Ticks that a transfer takes with its links for itself."""
    return round((cluster.startup_s + cluster.per_byte_s * size_bytes) / tick_s)


def _exposed_ticks(job: Job, cluster: Cluster, tick_s: float) -> int:
    """Ticks that its transfers alone add to an iteration's computing: all of them, unless they overlap."""
    if not job.batches:
        return alone_ticks(job.size_bytes, cluster, tick_s)
    segments = overlapped_segments(job, tick_s)
    travel = tuple(alone_ticks(batch.size_bytes, cluster, tick_s) for batch in job.batches)
    return steady_ticks(segments, travel) - sum(segment.ticks for segment in segments)
