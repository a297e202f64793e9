"""Transfers on links: who may start, who has to stop, and how fast they are.

All of it is local. What decides about a transfer is on its own servers, so only those are looked at again
on whose links something ended; one that waited and may not start does not become startable otherwise. A
transfer that waits says at one of its ports what for, and is looked at again when a transfer of that server
has ended.
"""

from __future__ import annotations

from hocket.cluster.policies.dispatch import before, refusing_port, transfers_before
from hocket.cluster.progress import at_chunk_end, reset, settle
from hocket.cluster.records import NONE, READY, TRANSFERRING
from hocket.kernel import kernel
from hocket.network.max_min import fill

# Rates closer than this (relative) are one: a transfer's end is not moved by rounding.
_SAME_RATE = 1e-12


@kernel
def account(jobs, j, now):
    """Add what job j's stage has lasted to what its time went to, if nothing else of it went on."""
    if jobs[j].stalled == 1:
        if jobs[j].stage == TRANSFERRING:
            jobs[j].transferring += now - jobs[j].since
        else:
            jobs[j].network_wait += now - jobs[j].since
        jobs[j].stalls += now - jobs[j].since
    jobs[j].since = now


@kernel
def want_transfer(jobs, batch_bytes, ready, counts, rules, j, now):
    """Let job j, whose gradients (those of its next batch) are complete, wait for its links."""
    account(jobs, j, now)
    jobs[j].stage, jobs[j].claims = READY, 0
    jobs[j].startup_left, jobs[j].ranked_at, jobs[j].blocker = rules.startup, NONE, NONE
    if jobs[j].overlaps == 1:
        jobs[j].size = batch_bytes[jobs[j].first_batch + jobs[j].arrived % jobs[j].num_batches]
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
            if links[link].claimant == j:
                links[link].claimant = NONE
        else:
            links[link].claimant = j
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
    jobs[j].flow, jobs[j].ranked_at = counts[0].flows, NONE
    flows[counts[0].flows] = j
    counts[0].flows += 1
    _count(jobs, ports, links, changed, counts, j, 1)
    note_moved(jobs, moved, counts, j)


@kernel
def leave(jobs, ports, links, changed, flows, counts, j, now):
    """Let job j's transfer be under way no longer: it is over, or preempted."""
    jobs[j].ranked_at = NONE
    account(jobs, j, now)
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
    account(jobs, j, now)
    occupy(jobs, ports, links, changed, flows, moved, counts, j, now)


@kernel
def _wait_at(jobs, ports, j, p):
    """Let job j's transfer wait for what its port p carries, or, if p is NONE, for nothing."""
    ports[jobs[j].first_port + jobs[j].waits_at].waits = 0
    if p != NONE:
        ports[p].waits = 1
        jobs[j].waits_at = p - jobs[j].first_port


@kernel
def _list_waiting(jobs, ports, links, changed, ready, counts, candidates):
    """Fill ``candidates`` with jobs that are ready now, and those that waited for freed links; how many."""
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
            p, j = user, ports[user].job
            user = ports[p].next
            if ports[p].waits == 0 or jobs[j].listed == 1 or jobs[j].stage != READY:
                continue
            blocker = jobs[j].blocker
            if blocker == NONE or jobs[blocker].claims == 0:
                jobs[j].listed = 1
                candidates[n] = j
                n += 1
    return n


@kernel
def admit(jobs, ports, links, changed, flows, moved, ready, counts, candidates, left, rules, now):
    """Start the transfers that the policy admits, of those that something has changed for, in order."""
    n = _list_waiting(jobs, ports, links, changed, ready, counts, candidates)
    waiting = 0
    for i in range(n):
        j = candidates[i]
        jobs[j].listed = 0
        # Those before it can only make it less admissible.
        port = refusing_port(jobs, ports, links, rules, left, j, now)
        if port != NONE:
            _wait_at(jobs, ports, j, port)
            continue
        place = waiting
        while place > 0 and before(jobs, j, candidates[place - 1]):
            candidates[place] = candidates[place - 1]
            place -= 1
        candidates[place] = j
        waiting += 1
    for i in range(waiting):
        j = candidates[i]
        port = refusing_port(jobs, ports, links, rules, left, j, now)
        _wait_at(jobs, ports, j, port)
        if port == NONE:
            jobs[j].claims = 1
            _start(jobs, ports, links, changed, flows, moved, counts, j, now)


