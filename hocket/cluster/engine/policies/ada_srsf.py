"""Ada-SRSF: SRSF with AdaDUAL's admission of transfers.

Source: Wang et al., "Communication Contention Aware Scheduling of Multiple Deep Learning Training Jobs"
(2020), section IV-B, Algorithm 2.

Theorems 1 and 2: of two transfers on one link, finishing the smaller one first is best, unless the larger one
runs already and the smaller one is less than b / (2 (b + eta)) of what is left of it; then both run.

Differs from the paper
----------------------
* Algorithm 2 compares with one transfer, that of the first busiest server it looks at. Servers may each carry
  a different one; the new transfer must be small enough beside every one of them.
"""

from __future__ import annotations

from hocket.cluster.engine.policies.scheduling_policy import ADADUAL, SchedulingPolicy
from hocket.cluster.engine.records import NONE
from hocket.cluster.engine.transfer_progress import bytes_left
from hocket.kernel import lean_kernel

_TIE = 1.0 - 1e-12  # what is that close to the threshold is at the threshold

ADA_SRSF = SchedulingPolicy(name="ada-srsf", admission=ADADUAL, limit=2)


@lean_kernel
def adadual(jobs, ports, links, rules, j, now):
    """The first server of job j on which its transfer should not start now, or NONE."""
    threshold = rules.per_byte / (2.0 * (rules.per_byte + rules.eta))
    for p in range(jobs[j].first_port, jobs[j].first_port + jobs[j].num_servers):
        link = ports[p].link
        if links[link].count > 1:
            return link
        if links[link].count == 1:
            left = bytes_left(jobs, rules, ports[links[link].flow].job, now)
            if jobs[j].size > 0.0 and jobs[j].size >= threshold * left * _TIE:
                return link
    return NONE
