"""The engine: events in, actions out. No clock, no I/O, no durations but those that keys and loads count.

Whoever drives it (the virtual clock of :mod:`hocket.cluster.clock`, or a manager of real processes) says what
has happened at an instant, in this order, and then asks for decisions:

    event in                    what it does
    end_task(worker)            the GPU is idle; after its last backward task a job inside one server has
                                completed an iteration, one on several is ready to transfer
    end_transfer(job)           an iteration is complete
    stop_transfer(job)          a chunk is over of a transfer that has lost its claim (psrsf, srpt)
    finish_jobs()               the memory of jobs with no iteration left is free
    submit(job)                 it queues

    decision                    action out
    place_queue()               ``placed``: jobs that have GPUs now, in queue order; who does not fit is passed
    decide_transfers()          ``moved``: jobs whose transfer started or stopped, or has another rate
    start_tasks()               ``started``: workers that compute now; each idle GPU takes its first ready one

Transfers are in :mod:`hocket.cluster.transfers`. Jobs queue, transfer and compute in the order of ``key``,
then ``rank``. Every function changes the state in place and costs what it decides about, not what there is:
nobody looks at all jobs. Those called most take the arrays they need: passing the whole state counts
references to all of it.
"""

from __future__ import annotations

from hocket.cluster.placement.dispatch import choose_gpus
from hocket.cluster.policies.dispatch import before, key_of
from hocket.cluster.records import (
    BACKWARD,
    COMPUTING,
    FINISHED,
    FORWARD,
    NONE,
    QUEUED,
    WAITING,
)
from hocket.cluster.transfers import leave, want_transfer
from hocket.kernel import kernel


@kernel
def touch(gpus, touched, counts, g):
    """List a GPU that is idle now, or whose resident has become ready."""
    if gpus[g].touched == 0:
        gpus[g].touched = 1
        touched[counts[0].touched] = g
        counts[0].touched += 1


@kernel
def submit(jobs, queue, counts, rules, j):
    """Let job j, which has arrived, queue; until it is placed its transfers do not count."""
    jobs[j].stage = QUEUED
    jobs[j].per_iteration = jobs[j].forward + jobs[j].backward
    jobs[j].key = key_of(jobs, j, jobs[j].remaining, rules.order)
    i = counts[0].queued
    while i > 0 and before(jobs, j, queue[i - 1]):
        queue[i] = queue[i - 1]
        i -= 1
    queue[i] = j
    counts[0].queued += 1


@kernel
def _begin_iteration(jobs, workers, gpus, touched, counts, j, now):
    jobs[j].stage, jobs[j].since, jobs[j].pending = COMPUTING, now, jobs[j].gpus
    for w in range(jobs[j].first_worker, jobs[j].first_worker + jobs[j].gpus):
        workers[w].phase = FORWARD
        touch(gpus, touched, counts, workers[w].gpu)


@kernel
def _take_memory(gpus, class_memory, class_fits, g, memory):
    """Take bytes of a GPU, or give them back if negative."""
    old, new = gpus[g].free, gpus[g].free - memory
    gpus[g].free = new
    for c in range(len(class_memory)):
        if new < class_memory[c] <= old:
            class_fits[c] -= 1
        elif old < class_memory[c] <= new:
            class_fits[c] += 1


@kernel
def end_iterations(jobs, workers, gpus, touched, over, counts, rules, j, done, now):
    """Let job j have completed that many iterations, the last one now; it begins the next, or is over."""
    jobs[j].remaining -= done
    if jobs[j].remaining > 0:
        jobs[j].key = key_of(jobs, j, jobs[j].remaining, rules.order)
        _begin_iteration(jobs, workers, gpus, touched, counts, j, now)
    else:
        over[counts[0].over] = j
        counts[0].over += 1


@kernel
def end_task(jobs, workers, gpus, touched, ready, over, counts, rules, w, now):
    """Let a worker's task end."""
    j, g = workers[w].job, workers[w].gpu
    gpus[g].running = NONE
    touch(gpus, touched, counts, g)
    workers[w].phase += 1
    if workers[w].phase < WAITING:
        return
    jobs[j].pending -= 1
    if jobs[j].pending > 0:
        return
    jobs[j].gpu_wait += now - jobs[j].since - jobs[j].forward - jobs[j].backward
    if jobs[j].num_servers > 0:
        want_transfer(jobs, ready, counts, rules, j, now)
    else:
        end_iterations(jobs, workers, gpus, touched, over, counts, rules, j, 1, now)


@kernel
def end_transfer(jobs, workers, gpus, touched, ports, links, changed, flows, over, counts, rules, j, now):
    """Let job j's transfer, and with it an iteration, end."""
    jobs[j].sent += jobs[j].chunk_left + jobs[j].later
    jobs[j].chunk_left = jobs[j].later = 0.0
    jobs[j].claims = 0
    leave(jobs, ports, links, changed, flows, counts, j, now)
    end_iterations(jobs, workers, gpus, touched, over, counts, rules, j, 1, now)


