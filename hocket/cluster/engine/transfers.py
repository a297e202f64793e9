"""Transfers on links: who may start, who has to stop, and how fast they are.

All of it is local: a transfer is decided about on its own servers, so only those are looked at again
on whose links something ended; one that waited and may not start does not become startable otherwise
(:mod:`hocket.cluster.engine.wait_lists`). Claims where transfers are preempted:
:mod:`hocket.cluster.engine.link_reservations`.
"""

from __future__ import annotations

from hocket.cluster.engine.link_reservations import decide_claims, may_claim, queue_candidate
from hocket.cluster.engine.policies.policy_dispatch import before, refusing_link
from hocket.cluster.engine.records import NONE, READY, TRANSFERRING
from hocket.cluster.engine.transfer_progress import at_chunk_end, reset, update_progress
from hocket.cluster.engine.wait_lists import list_waiting, wait_at
from hocket.kernel import lean_kernel
from hocket.network.max_min import fill

# Rates closer than this (relative) are one: a transfer's end is not moved by rounding.
_SAME_RATE = 1e-12


@lean_kernel
def account(jobs, j, now):
    """Add what job j's stage has lasted to what its time went to, if nothing else of it went on."""
    if jobs[j].stalled == 1:
        if jobs[j].stage == TRANSFERRING:
            jobs[j].transferring += now - jobs[j].since
        else:
            jobs[j].network_wait += now - jobs[j].since
        jobs[j].stalls += now - jobs[j].since
    jobs[j].since = now


@lean_kernel
def want_transfer(jobs, batch_bytes, ready, counts, rules, j, now):
    """Let job j, whose gradients (those of its next batch) are complete, wait for its links."""
    account(jobs, j, now)
    jobs[j].stage, jobs[j].claims = READY, 0
    jobs[j].startup_left, jobs[j].ranked_at, jobs[j].blocker = rules.startup, NONE, NONE
    jobs[j].stopped_at = NONE
    if jobs[j].overlaps == 1:
        jobs[j].size = batch_bytes[jobs[j].first_batch + jobs[j].batches_arrived % jobs[j].num_batches]
    reset(jobs, j, jobs[j].size, rules.chunk)
    ready[counts[0].ready] = j
    counts[0].ready += 1


@lean_kernel
def _unlink_flow(ports, links, link, p):
    """Take port p off those of the link whose transfers are under way."""
    if links[link].flow == p:
        links[link].flow = ports[p].next_flow
    else:
        other = links[link].flow
        while ports[other].next_flow != p:
            other = ports[other].next_flow
        ports[other].next_flow = ports[p].next_flow


@lean_kernel
def _count(jobs, ports, links, changed_links, counts, j, by):
    """Let one transfer more use job j's links, or one less."""
    for p in range(jobs[j].first_port, jobs[j].first_port + jobs[j].num_hops):
        link = ports[p].link
        links[link].count += by
        if by > 0:
            ports[p].next_flow, links[link].flow = links[link].flow, p
            links[link].claimant = j
        else:
            _unlink_flow(ports, links, link, p)
            links[link].freed = 1
            if links[link].claimant == j:
                links[link].claimant = NONE
        if links[link].changed == 0:
            links[link].changed = 1
            changed_links[counts[0].changed] = link
            counts[0].changed += 1


@lean_kernel
def note_moved(jobs, moved_jobs, counts, j):
    """List job j among those whose transfer started or stopped or has another rate."""
    if jobs[j].moved == 0:
        jobs[j].moved = 1
        moved_jobs[counts[0].moved] = j
        counts[0].moved += 1


@lean_kernel
def occupy(network, j, now):
    """Let job j's transfer be under way since ``now``."""
    jobs, flows, counts = network.jobs, network.flows, network.counts
    jobs[j].stage, jobs[j].since, jobs[j].moving_since = TRANSFERRING, now, now
    jobs[j].flow, jobs[j].ranked_at = counts[0].flows, NONE
    flows[counts[0].flows] = j
    counts[0].flows += 1
    _count(jobs, network.ports, network.links, network.changed_links, counts, j, 1)
    note_moved(jobs, network.moved_jobs, counts, j)


@lean_kernel
def leave(network, j, now):
    """Let job j's transfer be under way no longer: it is over, or preempted."""
    jobs, flows, counts = network.jobs, network.flows, network.counts
    jobs[j].ranked_at = NONE
    account(jobs, j, now)
    counts[0].flows -= 1
    last = flows[counts[0].flows]
    flows[jobs[j].flow], jobs[last].flow = last, jobs[j].flow
    _count(jobs, network.ports, network.links, network.changed_links, counts, j, -1)


@lean_kernel
def stop_transfer(network, rules, j, now):
    """Preempt job j's transfer, whose chunk is over."""
    update_progress(network.jobs, rules, j, now)
    leave(network, j, now)
    network.jobs[j].stage, network.jobs[j].stopped_at = READY, now
    note_moved(network.jobs, network.moved_jobs, network.counts, j)


