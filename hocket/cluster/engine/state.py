"""The engine's state of jobs, GPUs and links: arrays that its kernels modify in place."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.placement.named_placements import placement_of
from hocket.cluster.engine.policies.named_policies import policy_of
from hocket.cluster.engine.records import (
    COUNTS,
    GPU,
    JOB,
    LINK,
    NEVER,
    NONE,
    PORT,
    SEGMENT,
    WAITING,
    WORKER,
    Floats,
    Ints,
    Records,
    Rules,
    Sites,
)
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.engine.segments import overlapped_segments, steady_ticks, task_segments
from hocket.cluster.jobs import Job, JobSet
from hocket.errors import HocketError

# Sums of services stay below, and so do times: contention and chunks have their share in the estimate.
_MOST_TICKS = 2.0**61
_FEWEST_TICKS = 1000  # of an iteration: durations are rounded by less than a thousandth
_NUM_TASKS = 2


class EngineState(NamedTuple):
    """The engine's whole state; one row a job, a worker, a GPU, a link.

    Lists that the kernels fill come with a number in ``counts``: what they are asked to look at (``queue`` in
    order, ``touched_gpus``, ``ready`` jobs, ``changed_links``, ``ended_jobs``), and what was decided at an
    instant: ``placed_jobs``, ``started_workers``, and ``moved_jobs``, whose transfers started or stopped or
    have another rate.
    """

    jobs: Records  # (J,) JOB
    workers: Records  # JOB.gpus for each job
    gpus: Records  # (G,) GPU
    ports: Records
    links: Records  # (links,) LINK
    segments: Records  # SEGMENT: of each job its two tasks, then, if it has batches, those that these cut
    counts: Records  # (1,) COUNTS
    sites: Sites
    queue: Ints  # (J,)
    touched_gpus: Ints  # (G,)
    ready: Ints  # (J,)
    changed_links: Ints  # (links,)
    ended_jobs: Ints  # (J,)
    flows: Ints  # (J,) jobs that transfer, in no order
    placed_jobs: Ints  # (J,)
    started_workers: Ints  # (G,)
    moved_jobs: Ints  # (J,)
    candidates: Ints  # (J,) room to work in, as are those below
    altered_jobs: Ints  # (J,)
    batch_bytes: Floats  # of each job's batches, in their order
    bytes_left: Floats  # (J,)
    rate: Floats  # (J,) bytes a tick
    room: Floats  # (links,)
    load: Ints  # (links,)


def make_state(
    jobs: JobSet,
    cluster: Cluster,
    scheduling: Scheduling,
    tick_s: float | None = None,
) -> tuple[EngineState, Rules, float]:
    """An empty cluster that jobs are about to come to, the rules, and the seconds of a tick.

    ``tick_s``: for who does not know all jobs in advance; else the finest with which nothing overflows.

    Raises
    ------
    UnknownNameError, HocketError
        As :meth:`Scheduling.check`; when a job can never be placed, or takes longer than can be counted.
    """
    scheduling.check()
    policy, placement = policy_of(scheduling.policy), placement_of(scheduling.placement)
    _check_fits(jobs, cluster)
    chunk = float(scheduling.chunk_bytes) if policy.preemptive else math.inf
    finest_s = _tick_s(jobs, cluster, chunk)
    if tick_s is None:
        tick_s = finest_s
    elif finest_s > tick_s:
        raise HocketError(
            f"the jobs take too long to count them in steps of {tick_s:g} s; give fewer iterations"
        )
    rules = Rules(
        order=policy.order,
        admission=policy.admission,
        limit=policy.limit,
        preemptive=policy.preemptive,
        exclusive=policy.exclusive and cluster.sharing == "equation5",
        steady=policy.steady,
        passes_over=policy.passes_over,
        starvation=NEVER if scheduling.starvation_s is None else round(scheduling.starvation_s / tick_s),
        jobs_per_gpu=scheduling.jobs_per_gpu or NEVER,
        placement=placement.code,
        kappa=placement.kappa,
        seed=scheduling.seed,
        startup=round(cluster.startup_s / tick_s),
        per_byte=cluster.per_byte_s / tick_s,
        eta=cluster.eta_s / tick_s,
        chunk=chunk,
        max_min=cluster.sharing == "max-min",
        gpus_per_server=cluster.gpus_per_server,
        num_servers=cluster.num_servers,
    )
    memory = np.array([math.ceil(job.memory_bytes) for job in jobs.jobs], np.int64)
    class_memory, memory_class = np.unique(memory, return_inverse=True)
    free = math.floor(cluster.gpu_memory_bytes)
    rows = _job_rows(jobs, cluster, tick_s)
    rows["memory_class"], rows["waits_at"], rows["reserved"] = memory_class, NONE, NEVER
    num_jobs, num_gpus, num_links = len(rows), cluster.num_gpus, cluster.num_links
    hops = np.minimum(rows["gpus"], cluster.num_servers) + (num_links - cluster.num_servers)
    rows["first_port"] = np.cumsum(hops) - hops
    ports = np.zeros(int(hops.sum()), PORT)
    workers = np.zeros(int(rows["gpus"].sum()), WORKER)
    workers["job"] = np.repeat(np.arange(num_jobs), rows["gpus"])
    workers["gpu"], workers["next"], workers["phase"] = NONE, NONE, WAITING
    gpus = np.zeros(num_gpus, GPU)
    gpus["resident"], gpus["running"], gpus["free"] = NONE, NONE, free
    links = np.zeros(num_links, LINK)
    for name in ("user", "flow", "waiting", "claimant"):
        links[name] = NONE

    def room(count: int) -> Ints:
        return np.zeros(count, np.int64)

    state = EngineState(
        jobs=rows,
        workers=workers,
        gpus=gpus,
        ports=ports,
        links=links,
        segments=_segment_rows(jobs, tick_s),
        counts=np.zeros(1, COUNTS),
        sites=Sites(
            class_memory=class_memory,
            class_fits=np.full(len(class_memory), num_gpus, np.int64),
            rack=cluster.rack_of(),
            capacity=cluster.link_capacity() / rules.per_byte,
            batch_ticks=np.array(
                [_alone_ticks(b.size_bytes, cluster, tick_s) for job in jobs.jobs for b in job.batches],
                np.float64,
            ),
            route=np.full((num_jobs if rules.max_min else 0, int(hops.max())), NONE, np.int64),
            gpu_load=room(num_gpus),
            server_load=room(cluster.num_servers),
            chosen=room(num_gpus),
            option=room(num_gpus),
            held=room(num_gpus),
            holder=room(num_gpus),
            opened=room(num_gpus),
        ),
        queue=room(num_jobs),
        touched_gpus=room(num_gpus),
        ready=room(num_jobs),
        changed_links=room(num_links),
        ended_jobs=room(num_jobs),
        flows=room(num_jobs),
        placed_jobs=room(num_jobs),
        started_workers=room(num_gpus),
        moved_jobs=room(num_jobs),
        candidates=room(num_jobs),
        altered_jobs=room(num_jobs),
        batch_bytes=np.array([batch.size_bytes for job in jobs.jobs for batch in job.batches], np.float64),
        bytes_left=np.zeros(num_jobs),
        rate=np.zeros(num_jobs),
        room=np.zeros(num_links),
        load=room(num_links),
    )
    return state, rules, tick_s


def _segment_rows(jobs: JobSet, tick_s: float) -> Records:
    segments = [
        segment
        for job in jobs.jobs
        for segment in (*task_segments(job, tick_s), *overlapped_segments(job, tick_s))
    ]
    rows = np.zeros(len(segments), SEGMENT)
    rows["ticks"], rows["backward"], rows["needs"], rows["gives"] = np.array(segments, np.int64).T
    return rows


def _job_rows(jobs: JobSet, cluster: Cluster, tick_s: float) -> Records:
    rows = np.zeros(len(jobs.jobs), JOB)
    for i, job in enumerate(jobs.jobs):
        row = rows[i]
        row["gpus"], row["iterations"], row["remaining"] = job.gpus, job.iterations, job.iterations
        row["forward"], row["backward"] = round(job.forward_s / tick_s), round(job.backward_s / tick_s)
        row["launch"] = round(job.startup_s / tick_s)
        row["reduce"] = _exposed_ticks(job, cluster, tick_s)
        row["num_segments"], row["num_batches"] = _NUM_TASKS, len(job.batches)
        row["overlapped_segments"] = len(overlapped_segments(job, tick_s))
        row["size"], row["arrival"] = job.size_bytes, round(job.arrival_s / tick_s)
        if row["forward"] + row["backward"] < _FEWEST_TICKS:
            raise HocketError(
                f"job '{job.id}' computes {job.forward_s + job.backward_s:g} s an iteration: beside jobs of "
                f"so many hours time is counted in steps of {tick_s:g} s; simulate it in a job set of its own"
            )
    by_rank = sorted(range(len(rows)), key=lambda i: (jobs.jobs[i].arrival_s, jobs.jobs[i].id))
    rows["rank"][by_rank] = np.arange(len(rows))
    rows["draw"] = np.arange(len(rows))
    rows["first_worker"] = np.cumsum(rows["gpus"]) - rows["gpus"]
    rows["first_batch"] = np.cumsum(rows["num_batches"]) - rows["num_batches"]
    num_segments = rows["num_segments"] + rows["overlapped_segments"]
    rows["first_segment"] = np.cumsum(num_segments) - num_segments
    return rows


def _alone_ticks(size_bytes: float, cluster: Cluster, tick_s: float) -> int:
    """Ticks that a transfer takes with its links for itself."""
    return round((cluster.startup_s + cluster.per_byte_s * size_bytes) / tick_s)


def _exposed_ticks(job: Job, cluster: Cluster, tick_s: float) -> int:
    """Ticks that its transfers alone add to an iteration's computing: all of them, unless they overlap."""
    if not job.batches:
        return _alone_ticks(job.size_bytes, cluster, tick_s)
    segments = overlapped_segments(job, tick_s)
    travel = tuple(_alone_ticks(batch.size_bytes, cluster, tick_s) for batch in job.batches)
    return steady_ticks(segments, travel) - sum(segment.ticks for segment in segments)


