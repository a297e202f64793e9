"""Claims: whose links are whose from the next chunk on, where transfers are preempted.

In order, each job that is ready to transfer or does so claims its servers, unless one before it has claimed
one of them. A job that may not claim says whose claim is in its way, and waits at that server.
"""

from __future__ import annotations

from hocket.cluster.engine.policies.policy_dispatch import transfers_before
from hocket.cluster.engine.records import NONE, READY, TRANSFERRING
from hocket.cluster.engine.wait_lists import wait_at
from hocket.kernel import lean_kernel


@lean_kernel
def may_claim(jobs, ports, links, rules, j, now):
    """True if no transfer that goes before job j's claims one of its servers."""
    behind = NONE
    for p in range(jobs[j].first_port, jobs[j].first_port + jobs[j].num_servers):
        link = ports[p].link
        other = links[link].claimant
        if other in (NONE, j, behind):
            continue
        if transfers_before(jobs, rules, other, j, now):
            jobs[j].blocker = other
            wait_at(jobs, links, j, link)
            return 0
        behind = other
    jobs[j].blocker = NONE
    wait_at(jobs, links, j, NONE)
    return 1


@lean_kernel
def queue_candidate(jobs, rules, candidates, first, n, j, now):
    """Put job j in its place among ``candidates[first:n]``, which are in order."""
    jobs[j].listed = 1
    while n > first and transfers_before(jobs, rules, j, candidates[n - 1], now):
        candidates[n] = candidates[n - 1]
        n -= 1
    candidates[n] = j


@lean_kernel
def decide_claims(jobs, ports, links, lists, n, rules, now):
    """Let the first n candidates claim their servers or lose them, from first to last.

    Lists in ``altered_jobs`` those that claim now and did not, or the other way round, and those that are
    ready and have a claim; how many. Each claim is final when it is made, since one that changes concerns
    those behind it alone: a job that gains one takes it from its holder, and behind a job that loses one
    others may gain theirs.
    """
    candidates, altered_jobs = lists.candidates, lists.altered_jobs
    num_decided = num_altered = 0
    while num_decided < n:
        j = candidates[num_decided]
        num_decided += 1
        jobs[j].listed = 0
        claims = may_claim(jobs, ports, links, rules, j, now)
        if claims != jobs[j].claims or (claims == 1 and jobs[j].stage == READY):
            altered_jobs[num_altered] = j
            num_altered += 1
        if claims == jobs[j].claims:
            continue
        jobs[j].claims = claims
        for p in range(jobs[j].first_port, jobs[j].first_port + jobs[j].num_servers):
            link = ports[p].link
            if claims == 1:
                other = links[link].claimant
                links[link].claimant = j
                if other != NONE and jobs[other].listed == 0:
                    queue_candidate(jobs, rules, candidates, num_decided, n, other, now)
                    n += 1
                continue
            if links[link].claimant == j:
                links[link].claimant = NONE
            other = links[link].waiting
            while other != NONE:
                active = jobs[other].stage == READY or jobs[other].stage == TRANSFERRING
                if jobs[other].blocker == j and jobs[other].listed == 0 and active:
                    queue_candidate(jobs, rules, candidates, num_decided, n, other, now)
                    n += 1
                other = jobs[other].next_waiting
    return num_altered
