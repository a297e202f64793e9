"""Traces, imported and simulated: no job and no second is lost, and nobody is faster than alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.gpu_type import GpuType
from hocket.cluster.results.jct_bound import bound_jct_s
from hocket.cluster.simulator.outages import Outages
from hocket.cluster.simulator.simulate import simulate
from tests.unit.cluster.traces.made_trace import MADE, made_trace
from tests.unit.cluster.traces.small_traces import imported

TYPES = (GpuType(name="a100", num_gpus=24), GpuType(name="v100", num_gpus=24))
QUOTA = 24


@pytest.mark.parametrize("options", [{}, {"user": "vc", "states": "finished", "attempts": "last"}])
@pytest.mark.parametrize("kind", list(MADE))
def test_replays_of_made_up_traces_add_up(kind: str, options: dict[str, Any], trace: Path) -> None:
    trace.write_text("\n".join(made_trace(kind, 150, 0)))
    names = {"helios": {"user", "states"}, "philly": set(options), "slurm": set(options)}[kind]
    chosen = {name: value for name, value in options.items() if name in names}
    if kind == "slurm" and chosen:
        chosen["user"] = "Account"
    jobs = imported(kind, trace, **chosen).jobs
    cluster = Cluster(num_servers=6, gpus_per_server=8, gpu_types=TYPES if kind == "slurm" else ())
    scheduling = Scheduling(placement="lwf-1", policy="fair-share", jobs_per_gpu=1, quotas={"*": QUOTA})
    outages = Outages(mtbf_s=40_000, repair_s=4_000, checkpoint_every_s=1_800, seed=0)
    found = simulate(jobs, cluster, scheduling, outages=outages)
    toll = found.toll
    assert toll is not None
    parts = found.queueing_s + found.computing_s + found.gpu_wait_s + found.transferring_s
    spent = parts + found.network_wait_s + toll.lost_s
    jct = found.finish_s - found.arrival_s
    assert spent == pytest.approx(jct, rel=1e-9, abs=1e-6)
    alone = [job.iterations * (job.forward_s + job.backward_s) for job in jobs.jobs]
    assert all(jct >= [seconds * (1 - 1e-9) for seconds in alone])
    assert 0.3 < found.gpu_utilization <= 1
    assert bound_jct_s(jobs, cluster, 1) <= jct.mean() * (1 + 1e-9)
    kinds = cluster.type_of_gpu()
    for job, places in zip(jobs.jobs, found.gpus, strict=True):
        on = {cluster.types[kinds[server * 8 + gpu]].name for server, gpu in places}
        assert len(set(places)) == job.gpus
        assert on == set(job.speeds or {""})


def test_virtual_clusters_stay_within_their_quotas(trace: Path) -> None:
    trace.write_text("\n".join(made_trace("helios", 150, 0)))
    jobs = imported("helios", trace, user="vc").jobs
    quotas = {"vc0": 8, "vc1": 16, "vc2": 24}
    scheduling = Scheduling(placement="lwf-1", policy="fair-share", jobs_per_gpu=1, quotas=quotas)
    found = simulate(jobs, Cluster(num_servers=5, gpus_per_server=8), scheduling)
    most = dict.fromkeys(quotas, 0)
    for user in quotas:
        held = [
            (moment_s, change)
            for job, start_s, finish_s in zip(jobs.jobs, found.start_s, found.finish_s, strict=True)
            if job.user == user
            for moment_s, change in ((start_s, job.gpus), (finish_s, -job.gpus))
        ]
        total = 0
        for _, change in sorted(held):
            total += change
            most[user] = max(most[user], total)
    assert most == quotas
