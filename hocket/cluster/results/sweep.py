"""Many runs: placements and policies on the same job sets, on all cores or over a Ray cluster."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.awaited_types import check_types_differ
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.engine.users import check_users
from hocket.cluster.jobs import JobSet
from hocket.cluster.results.jct_bound import bound_jct_s
from hocket.cluster.results.paired import Sweep, SweepRun, estimate, paired_rows, sweep_row
from hocket.cluster.results.run_statistics import (
    SimulatedCluster,
    figures_of,
    outage_row,
    outage_setting,
    setting_of,
)
from hocket.cluster.simulator.outages import Outages
from hocket.cluster.simulator.simulate import simulate
from hocket.errors import HocketError
from hocket.executors import Progress, on_processes, on_ray

Engine = Literal["processes", "ray"]


def sweep(
    job_sets: Sequence[tuple[JobSet, int]],
    cluster: Cluster,
    *,
    schedulings: Sequence[Scheduling],
    outages: Outages | None = None,
    engine: Engine = "processes",
    progress: Progress | None = None,
) -> Sweep:
    """Simulate every job set under each of ``schedulings``, and compare them pair by pair.

    They differ in placement or policy alone; shares, half-life and costs of checkpoints are of those policies
    that go by them.

    job_sets : each with its seed, which decides what placements draw.
    outages : of all runs; drawn by the job set's seed, so that they are the same for all schedulings.
    engine : "processes" uses all cores, "ray" a Ray cluster: the one that RAY_ADDRESS names, else one on this
        machine for as long as it takes.
    progress : called with runs done and in all.

    Raises
    ------
    HocketError
        When there is nothing to run, and as :func:`hocket.cluster.simulator.simulate.simulate` raises it.
    """
    for each in schedulings:
        each.check()  # an unknown name is refused before any process starts
        check_users(each, (job for jobs, _ in job_sets for job in jobs.jobs))
        check_types_differ(each, cluster)
    settings = [(each.placement, each.policy) for each in schedulings]
    if not job_sets or not settings:
        raise HocketError("a sweep needs at least one job set, one placement and one policy")
    if len(set(settings)) < len(settings):
        raise HocketError("a placement or policy is named twice; name each once")
    began = time.perf_counter()
    tasks = [
        (
            jobs,
            cluster,
            dataclasses.replace(scheduling, seed=seed),
            None if outages is None else dataclasses.replace(outages, seed=seed),
        )
        for scheduling in schedulings
        for jobs, seed in job_sets
    ]
    runs = (on_ray if engine == "ray" else on_processes)(_run, tasks, progress)
    bounds_s = [bound_jct_s(jobs, cluster, schedulings[0].jobs_per_gpu) for jobs, _ in job_sets]
    count = len(job_sets)
    rows = tuple(
        sweep_row(placement, policy, runs[k * count : (k + 1) * count])
        for k, (placement, policy) in enumerate(settings)
    )
    return Sweep(
        servers=cluster.num_servers,
        gpus_per_server=cluster.gpus_per_server,
        setting=_setting(cluster, schedulings),
        overlapping=sum(bool(job.batches) for jobs, _ in job_sets for job in jobs.jobs),
        bound_jct_s=estimate(np.array(bounds_s)),
        job_sets=count,
        rows=rows,
        pairs=paired_rows(rows),
        wall_s=time.perf_counter() - began,
        outages=None if outages is None else outage_setting(outages),
    )


def _shares_by_users(scheduling: Scheduling) -> bool:
    """Tell whether it has what such policies alone have."""
    return bool(scheduling.shares) or scheduling.half_life_s is not None


def _setting(cluster: Cluster, schedulings: Sequence[Scheduling]) -> SimulatedCluster:
    """The setting of all, with what is of some policies alone."""
    first = next(filter(_shares_by_users, schedulings), schedulings[0])
    checkpoint_s = next((each.checkpoint_s for each in schedulings if each.checkpoint_s is not None), None)
    return setting_of(cluster, dataclasses.replace(first, checkpoint_s=checkpoint_s))


def _run(jobs: JobSet, cluster: Cluster, scheduling: Scheduling, outages: Outages | None) -> SweepRun:
    run = simulate(jobs, cluster, scheduling, outages=outages)
    found = SweepRun(
        **msgspec.structs.asdict(figures_of(run)),
        job_set=jobs.source,
        seed=scheduling.seed,
        events=run.events,
        wall_s=run.wall_s,
    )
    if run.toll is None:
        return found
    toll = outage_row(run.toll)
    return msgspec.structs.replace(
        found,
        went_down=toll.went_down,
        interruptions=toll.interruptions,
        lost_gpu_hours=toll.lost_gpu_hours,
    )
