"""The result of a live cluster's jobs, in the simulator's row."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.jobs import JobSet
from hocket.cluster.live.job_record import Record
from hocket.cluster.results.run_statistics import ClusterRow, PreemptionRow, cluster_row
from hocket.cluster.simulator.simulate import ClusterRun


def live_row(
    records: Sequence[Record],
    cluster: Cluster,
    scheduling: Scheduling,
    *,
    source: str,
    events: int,
    wall_s: float,
) -> ClusterRow | None:
    """The row of ``cluster run --json``: of jobs that have finished, in ``records``' order; None without.

    ``source``: the file of the jobs. ``computing_s`` is what it says of the iterations that ran; what they
    took longer is waiting for GPUs, since that is all that the engine sees. What checkpoints take nobody
    measures; where jobs are preempted or resized it counts how often each was.
    """
    finished = [r for r in records if r.state == "finished"]
    if not finished:
        return None
    start_s = np.array([r.start_s for r in finished], np.float64)
    finish_s = np.array([r.finish_s for r in finished], np.float64)
    arrival_s = np.array([r.arrival_s for r in finished])
    parts = np.array([r.parts for r in finished])
    busy_s = sum(r.busy_gpu_s for r in finished)
    makespan_s = float(finish_s.max() - arrival_s.min())
    run = ClusterRun(
        scheduling=scheduling,
        arrival_s=arrival_s,
        start_s=start_s,
        finish_s=finish_s,
        gpus=tuple(tuple(divmod(g, cluster.gpus_per_server) for g in r.gpus) for r in finished),
        queueing_s=start_s - arrival_s,
        computing_s=parts[:, 0],
        gpu_wait_s=parts[:, 1],
        transferring_s=parts[:, 2],
        network_wait_s=parts[:, 3],
        busy_gpu_s=busy_s,
        makespan_s=makespan_s,
        gpu_utilization=busy_s / (makespan_s * cluster.num_gpus),
        events=events,
        wall_s=wall_s,
    )
    jobs = JobSet(jobs=tuple(r.job for r in finished), source=source)
    row = cluster_row(run, jobs, cluster)
    return _with_stops(row, finished, scheduling.resize) if scheduling.stops_jobs else row


def _with_stops(row: ClusterRow, finished: Sequence[Record], resize: bool) -> ClusterRow:
    """``row`` with how often each job was preempted and, if they are, resized."""
    jobs = tuple(
        msgspec.structs.replace(
            job,
            preemptions=record.preempted,
            shrunk=record.shrunk if resize else None,
            grown=record.grown if resize else None,
        )
        for job, record in zip(row.jobs, finished, strict=True)
    )
    toll = PreemptionRow(
        preemptions=sum(r.preempted for r in finished),
        shrunk=sum(r.shrunk for r in finished) if resize else None,
        grown=sum(r.grown for r in finished) if resize else None,
    )
    return msgspec.structs.replace(row, jobs=jobs, preemption=toll)
