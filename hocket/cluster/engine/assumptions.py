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
    return paces.assumptions(jobs, cluster) | ({"checkpoint_s": checkpoints} if checkpoints else {})


def _assumed_checkpoints(jobs: JobSet, schedulings: Sequence[Scheduling]) -> str:
    """The assumption about what preemption costs jobs that do not say, in a line; empty: none."""
    costs = [each.checkpoint_s for each in schedulings if policy_of(each.policy).requeues]
    silent = sum(job.checkpoint_s is None for job in jobs.jobs)
    if not costs or not silent:
        return ""
    whose = f"{silent} of {counted(len(jobs.jobs), 'job')} without checkpoint_s"
    if costs[0] is None:
        return f"{whose}: never preempted"
    return f"{whose}: {duration_text(costs[0])} to save one that is preempted, as long to restore it"
