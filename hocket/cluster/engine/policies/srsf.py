"""SRSF(n): shortest remaining service first, up to n transfers on a server (Wang et al. 2020, section V).

Service is time x GPUs (Tiresias calls it two-dimensional): what is left of computing, and of transfers if the
job is on several servers, as if nothing else were on the cluster.

Differs from the paper
----------------------
* A transfer starts when none of its servers carries n already. The paper speaks of links; a server has one.
"""

from __future__ import annotations

from hocket.cluster.engine.policies.scheduling_policy import SchedulingPolicy
from hocket.cluster.engine.records import NONE
from hocket.kernel import lean_kernel


def srsf(most: int) -> SchedulingPolicy:
    """SRSF with at most ``most`` transfers on each server."""
    return SchedulingPolicy(name=f"srsf-{most}", limit=most)


@lean_kernel
def remaining_service(remaining, per_iteration, gpus):
    """Ticks of service left of ``remaining`` iterations; ``per_iteration`` on each of so many GPUs."""
    return remaining * per_iteration * gpus


@lean_kernel
def full_link(jobs, ports, links, j, limit):
    """The first server of job j that carries ``limit`` transfers, or NONE."""
    for p in range(jobs[j].first_port, jobs[j].first_port + jobs[j].num_servers):
        link = ports[p].link
        if links[link].count >= limit:
            return link
    return NONE
