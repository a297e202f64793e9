"""Assumptions about jobs that do not say what a simulation needs to know of them."""

from __future__ import annotations

from collections.abc import Sequence

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine import paces
from hocket.cluster.engine.policies.named_policies import policy_of
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.jobs import JobSet
from hocket.text import counted, duration_text


def assumptions(jobs: JobSet, cluster: Cluster, schedulings: Sequence[Scheduling]) -> dict[str, str]:
    """The assumptions about what jobs do not say, by the field that they hang on, a line each."""
    checkpoints = _assumed_checkpoints(jobs, schedulings)
    found = paces.assumptions(jobs, cluster) | ({"checkpoint_s": checkpoints} if checkpoints else {})
    if any(each.resize for each in schedulings) and all(j.fewest_gpus == j.gpus for j in jobs.jobs):
        found["gpus_min"] = "no job has a range of GPUs (gpus_min): none is resized"
    return found


def _assumed_checkpoints(jobs: JobSet, schedulings: Sequence[Scheduling]) -> str:
    """The assumption about what it costs to stop jobs that do not say, in a line; empty: none."""
    stopping = [each for each in schedulings if each.stops_jobs]
    if not stopping:
        return ""
    resize = any(each.resize for each in stopping)
    requeues = any(policy_of(each.policy).requeues for each in stopping)
    silent = sum(job.checkpoint_s is None and (requeues or job.fewest_gpus < job.gpus) for job in jobs.jobs)
    if not silent:
        return ""
    done = " or ".join([*["preempted"] * requeues, *["resized"] * resize])
    whose = f"{silent} of {counted(len(jobs.jobs), 'job')} without checkpoint_s"
    cost_s = stopping[0].checkpoint_s
    if cost_s is None:
        return f"{whose}: never {done}"
    return f"{whose}: {duration_text(cost_s)} to save one that is {done}, as long to restore it"
