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
    place_queue()               ``placed``: jobs that have GPUs now, in order; who does not fit is passed over
    decide_transfers()          ``moved``: jobs whose transfer started or stopped, or has another rate
    start_tasks()               ``started``: workers that compute now; each idle GPU takes its first ready one

Placing is in :mod:`hocket.cluster.placing`, transfers are in :mod:`hocket.cluster.transfers`. Jobs queue,
transfer and compute in the order of ``key``, then ``rank``. Every function changes the state in place and
costs what it decides about, not what there is: nobody looks at all jobs. Functions take the arrays they need,
because passing the whole state counts references to all of it.
"""

from __future__ import annotations

from hocket.cluster.policies.dispatch import before, key_of
from hocket.cluster.records import (
    BACKWARD,
    COMPUTING,
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
def begin_iteration(jobs, workers, gpus, touched, counts, j, now):
    """Let every worker of job j wait for its GPU."""
    jobs[j].stage, jobs[j].since, jobs[j].pending = COMPUTING, now, jobs[j].gpus
    for w in range(jobs[j].first_worker, jobs[j].first_worker + jobs[j].gpus):
        workers[w].phase = FORWARD
        touch(gpus, touched, counts, workers[w].gpu)


@kernel
def end_iterations(jobs, workers, gpus, touched, over, counts, rules, j, done, now):
    """Let job j have completed that many iterations, the last one now; it begins the next, or is over."""
    jobs[j].remaining -= done
    if jobs[j].remaining > 0:
        jobs[j].key = key_of(jobs, j, jobs[j].remaining, rules.order)
        begin_iteration(jobs, workers, gpus, touched, counts, j, now)
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
def first_ready(jobs, workers, gpus, g):
    """The worker that is ready for GPU g and goes first, or NONE."""
    first = NONE
    w = gpus[g].resident
    while w != NONE:
        ready = workers[w].phase == FORWARD or workers[w].phase == BACKWARD
        if ready and (first == NONE or before(jobs, workers[w].job, workers[first].job)):
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
