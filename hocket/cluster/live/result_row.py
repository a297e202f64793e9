"""The result of a live cluster's jobs, in the simulator's row."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.policies.named_policies import policy_of
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
    measures; under a policy that preempts jobs it counts how often each was.
    """
    finished = [r for r in records if r.state == "finished"]
    if not finished:
        return None
    start_s = np.array([r.start_s for r in finished], np.float64)
    finish_s = np.array([r.finish_s for r in finished], np.float64)
    arrival_s = np.array([r.arrival_s for r in finished])
    parts = np.array([r.parts for r in finished])
    num_gpus = np.array([len(r.gpus) for r in finished])
    busy_s = float((parts[:, 0] * num_gpus).sum())
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
    if not policy_of(scheduling.policy).requeues:
        return row
    times = [r.preempted for r in finished]
    return msgspec.structs.replace(
        row,
        jobs=tuple(msgspec.structs.replace(j, preemptions=n) for j, n in zip(row.jobs, times, strict=True)),
        preemption=PreemptionRow(preemptions=sum(times)),
    )
