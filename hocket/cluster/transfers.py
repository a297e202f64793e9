"""Transfers on links: who may start, who has to stop, and how fast they are.

All of it is local. What decides about a transfer is on its own servers, so only those are looked at again
on whose links something ended; one that waited and may not start does not become startable otherwise.
"""

from __future__ import annotations

from hocket.cluster.policies.dispatch import admits, before, transfers_before
from hocket.cluster.progress import at_chunk_end, reset, settle
from hocket.cluster.records import NONE, READY, TRANSFERRING
from hocket.kernel import kernel
from hocket.network.max_min import fill

# Rates closer than this (relative) are one: a transfer's end is not moved by rounding.
_SAME_RATE = 1e-12


@kernel
def want_transfer(jobs, ready, counts, rules, j, now):
    """Let job j, whose gradients are complete, wait for its links."""
    jobs[j].stage, jobs[j].since, jobs[j].claims = READY, now, 0
    jobs[j].startup_left = rules.startup
    reset(jobs, j, jobs[j].size, rules.chunk)
    ready[counts[0].ready] = j
    counts[0].ready += 1


@kernel
def _count(jobs, ports, links, changed, counts, j, by):
    """Let so many more transfers use job j's links."""
    for p in range(jobs[j].first_port, jobs[j].first_port + jobs[j].num_hops):
        link = ports[p].link
        links[link].count += by
        if by < 0:
            links[link].freed = 1
        if links[link].changed == 0:
            links[link].changed = 1
            changed[counts[0].changed] = link
            counts[0].changed += 1


@kernel
def note_moved(jobs, moved, counts, j):
    """List job j among those whose transfer started or stopped or has another rate."""
    if jobs[j].moved == 0:
        jobs[j].moved = 1
        moved[counts[0].moved] = j
        counts[0].moved += 1


@kernel
def occupy(jobs, ports, links, changed, flows, moved, counts, j, now):
    """Let job j's transfer be under way since ``now``."""
    jobs[j].stage, jobs[j].since, jobs[j].moving_since = TRANSFERRING, now, now
    jobs[j].flow = counts[0].flows
    flows[counts[0].flows] = j
    counts[0].flows += 1
    _count(jobs, ports, links, changed, counts, j, 1)
    note_moved(jobs, moved, counts, j)


@kernel
def leave(jobs, ports, links, changed, flows, counts, j, now):
    """Let job j's transfer be under way no longer: it is over, or preempted."""
    jobs[j].transferring += now - jobs[j].since
    jobs[j].since = now
    counts[0].flows -= 1
    last = flows[counts[0].flows]
    flows[jobs[j].flow], jobs[last].flow = last, jobs[j].flow
    _count(jobs, ports, links, changed, counts, j, -1)


@kernel
def stop_transfer(jobs, ports, links, changed, flows, moved, counts, rules, j, now):
    """Preempt job j's transfer, whose chunk is over."""
    settle(jobs, rules, j, now)
    leave(jobs, ports, links, changed, flows, counts, j, now)
    jobs[j].stage = READY
    note_moved(jobs, moved, counts, j)


@kernel
def _start(jobs, ports, links, changed, flows, moved, counts, j, now):
    jobs[j].network_wait += now - jobs[j].since
    occupy(jobs, ports, links, changed, flows, moved, counts, j, now)


@kernel
def _list_waiting(jobs, ports, links, changed, ready, counts, candidates):
    """Candidates: jobs that are ready now, and whatever transfers or waits to on freed links; how many."""
    n = 0
    for i in range(counts[0].ready):
        jobs[ready[i]].listed = 1
        candidates[n] = ready[i]
        n += 1
    counts[0].ready = 0
    for i in range(counts[0].changed):
        link = changed[i]
        if links[link].freed == 0:
            continue
        user = links[link].user
        while user != NONE:
            j = ports[user].job
            if jobs[j].listed == 0 and (jobs[j].stage == READY or jobs[j].stage == TRANSFERRING):
                jobs[j].listed = 1
                candidates[n] = j
                n += 1
            user = ports[user].next
    return n


@kernel
def admit(jobs, ports, links, changed, flows, moved, ready, counts, candidates, left, rules, now):
    """Start the transfers that the policy admits, of those that something has changed for, in order."""
    n = _list_waiting(jobs, ports, links, changed, ready, counts, candidates)
    waiting = 0
    for i in range(n):
        j = candidates[i]
        jobs[j].listed = 0
        if jobs[j].stage != READY:
            continue
        place = waiting
        while place > 0 and before(jobs, j, candidates[place - 1]):
            candidates[place] = candidates[place - 1]
            place -= 1
        candidates[place] = j
        waiting += 1
    for i in range(waiting):
        j = candidates[i]
        if admits(jobs, ports, links, rules, left, j, now):
            jobs[j].claims = 1
            _start(jobs, ports, links, changed, flows, moved, counts, j, now)


