"""The engine's state of jobs, GPUs and links: arrays that its kernels modify in place."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.paces import alone_ticks, pace_rows, types_of
from hocket.cluster.engine.placement.named_placements import placement_of
from hocket.cluster.engine.policies.named_policies import policy_of
from hocket.cluster.engine.policies.srsf_requeue import MOST_PREEMPTIONS
from hocket.cluster.engine.queued_needs import QueuedNeeds, make_needs
from hocket.cluster.engine.records import (
    COUNTS,
    GPU,
    JOB,
    LINK,
    NEVER,
    NONE,
    NUM_TASKS,
    PACE,
    PORT,
    WAITING,
    WORKER,
    Floats,
    Ints,
    Records,
    Rules,
    Sites,
)
from hocket.cluster.engine.resizing import MOST_RESIZES
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.engine.users import check_quotas, user_names, user_rows
from hocket.cluster.jobs import Job, JobSet
from hocket.errors import HocketError

# Sums of services stay below, and so do times: contention and chunks have their share in the estimate.
_MOST_TICKS = 2.0**61


class EngineState(NamedTuple):
    """The engine's whole state; one row a job, a worker, a GPU, a link, a user.

    Lists that the kernels fill come with a number in ``counts``: what they are asked to look at (``queue`` in
    order, ``touched_gpus``, ``ready`` jobs, ``changed_links``, ``ended_jobs``), and what was decided at an
    instant: ``placed_jobs``, ``preempted_jobs``, ``started_workers``, and ``moved_jobs``, whose transfers
    started or stopped or have another rate.
    """

    jobs: Records  # (J,) JOB
    workers: Records  # JOB.most for each job
    gpus: Records  # (G,) GPU
    ports: Records
    links: Records  # (links,) LINK
    segments: Records  # SEGMENT: of each job its two tasks, then, if it has batches, those that these cut
    users: Records  # (U,) USER
    counts: Records  # (1,) COUNTS
    sites: Sites
    needs: QueuedNeeds
    queue: Ints  # (J,)
    touched_gpus: Ints  # (G,)
    ready: Ints  # (J,)
    changed_links: Ints  # (links,)
    ended_jobs: Ints  # (J,)
    flows: Ints  # (J,) jobs that transfer, in no order
    placed_jobs: Ints  # (J,)
    preempted_jobs: Ints  # (J,)
    started_workers: Ints  # (G,)
    offers: Ints  # of each worker, whether its job gives its GPU to another; room to work in
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
    known_users: Sequence[str] = (),
) -> tuple[EngineState, Rules, float]:
    """An empty cluster that jobs are about to come to, the rules, and the seconds of a tick.

    ``tick_s``: for who does not know all jobs in advance; else the finest with which nothing overflows.
    ``known_users``: those with the first rows; users of ``jobs`` that are not among them have rows behind.

    Raises
    ------
    UnknownNameError, HocketError
        As :meth:`Scheduling.check`; when a job can never be placed, or takes longer than can be counted.
    """
    scheduling.check()
    policy, placement = policy_of(scheduling.policy), placement_of(scheduling.placement)
    types = [types_of(job, cluster) for job in jobs.jobs]
    check_quotas(jobs.jobs, scheduling)
    chunk = float(scheduling.chunk_bytes) if policy.preemptive else math.inf
    checkpoints_s = [
        scheduling.checkpoint_s if job.checkpoint_s is None else job.checkpoint_s for job in jobs.jobs
    ]
    # A resize may lose part of an iteration under way, and as much by rounding to another number of GPUs.
    most_stops = MOST_PREEMPTIONS * policy.requeues + 2 * MOST_RESIZES * scheduling.resize
    finest_s = _tick_s(jobs, types, cluster, chunk, checkpoints_s, most_stops)
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
        by_user=policy.by_user,
        half_life=math.inf if scheduling.half_life_s is None else scheduling.half_life_s / tick_s,
        passes_over=policy.passes_over,
        requeues=policy.requeues,
        resizes=scheduling.resize,
        starvation=NEVER if scheduling.starvation_s is None else round(scheduling.starvation_s / tick_s),
        jobs_per_gpu=scheduling.jobs_per_gpu or NEVER,
        wait_for_faster=scheduling.wait_for_faster,
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
    paces, segments = pace_rows(jobs, types, cluster, tick_s)
    rows = _job_rows(jobs, types, paces, tick_s)
    widest = [max(cluster.types[kind].num_gpus for kind in mine) for mine in types]
    rows["most"] = np.minimum(rows["most"], widest)
    rows["first_worker"] = np.cumsum(rows["most"]) - rows["most"]
    for row, checkpoint_s in zip(rows, checkpoints_s, strict=True):
        row["checkpoint"] = NONE if checkpoint_s is None else round(checkpoint_s / tick_s)
        row["relaunch"] = row["launch"] + max(0, row["checkpoint"])
    rows["memory_class"], rows["waits_at"], rows["reserved"] = memory_class, NONE, NEVER
    names = user_names(known_users, jobs.jobs)
    row_of = {name: row for row, name in enumerate(names)}
    rows["user"] = [row_of[job.user] for job in jobs.jobs]
    num_jobs, num_gpus, num_links = len(rows), cluster.num_gpus, cluster.num_links
    hops = np.minimum(rows["most"], cluster.num_servers) + (num_links - cluster.num_servers)
    rows["first_port"] = np.cumsum(hops) - hops
    ports = np.zeros(int(hops.sum()), PORT)
    workers = np.zeros(int(rows["most"].sum()), WORKER)
    workers["job"] = np.repeat(np.arange(num_jobs), rows["most"])
    workers["gpu"], workers["next"], workers["phase"] = NONE, NONE, WAITING
    gpus = np.zeros(num_gpus, GPU)
    gpus["resident"], gpus["running"], gpus["type"] = NONE, NONE, cluster.type_of_gpu()
    gpus["free"] = np.array([math.floor(each.memory_bytes) for each in cluster.types])[gpus["type"]]
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
        segments=segments,
        users=user_rows(names, scheduling),
        counts=np.zeros(1, COUNTS),
        sites=Sites(
            class_memory=class_memory,
            class_fits=np.zeros((len(cluster.types), len(class_memory)), np.int64),
            pace=paces,
            rack=cluster.rack_of(),
            capacity=cluster.link_capacity() / rules.per_byte,
            batch_ticks=np.array(
                [alone_ticks(b.size_bytes, cluster, tick_s) for job in jobs.jobs for b in job.batches],
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
            promised=room(num_gpus),
        ),
        needs=make_needs(rows),
        queue=room(num_jobs),
        touched_gpus=room(num_gpus),
        ready=room(num_jobs),
        changed_links=room(num_links),
        ended_jobs=room(num_jobs),
        flows=room(num_jobs),
        placed_jobs=room(num_jobs),
        preempted_jobs=room(num_jobs),
        started_workers=room(num_gpus),
        offers=room(len(workers)),
        moved_jobs=room(num_jobs),
        candidates=room(num_jobs),
        altered_jobs=room(num_jobs),
        batch_bytes=np.array([batch.size_bytes for job in jobs.jobs for batch in job.batches], np.float64),
        bytes_left=np.zeros(num_jobs),
        rate=np.zeros(num_jobs),
        room=np.zeros(num_links),
        load=room(num_links),
    )
    count_room(state)
    return state, rules, tick_s


def count_room(state: EngineState) -> None:
    """Count anew how many GPUs of each type have room for each need of memory."""
    for kind in range(len(state.sites.class_fits)):
        free = state.gpus["free"][state.gpus["type"] == kind]
        for c, need in enumerate(state.sites.class_memory.tolist()):
            state.sites.class_fits[kind, c] = (free >= need).sum()


def _job_rows(jobs: JobSet, types: Sequence[Collection[int]], paces: Records, tick_s: float) -> Records:
    rows = np.zeros(len(jobs.jobs), JOB)
    for i, job in enumerate(jobs.jobs):
        row = rows[i]
        row["fewest"], row["gpus"], row["most"] = job.fewest_gpus, job.fewest_gpus, job.gpus
        row["iterations"] = row["remaining"] = job.iterations_on(job.fewest_gpus)
        row["work"] = job.iterations * job.gpus
        row["launch"] = round(job.startup_s / tick_s)
        row["priority"] = job.priority
        row["num_segments"], row["num_batches"] = NUM_TASKS, len(job.batches)
        row["size"], row["arrival"] = job.size_bytes, round(job.arrival_s / tick_s)
        row["types"] = sum(1 << kind for kind in types[i])
    # A type on which a job could never be placed has no times.
    computing = paces["forward"] + paces["backward"]
    rows["type"] = np.where(computing > 0, computing, NEVER).argmin(axis=1)
    suited = paces[np.arange(len(rows)), rows["type"]]
    for name in PACE.names or ():
        rows[name] = suited[name]
    # A real job may be found on GPUs of which it is said later that it does not run there.
    elsewhere = computing == 0
    paces[elsewhere] = np.broadcast_to(suited[:, None], paces.shape)[elsewhere]
    by_rank = sorted(range(len(rows)), key=lambda i: (jobs.jobs[i].arrival_s, jobs.jobs[i].id))
    rows["rank"][by_rank] = np.arange(len(rows))
    rows["draw"] = np.arange(len(rows))
    rows["first_batch"] = np.cumsum(rows["num_batches"]) - rows["num_batches"]
    return rows


def _tick_s(
    jobs: JobSet,
    types: Sequence[Mapping[int, Job]],
    cluster: Cluster,
    chunk: float,
    checkpoints_s: Sequence[float | None],
    most_stops: int,
) -> float:
    """The finest tick with which neither a time, nor a key, nor a load overflows.

    One job after another is an upper bound of the makespan. ``checkpoints_s``: of each job;
    ``most_stops``: how often it is stopped with one.
    """
    # Eq. 5: the transfers of the busiest server get b + eta a byte together, or better. Flows that share
    # max-min fairly fill some link, at least the narrowest.
    total_s, of_one_s = 0.0, []
    for job, mine in zip(jobs.jobs, types, strict=True):
        transfers = max(1, len(job.batches))
        chunks = transfers + (0.0 if math.isinf(chunk) else job.size_bytes / chunk)
        per_byte_s = (cluster.per_byte_s + cluster.eta_s) * cluster.oversubscription
        transfer_s = chunks * cluster.startup_s + per_byte_s * job.size_bytes
        computing_s = max(each.forward_s + each.backward_s for each in mine.values())
        service = job.iterations_on(job.fewest_gpus) * max(job.fewest_gpus, cluster.gpus_per_server)
        if job.fewest_gpus < job.gpus:  # of other numbers: rounded up to whole iterations of all of them
            service = max(service, (job.iterations + 1) * job.gpus)
        total_s += job.startup_s + service * (computing_s + transfer_s)
        of_one_s.append(computing_s + transfer_s)
    for i, checkpoint_s in enumerate(checkpoints_s):
        total_s += most_stops * (of_one_s[i] + jobs.jobs[i].startup_s + 2 * (checkpoint_s or 0.0))
    total_s += max(job.arrival_s for job in jobs.jobs)
    for digits in range(12, -1, -1):
        if total_s * 10.0**digits < _MOST_TICKS:
            return 10.0**-digits
    raise HocketError(
        f"the jobs' service adds up to {total_s:.3g} GPU seconds, more than {_MOST_TICKS:.2g}: "
        "give fewer iterations, or shorter ones"
    )
