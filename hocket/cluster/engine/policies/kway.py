"""k-way: AdaDUAL for any number of running transfers (future work of Wang et al. 2020, section VII).

A new transfer starts now iff on each of its servers, taken by itself, the finish times of its transfers and
the new one add up to no more than if it started after the first of them has finished, or the second, and so
on. With one running this is AdaDUAL's comparison (Theorems 1 and 2), which also neglects startups.

Nothing that may still come is foreseen, and a transfer that waits is looked at again when one on its servers
has ended.
"""

from __future__ import annotations

import numpy as np

from hocket.cluster.engine.policies.scheduling_policy import KWAY, SchedulingPolicy
from hocket.cluster.engine.records import NONE
from hocket.cluster.engine.transfer_progress import bytes_left
from hocket.kernel import lean_kernel

_UNLIMITED = 2**31
_TIE = 1.0 + 1e-12  # totals that differ by rounding alone

K_WAY = SchedulingPolicy(name="kway", admission=KWAY, limit=_UNLIMITED)


@lean_kernel
def total_finish(left, n, size, after, per_byte, eta):
    """Sum of the finish times of n + 1 transfers on one link, one of which waits for the end of others.

    left (n,): bytes of those that run, ascending; size: those of the new one, which starts when ``after`` of
    them have ended. Each runs at k b + (k - 1) eta a byte (Eq. 5), so all that run move alike.
    """
    moved = time = total = 0.0  # bytes that each has moved which runs from the beginning
    ended, running, new_ends = 0, n, np.inf
    if after == 0:
        running, new_ends = n + 1, size
    while running > 0:
        until = min(left[ended] if ended < n else np.inf, new_ends)
        time += (until - moved) * (running * per_byte + (running - 1) * eta)
        moved = until
        total += time
        running -= 1
        if ended < n and left[ended] <= new_ends:
            ended += 1
            if ended == after:
                running, new_ends = running + 1, moved + size
        else:
            new_ends = np.inf
    return total


@lean_kernel
def kway(jobs, ports, links, rules, left, j, now):
    """The first server of job j on which it should wait, or NONE; left (J,): room to work in."""
    for p in range(jobs[j].first_port, jobs[j].first_port + jobs[j].num_servers):
        link, n = ports[p].link, 0
        flow = links[link].flow
        while flow != NONE:
            rest = bytes_left(jobs, rules, ports[flow].job, now)
            i = n
            while i > 0 and left[i - 1] > rest:
                left[i] = left[i - 1]
                i -= 1
            left[i] = rest
            n += 1
            flow = ports[flow].next_flow
        if n == 0:
            continue
        at_once = total_finish(left, n, jobs[j].size, 0, rules.per_byte, rules.eta)
        for after in range(1, n + 1):
            later = total_finish(left, n, jobs[j].size, after, rules.per_byte, rules.eta)
            if at_once > later * _TIE:
                return link
    return NONE