@lean_kernel
def _start(network, j, now):
    account(network.jobs, j, now)
    occupy(network, j, now)


@lean_kernel
def admit(network, lists, rules, now):
    """Start the transfers that the policy admits, of those that something has changed for, in order."""
    jobs, ports, links = network.jobs, network.ports, network.links
    candidates, left = lists.candidates, lists.bytes_left
    n = list_waiting(jobs, links, network.changed_links, lists.ready, network.counts, candidates)
    waiting = 0
    for i in range(n):
        j = candidates[i]
        jobs[j].listed = 0
        # Those before it can only make it less admissible.
        link = refusing_link(jobs, ports, links, rules, left, j, now)
        if link != NONE:
            wait_at(jobs, links, j, link)
            continue
        place = waiting
        while place > 0 and before(jobs, j, candidates[place - 1]):
            candidates[place] = candidates[place - 1]
            place -= 1
        candidates[place] = j
        waiting += 1
    started = False
    for i in range(waiting):
        j = candidates[i]
        link = refusing_link(jobs, ports, links, rules, left, j, now) if started else NONE
        wait_at(jobs, links, j, link)
        if link == NONE:
            started = True
            jobs[j].claims = 1
            _start(network, j, now)


@lean_kernel
def _busy_link(jobs, ports, links, j):
    """The first server of job j that carries a transfer, or NONE."""
    for p in range(jobs[j].first_port, jobs[j].first_port + jobs[j].num_servers):
        link = ports[p].link
        if links[link].count > 0:
            return link
    return NONE


@lean_kernel
def preempt(network, lists, rules, now):
    """Settle who claims which links; stop transfers without a claim whose chunk is over; start others."""
    jobs, ports, links = network.jobs, network.ports, network.links
    candidates, altered_jobs = lists.candidates, lists.altered_jobs
    listed = list_waiting(jobs, links, network.changed_links, lists.ready, network.counts, altered_jobs)
    n = 0
    for i in range(listed):
        j = altered_jobs[i]
        jobs[j].listed = 0
        # A job before it that claims one of its servers would have to lose that claim first.
        if jobs[j].claims == 1 or may_claim(jobs, ports, links, rules, j, now) == 1:
            queue_candidate(jobs, rules, candidates, 0, n, j, now)
            n += 1
    num_altered = decide_claims(jobs, ports, links, lists, n, rules, now)
    for i in range(num_altered):
        j = altered_jobs[i]
        if jobs[j].stage == TRANSFERRING:
            note_moved(jobs, network.moved_jobs, network.counts, j)
            if jobs[j].claims == 0 and at_chunk_end(jobs, rules, j, now):
                stop_transfer(network, rules, j, now)
    for i in range(num_altered):
        j = altered_jobs[i]
        if jobs[j].stage == READY and jobs[j].claims == 1:
            link = _busy_link(jobs, ports, links, j)
            wait_at(jobs, links, j, link)
            if link == NONE:
                _start(network, j, now)


@lean_kernel
def set_rates(network, shares, rules, now):
    """Let the transfers that share changed links have the rates that are now theirs."""
    jobs, ports, links, counts = network.jobs, network.ports, network.links, network.counts
    changed_links, moved_jobs = network.changed_links, network.moved_jobs
    if rules.max_min and counts[0].changed > 0:
        running, rate = network.flows[: counts[0].flows], shares.rate
        fill(shares.route, shares.capacity, running, rate, shares.room, shares.load)
        for j in running:
            per_byte = 1.0 / rate[j]
            if abs(per_byte - jobs[j].per_byte) > _SAME_RATE * per_byte:
                update_progress(jobs, rules, j, now)
                jobs[j].per_byte = per_byte
                note_moved(jobs, moved_jobs, counts, j)
    for i in range(counts[0].changed):
        link = changed_links[i]
        links[link].changed, links[link].freed = 0, 0
        flow = NONE if rules.max_min or rules.exclusive else links[link].flow
        while flow != NONE:
            j = ports[flow].job
            flow = ports[flow].next_flow
            most = 0
            for p in range(jobs[j].first_port, jobs[j].first_port + jobs[j].num_servers):
                most = max(most, links[ports[p].link].count)
            per_byte = most * rules.per_byte + (most - 1) * rules.eta
            if per_byte != jobs[j].per_byte:
                update_progress(jobs, rules, j, now)
                jobs[j].per_byte = per_byte
                note_moved(jobs, moved_jobs, counts, j)
    counts[0].changed = 0


@lean_kernel
def decide_transfers(network, lists, shares, rules, now):
    """Start and stop transfers, and set the rates that follow; adds to ``moved_jobs``."""
    if rules.preemptive:
        preempt(network, lists, rules, now)
    else:
        admit(network, lists, rules, now)
    set_rates(network, shares, rules, now)
