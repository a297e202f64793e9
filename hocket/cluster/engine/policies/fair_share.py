"""Fair share: the user goes first whose jobs have had the least of the GPUs so far, by its share.

Max-min fair sharing of one resource over time: of those who want more, the one who has had least gets it.
With GPUs as the only resource, and what was had in place of what is held, it is Dominant Resource Fairness
(Ghodsi et al., "Dominant Resource Fairness: Fair Allocation of Multiple Resource Types", NSDI 2011).

A user's service is the sum over its jobs of their GPUs times how long they had them, from placement to
end or until now, over the user's share (a weight, 1 unless it is given). Jobs queue by that, those of the
user with the least first; those of one user, and of users that have had the same, by arrival. Transfers and
tasks go by arrival, one transfer on a server, as under FIFO.

Slurm's fair tree, with users on one level, ranks so too, but its usage fades by half in a week, say. Here
nothing is forgotten: a user who comes late goes first until it has had as much as the others, by its share.
"""

from __future__ import annotations

import numpy as np

from hocket.cluster.engine.policies.scheduling_policy import ARRIVAL, SchedulingPolicy
from hocket.kernel import kernel

FAIR_SHARE = SchedulingPolicy(name="fair-share", order=ARRIVAL, by_user=True)


@kernel
def service_of(users, now):
    """GPU ticks that each user has had, by its share (U,).

    Whole numbers below 2^53 over whole shares: two that are equal on paper are equal here.
    """
    service = np.empty(len(users))
    for u in range(len(users)):
        attained = users[u].attained + users[u].held * float(now - users[u].since)
        service[u] = attained / users[u].share
    return service


@kernel
def order_by_user(jobs, users, queue, order, now):
    """Write ``queue`` (n,), jobs by priority and arrival, to ``order``: in each priority by users then."""
    service = service_of(users, now)
    by_service = np.argsort(service, kind="mergesort")
    place = np.zeros(len(users), np.int64)  # of each user; equal ones have one
    for i in range(1, len(users)):
        u, previous = by_service[i], by_service[i - 1]
        place[u] = i if service[u] > service[previous] else place[previous]
    first = 0
    while first < len(queue):
        behind = np.zeros(len(users) + 1, np.int64)
        end = first
        while end < len(queue) and jobs[queue[end]].priority == jobs[queue[first]].priority:
            behind[place[jobs[queue[end]].user] + 1] += 1
            end += 1
        at = first + np.cumsum(behind)
        for i in range(first, end):
            u = place[jobs[queue[i]].user]
            order[at[u]] = queue[i]
            at[u] += 1
        first = end