@kernel
def _finish(state, j, now):
    jobs, workers, gpus, ports, links = state.jobs, state.workers, state.gpus, state.ports, state.links
    memory = state.class_memory[jobs[j].memory_class]
    jobs[j].stage, jobs[j].finished = FINISHED, now
    for w in range(jobs[j].first_worker, jobs[j].first_worker + jobs[j].gpus):
        g = workers[w].gpu
        _take_memory(gpus, state.class_memory, state.class_fits, g, -memory)
        if gpus[g].resident == w:
            gpus[g].resident = workers[w].next
        else:
            other = gpus[g].resident
            while workers[other].next != w:
                other = workers[other].next
            workers[other].next = workers[w].next
    for p in range(jobs[j].first_port, jobs[j].first_port + jobs[j].num_hops):
        link = ports[p].link
        if links[link].user == p:
            links[link].user = ports[p].next
        else:
            other = links[link].user
            while ports[other].next != p:
                other = ports[other].next
            ports[other].next = ports[p].next


@kernel
def finish_jobs(state, now):
    """Let go of the jobs that are over: their memory is free, their links are no longer theirs."""
    for i in range(state.counts[0].over):
        _finish(state, state.over[i], now)
    state.counts[0].finished += state.counts[0].over
    state.counts[0].over = 0


@kernel
def _add_port(jobs, ports, links, route, rules, j, link):
    i = jobs[j].num_hops
    p = jobs[j].first_port + i
    ports[p].job, ports[p].link, ports[p].next = j, link, links[link].user
    links[link].user = p
    jobs[j].num_hops += 1
    if rules.max_min:
        route[j, i] = link


@kernel
def _connect(jobs, ports, links, rack, capacity, route, rules, j, chosen):
    """Give a job on several servers its ports: the servers', then the uplinks' of its racks if several."""
    num_servers = len(rack)
    if chosen[0] // rules.gpus_per_server == chosen[-1] // rules.gpus_per_server:
        return
    at = NONE
    for g in chosen:
        if g // rules.gpus_per_server != at:
            at = g // rules.gpus_per_server
            _add_port(jobs, ports, links, route, rules, j, at)
    jobs[j].num_servers = jobs[j].num_hops
    jobs[j].per_iteration += jobs[j].reduce
    first, last = rack[chosen[0] // rules.gpus_per_server], rack[chosen[-1] // rules.gpus_per_server]
    if len(capacity) > num_servers and first != last:
        at = NONE
        for g in chosen:
            if rack[g // rules.gpus_per_server] != at:
                at = rack[g // rules.gpus_per_server]
                _add_port(jobs, ports, links, route, rules, j, num_servers + at)
    jobs[j].alone_per_byte = rules.per_byte
    if rules.max_min:
        for p in range(jobs[j].first_port, jobs[j].first_port + jobs[j].num_hops):
            jobs[j].alone_per_byte = max(jobs[j].alone_per_byte, 1.0 / capacity[ports[p].link])


@kernel
def _place(state, rules, j, now):
    jobs, workers, gpus, ports, links = state.jobs, state.workers, state.gpus, state.ports, state.links
    chosen, memory = state.chosen, state.class_memory[jobs[j].memory_class]
    loads = (state.gpu_load, state.server_load)
    rack, capacity, option = state.rack, state.capacity, state.option
    choose_gpus(jobs, workers, gpus, ports, links, rack, capacity, loads, rules, j, memory, option, chosen)
    for i in range(jobs[j].gpus):
        w, g = jobs[j].first_worker + i, chosen[i]
        workers[w].gpu, workers[w].next = g, gpus[g].resident
        gpus[g].resident = w
        _take_memory(gpus, state.class_memory, state.class_fits, g, memory)
    _connect(jobs, ports, links, rack, capacity, state.route, rules, j, chosen[: jobs[j].gpus])
    jobs[j].key = key_of(jobs, j, jobs[j].remaining, rules.order)
    jobs[j].started = now
    _begin_iteration(jobs, workers, gpus, state.touched, state.counts, j, now)
    state.placed[state.counts[0].placed] = j
    state.counts[0].placed += 1


@kernel
def place_queue(state, rules, now):
    """Place whoever fits, in order; fills ``placed``."""
    jobs, queue, counts, class_fits = state.jobs, state.queue, state.counts, state.class_fits
    counts[0].placed = 0
    kept = 0
    for i in range(counts[0].queued):
        j = queue[i]
        if class_fits[jobs[j].memory_class] >= jobs[j].gpus:
            _place(state, rules, j, now)
        else:
            queue[kept] = j
            kept += 1
    counts[0].queued = kept


@kernel
def first_ready(jobs, workers, gpus, g):
    """The worker that is ready for GPU g and goes first, or NONE."""
    first = NONE
    w = gpus[g].resident
    while w != NONE:
        if workers[w].phase == FORWARD or workers[w].phase == BACKWARD:
            if first == NONE or before(jobs, workers[w].job, workers[first].job):
                first = w
        w = workers[w].next
    return first


@kernel
def start_tasks(jobs, workers, gpus, touched, started, counts):
    """Let each touched GPU that is idle take its first ready worker; fills ``started``."""
    num_started = 0
    for i in range(counts[0].touched):
        g = touched[i]
        gpus[g].touched = 0
        if gpus[g].running != NONE:
            continue
        w = first_ready(jobs, workers, gpus, g)
        if w != NONE:
            gpus[g].running = w
            workers[w].phase += 1
            started[num_started] = w
            num_started += 1
    counts[0].touched = 0
    counts[0].started = num_started
