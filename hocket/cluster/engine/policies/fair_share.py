"""Fair share: the user goes first whose jobs have had the least of the GPUs so far, by its share.

Max-min fair sharing of one resource over time: of those who want more, the one who has had least gets it.
With GPUs as the only resource, and what was had in place of what is held, it is Dominant Resource Fairness
(Ghodsi et al., "Dominant Resource Fairness: Fair Allocation of Multiple Resource Types", NSDI 2011).

A user's service is the sum over its jobs of their GPUs times how long they had them, from placement to
end or until now, over the user's share (a weight, 1 unless it is given). Jobs queue by that, those of the
user with the least first; those of one user, and of users that have had the same, by arrival. Transfers and
tasks go by arrival, one transfer on a server, as under FIFO.

Unless a half-life is given nothing is forgotten: a user who comes late goes first until it has had as much
as the others, by its share. With a half-life what was had so long ago counts half, and a quarter after twice
as long, as in Slurm's fair tree with users on one level (its PriorityDecayHalfLife is 7 days by default).
"""

from __future__ import annotations

import math

import numpy as np

from hocket.cluster.engine.policies.scheduling_policy import ARRIVAL, SchedulingPolicy
from hocket.kernel import kernel, lean_kernel

SAME = 1e-9
"""The relative difference below which what two users have had is the same, where old use counts less."""

FAIR_SHARE = SchedulingPolicy(name="fair-share", order=ARRIVAL, by_user=True)


@lean_kernel
def attained_by(users, u, half_life, now):
    """GPU ticks that user u's jobs have had by now, those of a half-life ago counted half.

    Each moment of what is held counts with a weight w = 2^(-age / half-life), whose integral is in closed
    form: of a level h over a time t it is h (1 - 2^(-t / half-life)) half-life / ln 2.
    """
    elapsed = float(now - users[u].since)
    if half_life == math.inf:
        return users[u].attained + users[u].held * elapsed
    rate = math.log(2.0) / half_life
    fresh = users[u].held * -math.expm1(-rate * elapsed) / rate
    return users[u].attained * math.exp(-rate * elapsed) + fresh


@kernel
def service_of(users, half_life, now):
    """GPU ticks that each user has had, by its share (U,).

    Without a half-life they are whole numbers below 2^53 over whole shares: two that are equal on paper are
    equal here. With one they are rounded, and equal if they differ by less than a billionth.
    """
    service = np.empty(len(users))
    for u in range(len(users)):
        service[u] = attained_by(users, u, half_life, now) / users[u].share
    return service


@kernel
def order_by_user(jobs, users, queue, order, half_life, now):
    """Write ``queue`` (n,), jobs by priority and arrival, to ``order``: in each priority by users then."""
    service = service_of(users, half_life, now)
    same = 1.0 if half_life == math.inf else 1.0 + SAME
    by_service = np.argsort(service, kind="mergesort")
    place = np.zeros(len(users), np.int64)  # of each user; equal ones have one
    for i in range(1, len(users)):
        u, previous = by_service[i], by_service[i - 1]
        place[u] = i if service[u] > service[previous] * same else place[previous]
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