@kernel
def _may_claim(jobs, ports, links, rules, j, now):
    """Whether no transfer that goes before job j's claims one of its servers."""
    for p in range(jobs[j].first_port, jobs[j].first_port + jobs[j].num_servers):
        other = links[ports[p].link].claimant
        if other != NONE and other != j and transfers_before(jobs, rules, other, j, now):
            jobs[j].blocker = other
            _wait_at(jobs, ports, j, p)
            return 0
    jobs[j].blocker = NONE
    _wait_at(jobs, ports, j, NONE)
    return 1


@kernel
def _queue_candidate(jobs, rules, candidates, first, n, j, now):
    """Put job j in its place among ``candidates[first:n]``, which are in order."""
    jobs[j].listed = 1
    while n > first and transfers_before(jobs, rules, j, candidates[n - 1], now):
        candidates[n] = candidates[n - 1]
        n -= 1
    candidates[n] = j


@kernel
def _settle_claims(jobs, ports, links, candidates, n, altered, rules, now):
    """Let candidates claim their servers or lose them, from first to last; lists them in ``altered``.

    Each claim is final when it is made, since one that changes concerns those behind it alone: who gains
    one takes it from whoever had it, and behind who loses one others may gain theirs.
    """
    num_altered = 0
    while num_altered < n:
        j = candidates[num_altered]
        jobs[j].listed = 0
        altered[num_altered] = j
        num_altered += 1
        claims = _may_claim(jobs, ports, links, rules, j, now)
        if claims == jobs[j].claims:
            continue
        jobs[j].claims = claims
        for p in range(jobs[j].first_port, jobs[j].first_port + jobs[j].num_servers):
            link = ports[p].link
            if claims == 1:
                other = links[link].claimant
                links[link].claimant = j
                if other != NONE and jobs[other].listed == 0:
                    _queue_candidate(jobs, rules, candidates, num_altered, n, other, now)
                    n += 1
                continue
            if links[link].claimant == j:
                links[link].claimant = NONE
            user = links[link].user
            while user != NONE:
                waits, other = ports[user].waits, ports[user].job
                user = ports[user].next
                if waits == 0 or jobs[other].blocker != j or jobs[other].listed == 1:
                    continue
                if jobs[other].stage == READY or jobs[other].stage == TRANSFERRING:
                    _queue_candidate(jobs, rules, candidates, num_altered, n, other, now)
                    n += 1
    return num_altered


@kernel
def _busy_port(jobs, ports, links, j):
    """The first port of job j whose server carries a transfer, or NONE."""
    for p in range(jobs[j].first_port, jobs[j].first_port + jobs[j].num_servers):
        if links[ports[p].link].count > 0:
            return p
    return NONE


@kernel
def preempt(jobs, ports, links, changed, flows, moved, ready, counts, candidates, altered, rules, now):
    """Settle who claims which links; stop transfers without a claim whose chunk is over; start others."""
    listed = _list_waiting(jobs, ports, links, changed, ready, counts, altered)
    n = 0
    for i in range(listed):
        j = altered[i]
        jobs[j].listed = 0
        # Whoever is before it and claims one of its servers would have to lose that claim first.
        if jobs[j].claims == 1 or _may_claim(jobs, ports, links, rules, j, now) == 1:
            _queue_candidate(jobs, rules, candidates, 0, n, j, now)
            n += 1
    num_altered = _settle_claims(jobs, ports, links, candidates, n, altered, rules, now)
    for i in range(num_altered):
        j = altered[i]
        if jobs[j].stage == TRANSFERRING:
            note_moved(jobs, moved, counts, j)
            if jobs[j].claims == 0 and at_chunk_end(jobs, rules, j, now):
                stop_transfer(jobs, ports, links, changed, flows, moved, counts, rules, j, now)
    for i in range(num_altered):
        j = altered[i]
        if jobs[j].stage == READY and jobs[j].claims == 1:
            port = _busy_port(jobs, ports, links, j)
            _wait_at(jobs, ports, j, port)
            if port == NONE:
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
        user = NONE if rules.max_min or rules.exclusive else links[link].user
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
    if rules.preemptive:
        preempt(jobs, ports, links, changed, flows, moved, ready, counts, candidates, altered, rules, now)
    else:
        admit(jobs, ports, links, changed, flows, moved, ready, counts, candidates, left, rules, now)
    set_rates(jobs, ports, links, changed, flows, moved, counts, rules, fair, now)