def _check_fits(jobs: JobSet, cluster: Cluster) -> None:
    for job in jobs.jobs:
        if job.gpus > cluster.num_gpus:
            raise HocketError(
                f"job '{job.id}' needs {job.gpus} GPUs and the cluster has {cluster.num_gpus}; "
                "it can never be placed: give the cluster more, or drop the job"
            )
        if math.ceil(job.memory_bytes) > math.floor(cluster.gpu_memory_bytes):
            raise HocketError(
                f"job '{job.id}' needs {job.memory_bytes:.15g} bytes of memory of each GPU and the cluster's "
                f"have {cluster.gpu_memory_bytes:.15g}; it can never be placed: raise the memory, or drop it"
            )


def _tick_s(jobs: JobSet, cluster: Cluster, chunk: float) -> float:
    """The finest tick with which neither a time, nor a key, nor a load overflows.

    One job after another is an upper bound of the makespan.
    """
    # Eq. 5: the transfers of the busiest server get b + eta a byte together, or better. Flows that share
    # max-min fairly fill some link, at least the narrowest.
    total_s = 0.0
    for job in jobs.jobs:
        transfers = max(1, len(job.batches))
        chunks = transfers + (0.0 if math.isinf(chunk) else job.size_bytes / chunk)
        per_byte_s = (cluster.per_byte_s + cluster.eta_s) * cluster.oversubscription
        transfer_s = chunks * cluster.startup_s + per_byte_s * job.size_bytes
        service_s = job.iterations * (job.forward_s + job.backward_s + transfer_s)
        total_s += job.startup_s + service_s * max(job.gpus, cluster.gpus_per_server)
    total_s += max(job.arrival_s for job in jobs.jobs)
    for digits in range(12, -1, -1):
        if total_s * 10.0**digits < _MOST_TICKS:
            return 10.0**-digits
    raise HocketError(
        f"the jobs' service adds up to {total_s:.3g} GPU seconds, more than {_MOST_TICKS:.2g}: "
        "give fewer iterations, or shorter ones"
    )
