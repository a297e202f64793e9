"""Jumps: iterations of a job whose transfers overlap its computing, passed as one event while it is alone.

The course of such an iteration depends on what the one before has left to send. A job on several servers that
has its GPUs and its links for itself settles, after a few iterations, into one that repeats itself: what it
has left to send when it begins to compute is what it had one iteration before, to the byte and the tick. From
then on each takes as long as that one, until a job is placed beside it. None is while none queues or arrives,
so it jumps to the last time before the next arrival, or outage, at which an iteration begins, or to its last.

Everything that its future depends on is compared: nothing about the cluster or the policy is assumed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hocket.cluster.engine.policies.policy_dispatch import key_of
from hocket.cluster.engine.records import COMPUTING, NEVER, TRANSFERRING
from hocket.cluster.simulator.fast_forward.uninterrupted import gpus_alone, links_alone
from hocket.kernel import lean_kernel

JUMP = np.dtype(
    [
        # The transfer as it was left when the latest iteration began to compute on all GPUs, if ``known``.
        ("known", np.int64),
        ("since", np.int64),  # when that was
        ("batches_arrived", np.int64),
        ("elapsed", np.int64),  # since its transfer's record was brought up to date
        ("startup_left", np.int64),
        ("chunk_left", np.float64),
        ("later", np.float64),
        ("per_byte", np.float64),
        ("placements", np.int64),  # how many there had been on the cluster
        ("transferring", np.int64),
        # The jump under way.
        ("iterations", np.int64),  # 0 without one
        ("period", np.int64),
        ("exposed", np.int64),  # what its transferring grows by in each
        ("leader", np.int64),  # the GPU in whose lane its group is
    ],
    align=True,
)


class JumpLimits(NamedTuple):
    """The cluster beside a job that may jump: what keeps it from doing so, or ends its jump."""

    placements: int  # how many there have been
    next_come: int  # when a job arrives, or a server goes down or comes back; NEVER without that


@lean_kernel
def _remember(jobs, jumps, placements, j, now):
    """Take down how job j begins an iteration; whether it began the one before so, and nobody came since."""
    past = jumps[j]
    sends = jobs[j].stage == TRANSFERRING
    elapsed = now - jobs[j].moving_since if sends else 0
    startup_left = jobs[j].startup_left if sends else 0
    chunk_left = jobs[j].chunk_left if sends else 0.0
    later = jobs[j].later if sends else 0.0
    per_byte = jobs[j].per_byte if sends else 0.0
    same = (
        past.known == 1
        and past.placements == placements
        and past.batches_arrived == jobs[j].batches_arrived
        and past.elapsed == elapsed
        and past.startup_left == startup_left
        and past.chunk_left == chunk_left
        and past.later == later
        and past.per_byte == per_byte
    )
    jumps[j].known, jumps[j].placements, jumps[j].batches_arrived = 1, placements, jobs[j].batches_arrived
    jumps[j].elapsed, jumps[j].startup_left = elapsed, startup_left
    jumps[j].chunk_left, jumps[j].later, jumps[j].per_byte = chunk_left, later, per_byte
    return same


@lean_kernel
def jump(compute, network, jumps, limits, j, leader, now):
    """Let job j, which begins to compute an iteration on all its GPUs, jump; when it lands, or NEVER.

    leader: the GPU in whose lane its group is.
    """
    jobs, until = compute.jobs, limits.next_come
    # A job that has waited for a GPU since its iteration began is not alone on it.
    if (
        compute.counts[0].queued > 0
        or jobs[j].iteration_start + jobs[j].stalls != now
        or jobs[j].forward == 0
        or not (jobs[j].stage == COMPUTING or (jobs[j].stage == TRANSFERRING and jobs[j].claims == 1))
        or not links_alone(jobs, network.ports, network.links, j)
        or not gpus_alone(jobs, compute.workers, compute.gpus, j)
    ):
        jumps[j].known = 0
        return NEVER
    period = now - jumps[j].since
    exposed = jobs[j].transferring - jumps[j].transferring
    same = _remember(jobs, jumps, limits.placements, j, now)
    jumps[j].since, jumps[j].transferring = now, jobs[j].transferring
    if not same:
        return NEVER
    # Those yet to begin: the one under way is not complete, nor is the one before it if that is not sent.
    iterations = jobs[j].remaining - (2 if jobs[j].batches_arrived < jobs[j].num_batches else 1)
    if until != NEVER:
        iterations = min(iterations, (until - 1 - now) // period)
    if iterations < 1:
        return NEVER
    jumps[j].iterations, jumps[j].period, jumps[j].exposed = iterations, period, exposed
    jumps[j].leader = leader
    return now + iterations * period


@lean_kernel
def land(jobs, batch_bytes, rules, jumps, j):
    """Let job j, which has jumped, be where it was, so many iterations later."""
    iterations = jumps[j].iterations
    by = iterations * jumps[j].period
    jumps[j].iterations = 0
    jumps[j].since += by
    jobs[j].iteration_start += by
    jobs[j].since += by
    jobs[j].moving_since += by
    jobs[j].remaining -= iterations
    jobs[j].key = key_of(jobs, j, jobs[j].remaining, rules.order)
    jobs[j].transferring += iterations * jumps[j].exposed
    jumps[j].transferring = jobs[j].transferring
    first = jobs[j].first_batch
    jobs[j].bytes_sent += iterations * batch_bytes[first : first + jobs[j].num_batches].sum()
