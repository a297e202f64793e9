"""Interruptions: a job that is placed leaves its GPUs and links in the middle of whatever it does.

``stop_job`` is what a manager does where a job's processes have ended before the job has; ``interrupt`` lets
it queue again with what it has kept, as it does where a server fails.
"""

from __future__ import annotations

from hocket.cluster.engine.engine import list_changed_gpu, submit
from hocket.cluster.engine.gpu_memory import take_memory
from hocket.cluster.engine.gpu_numbers import requeue_work
from hocket.cluster.engine.gpu_types import fastest_types, take_pace
from hocket.cluster.engine.placing import release_places
from hocket.cluster.engine.records import EXCLUDED, NEVER, NONE, NUM_TASKS, READY, TRANSFERRING, WAITING
from hocket.cluster.engine.state_parts import network_state
from hocket.cluster.engine.transfers import account, leave
from hocket.kernel import lean_kernel

_network_state = lean_kernel(network_state)


@lean_kernel
def _give_up_claims(network, j):
    """Free the links that job j claims, and have the jobs that wait for them looked at again."""
    jobs, ports, links, counts = network.jobs, network.ports, network.links, network.counts
    for p in range(jobs[j].first_port, jobs[j].first_port + jobs[j].num_hops):
        link = ports[p].link
        if links[link].claimant == j:
            links[link].claimant = NONE
        links[link].freed = 1
        if links[link].changed == 0:
            links[link].changed = 1
            network.changed_links[counts[0].changed] = link
            counts[0].changed += 1


@lean_kernel
def _without(listed, number, j):
    """Take job j off a list of so many; how many there are then."""
    kept = 0
    for i in range(number):
        if listed[i] != j:
            listed[kept] = listed[i]
            kept += 1
    return kept


@lean_kernel
def stop_job(state, j, now):
    """Let job j, which is placed, neither compute nor transfer; its GPUs and links are still its own."""
    jobs, workers, gpus, counts = state.jobs, state.workers, state.gpus, state.counts
    network = _network_state(state)
    if jobs[j].stage == TRANSFERRING:
        leave(network, j, now)
    elif jobs[j].stage == READY:
        account(jobs, j, now)
        _give_up_claims(network, j)
    jobs[j].claims = jobs[j].moved = 0
    counts[0].ready = _without(state.ready, counts[0].ready, j)
    counts[0].moved = _without(state.moved_jobs, counts[0].moved, j)
    for w in range(jobs[j].first_worker, jobs[j].first_worker + jobs[j].gpus):
        g = workers[w].gpu
        if gpus[g].running == w:
            gpus[g].running = NONE
            list_changed_gpu(gpus, state.touched_gpus, counts, g)
        workers[w].phase = WAITING


@lean_kernel
def _forget_place(state, j):
    """Let job j be as it was before it was placed, but for what its time went to."""
    jobs, segments, sites = state.jobs, state.segments, state.sites
    if jobs[j].overlaps == 1:
        for k in range(jobs[j].first_segment, jobs[j].first_segment + jobs[j].num_segments):
            segments[k].workers_passed = 0
        jobs[j].num_segments = NUM_TASKS
        jobs[j].overlaps = 0
    best, kind = fastest_types(sites, j, jobs[j].types), 0
    while (best >> kind) & 1 == 0:
        kind += 1
    take_pace(jobs, sites, j, kind)
    jobs[j].batches_complete = jobs[j].batches_arrived = jobs[j].workers_held = 0
    jobs[j].num_hops = jobs[j].num_servers = 0
    jobs[j].workers_pending = jobs[j].stalled = jobs[j].stalls = 0
    jobs[j].chunk_left = jobs[j].later = jobs[j].bytes_sent = 0.0
    jobs[j].blocker, jobs[j].reserved = NONE, NEVER
    if len(sites.route) > 0:
        sites.route[j, :] = NONE


@lean_kernel
def interrupt(state, rules, j, kept, launch, now):
    """Let job j, which is placed, queue again with ``kept`` complete iterations, and ``launch`` ahead."""
    jobs = state.jobs
    stop_job(state, j, now)
    release_places(state, rules, j, now)
    _forget_place(state, j)
    requeue_work(jobs, j, kept)
    jobs[j].launch = launch
    submit(jobs, state.queue, state.counts, state.needs, rules, j)


@lean_kernel
def close_server(state, rules, server, closed):
    """Place nobody on a server's GPUs any more, or again if not ``closed``."""
    for g in range(server * rules.gpus_per_server, (server + 1) * rules.gpus_per_server):
        take_memory(state.gpus, state.sites, g, EXCLUDED if closed else -EXCLUDED)