@kernel
def _may_claim(jobs, ports, links, rules, j, now):
    """Whether no transfer that goes before job j's claims one of its servers."""
    for p in range(jobs[j].first_port, jobs[j].first_port + jobs[j].num_servers):
        user = links[ports[p].link].user
        while user != NONE:
            other = ports[user].job
            if other != j and jobs[other].claims == 1 and transfers_before(jobs, rules, other, j, now):
                return 0
            user = ports[user].next
    return 1


@kernel
def _servers_idle(jobs, ports, links, j):
    for p in range(jobs[j].first_port, jobs[j].first_port + jobs[j].num_servers):
        if links[ports[p].link].count > 0:
            return False
    return True


@kernel
def preempt(jobs, ports, links, changed, flows, moved, ready, counts, candidates, altered, rules, now):
    """Settle who claims which links; stop transfers whose chunk is over and whose claim is lost; start others.

    Claims are settled from first to last, so that each is final when it is made: a claim that changes
    concerns those behind it alone.
    """
    n = _list_waiting(jobs, ports, links, changed, ready, counts, candidates)
    num_altered = 0
    while n > 0:
        first = 0
        for i in range(1, n):
            if transfers_before(jobs, rules, candidates[i], candidates[first], now):
                first = i
        j = candidates[first]
        n -= 1
        candidates[first] = candidates[n]
        jobs[j].listed = 0
        altered[num_altered] = j
        num_altered += 1
        claims = _may_claim(jobs, ports, links, rules, j, now)
        if claims == jobs[j].claims:
            continue
        jobs[j].claims = claims
        for p in range(jobs[j].first_port, jobs[j].first_port + jobs[j].num_servers):
            user = links[ports[p].link].user
            while user != NONE:
                other = ports[user].job
                active = jobs[other].stage == READY or jobs[other].stage == TRANSFERRING
                if active and other != j and jobs[other].listed == 0:
                    if transfers_before(jobs, rules, j, other, now):
                        jobs[other].listed = 1
                        candidates[n] = other
                        n += 1
                user = ports[user].next
    for i in range(num_altered):
        j = altered[i]
        if jobs[j].stage != TRANSFERRING:
            continue
        note_moved(jobs, moved, counts, j)
        if jobs[j].claims == 0 and at_chunk_end(jobs, rules, j, now):
            stop_transfer(jobs, ports, links, changed, flows, moved, counts, rules, j, now)
    for i in range(num_altered):
        j = altered[i]
        if jobs[j].stage == READY and jobs[j].claims == 1 and _servers_idle(jobs, ports, links, j):
            _start(jobs, ports, links, changed, flows, moved, counts, j, now)


@kernel
def set_rates(jobs, ports, links, changed, flows, moved, counts, rules, fair, now):
    """Let the transfers that share changed links have the rates that are now theirs.

    fair: capacity, route, rate, room and load, for max-min sharing.
    """
    capacity, route, rate, room, load = fair
    if rules.max_min and counts[0].changed > 0:
        running = flows[: counts[0].flows]
        fill(route, capacity, running, rate, room, load)
        for j in running:
            per_byte = 1.0 / rate[j]
            if abs(per_byte - jobs[j].per_byte) > _SAME_RATE * per_byte:
                settle(jobs, rules, j, now)
                jobs[j].per_byte = per_byte
                note_moved(jobs, moved, counts, j)
    for i in range(counts[0].changed):
        link = changed[i]
        links[link].changed, links[link].freed = 0, 0
        user = NONE if rules.max_min else links[link].user
        while user != NONE:
            j = ports[user].job
            user = ports[user].next
            if jobs[j].stage != TRANSFERRING:
                continue
            most = 0
            for p in range(jobs[j].first_port, jobs[j].first_port + jobs[j].num_servers):
                most = max(most, links[ports[p].link].count)
            per_byte = most * rules.per_byte + (most - 1) * rules.eta
            if per_byte != jobs[j].per_byte:
                settle(jobs, rules, j, now)
                jobs[j].per_byte = per_byte
                note_moved(jobs, moved, counts, j)
    counts[0].changed = 0


@kernel
def decide_transfers(
    jobs, ports, links, changed, flows, moved, ready, counts, candidates, altered, left, fair, rules, now
):
    """Start and stop transfers, and set the rates that follow; adds to ``moved``."""
    if counts[0].ready == 0 and counts[0].changed == 0:
        return
    if rules.preemptive:
        preempt(jobs, ports, links, changed, flows, moved, ready, counts, candidates, altered, rules, now)
    else:
        admit(jobs, ports, links, changed, flows, moved, ready, counts, candidates, left, rules, now)
    set_rates(jobs, ports, links, changed, flows, moved, counts, rules, fair, now)
