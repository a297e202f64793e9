"""The engine: events in, actions out, without clock or I/O; durations count in queue keys and loads alone.

Its driver (the virtual clock of :mod:`hocket.cluster.simulator.clock`, or a manager of real processes)
says what has happened at an instant, in this order, and then asks for decisions:

    event in                    what it does
    end_task(worker)            a segment of a task is over; at the end of the task the GPU is idle. After the
                                last segment of all its workers a job inside one server has completed an
                                iteration, one on several is ready to transfer. With batches it begins the
                                next iteration, and is ready to transfer whenever the next batch is complete
    end_transfer(job)           an iteration is complete, or a batch has arrived for which workers may wait
    stop_transfer(job)          a chunk is over of a transfer that has lost its claim (psrsf, srpt)
    end_launch(job)             a job that was placed, and takes time to launch, begins its first iteration
    finish_jobs()               the memory of jobs with no iteration left is free
    submit(job)                 it queues

    decision                    action out
    place_queue()               ``placed_jobs`` have GPUs now, in order; who does not fit is passed over
    decide_transfers()          ``moved_jobs``: their transfer started or stopped, or has another rate
    start_tasks()               ``started_workers`` compute their next segment: those in the middle of
                                a task that need not wait; then each idle GPU takes its first ready one

Placing is in :mod:`hocket.cluster.engine.placing`, transfers are in :mod:`hocket.cluster.engine.transfers`,
segments are in :mod:`hocket.cluster.engine.segments`. Jobs transfer and compute in the order of ``key``, then
``rank``; they queue by ``priority`` and then so, or as their users share. Every function changes the state in
place and costs what it decides about, not what there is: nobody looks at all jobs. Functions take the arrays
they need, or the part of the state (:mod:`hocket.cluster.engine.state_parts`), and are compiled without
reference counting (:func:`hocket.kernel.lean_kernel`).
"""

from __future__ import annotations

from hocket.cluster.engine.policies.policy_dispatch import before, key_of, queues_before
from hocket.cluster.engine.records import (
    COMPUTING,
    FORWARD,
    HELD,
    NONE,
    QUEUED,
    WAITING,
)
from hocket.cluster.engine.transfers import account, leave, want_transfer
from hocket.cluster.engine.wait_lists import wait_at
from hocket.kernel import lean_kernel


@lean_kernel
def list_changed_gpu(gpus, touched_gpus, counts, g):
    """List a GPU that is idle now, or whose resident has become ready."""
    if gpus[g].touched == 0:
        gpus[g].touched = 1
        touched_gpus[counts[0].touched] = g
        counts[0].touched += 1


@lean_kernel
def submit(jobs, queue, counts, needs, rules, j):
    """Let job j, which has arrived, queue; until it is placed its transfers do not count."""
    jobs[j].stage = QUEUED
    jobs[j].per_iteration = jobs[j].forward + jobs[j].backward
    jobs[j].key = key_of(jobs, j, jobs[j].remaining, rules.order)
    first, end = 0, counts[0].queued
    while first < end:
        middle = (first + end) // 2
        if queues_before(jobs, j, queue[middle]):
            end = middle
        else:
            first = middle + 1
    for i in range(counts[0].queued, first, -1):
        queue[i] = queue[i - 1]
    queue[first] = j
    counts[0].queued += 1
    needs.queued[needs.of_job[j]] += 1


@lean_kernel
def _note_stall(jobs, j, now):
    """Note whether all that is left of job j's iteration waits for batches."""
    stalled = 1 if jobs[j].workers_held == jobs[j].workers_pending else 0
    if stalled != jobs[j].stalled:
        account(jobs, j, now)
        jobs[j].stalled = stalled


@lean_kernel
def begin_iteration(compute, j, now):
    """Let every worker of job j wait for its GPU, or for batches if the first segment needs some."""
    jobs, workers = compute.jobs, compute.workers
    jobs[j].iteration_start, jobs[j].workers_pending = now, jobs[j].gpus
    phase = FORWARD
    if jobs[j].overlaps == 1 and compute.segments[jobs[j].first_segment].needs > jobs[j].batches_arrived:
        phase = HELD
        jobs[j].workers_held = jobs[j].gpus
    for w in range(jobs[j].first_worker, jobs[j].first_worker + jobs[j].gpus):
        workers[w].phase = phase
        list_changed_gpu(compute.gpus, compute.touched_gpus, compute.counts, workers[w].gpu)
    _note_stall(jobs, j, now)
    jobs[j].stalls = 0


@lean_kernel
def end_launch(compute, j, now):
    """Let job j, which has had its GPUs for long enough, begin; it counts as having waited for them."""
    jobs = compute.jobs
    jobs[j].gpu_wait += jobs[j].launch
    jobs[j].launch = 0
    begin_iteration(compute, j, now)


@lean_kernel
def end_iterations(compute, rules, j, done, now):
    """Let job j have completed that many iterations, the last one now; it begins the next, or is over."""
    jobs, counts = compute.jobs, compute.counts
    jobs[j].remaining -= done
    if jobs[j].remaining > 0:
        jobs[j].key = key_of(jobs, j, jobs[j].remaining, rules.order)
        begin_iteration(compute, j, now)
    else:
        compute.ended_jobs[counts[0].over] = j
        counts[0].over += 1


@lean_kernel
def _complete_iteration(compute, rules, j):
    """Let job j, which overlaps, have one iteration less; who goes first on its GPUs may change with that."""
    jobs, workers, counts = compute.jobs, compute.workers, compute.counts
    jobs[j].remaining -= 1
    if jobs[j].remaining == 0:
        compute.ended_jobs[counts[0].over] = j
        counts[0].over += 1
        return
    jobs[j].key = key_of(jobs, j, jobs[j].remaining, rules.order)
    for w in range(jobs[j].first_worker, jobs[j].first_worker + jobs[j].gpus):
        list_changed_gpu(compute.gpus, compute.touched_gpus, compute.counts, workers[w].gpu)


@lean_kernel
def _end_computing(compute, rules, j, now):
    """Let job j, which overlaps, have computed an iteration: the next begins beside what this one sends.

    All batches of the iteration before have come: a batch is needed before its gradients are computed anew.
    """
    jobs = compute.jobs
    jobs[j].batches_arrived -= jobs[j].num_batches
    jobs[j].batches_complete -= jobs[j].num_batches
    sent = jobs[j].batches_arrived == jobs[j].num_batches
    if sent:
        _complete_iteration(compute, rules, j)
    if jobs[j].remaining > (0 if sent else 1):
        begin_iteration(compute, j, now)
    else:
        _note_stall(jobs, j, now)


@lean_kernel
def _arrive(compute, rules, j, now):
    """Let a batch of job j have arrived: workers that it kept waiting may compute, the next may be sent."""
    jobs, workers, segments = compute.jobs, compute.workers, compute.segments
    jobs[j].batches_arrived += 1
    if jobs[j].batches_arrived == jobs[j].num_batches:
        _complete_iteration(compute, rules, j)
    if jobs[j].workers_held > 0:
        for w in range(jobs[j].first_worker, jobs[j].first_worker + jobs[j].gpus):
            if workers[w].phase > HELD:
                continue
            k = HELD - workers[w].phase
            if segments[jobs[j].first_segment + k].needs <= jobs[j].batches_arrived:
                workers[w].phase = 2 * k
                jobs[j].workers_held -= 1
                list_changed_gpu(compute.gpus, compute.touched_gpus, compute.counts, workers[w].gpu)
        _note_stall(jobs, j, now)
    if jobs[j].batches_arrived < jobs[j].batches_complete:
        want_transfer(jobs, compute.batch_bytes, compute.ready, compute.counts, rules, j, now)


@lean_kernel
def pass_segment(compute, rules, j, segment, num, now):
    """Let ``num`` workers of job j, which overlaps, have passed a segment; the last one completes batches."""
    jobs, segments = compute.jobs, compute.segments
    segments[segment].workers_passed += num
    if segments[segment].workers_passed < jobs[j].gpus:
        return
    segments[segment].workers_passed = 0
    jobs[j].batches_complete = jobs[j].num_batches + segments[segment].gives
    if jobs[j].stage == COMPUTING and jobs[j].batches_arrived < jobs[j].batches_complete:
        want_transfer(jobs, compute.batch_bytes, compute.ready, compute.counts, rules, j, now)


@lean_kernel
def task_goes_on(jobs, segments, j, k):
    """True if segment k of job j is of the task that the segment before it is of."""
    segment = jobs[j].first_segment + k
    return k < jobs[j].num_segments and segments[segment].backward == segments[segment - 1].backward


@lean_kernel
def must_wait(jobs, segments, j, k):
    """True if segment k of job j may not be computed before more batches have arrived."""
    return jobs[j].overlaps == 1 and segments[jobs[j].first_segment + k].needs > jobs[j].batches_arrived


@lean_kernel
def end_task(compute, rules, w, now, mate=None):
    """Let the segment end that a worker computes, and its task, if that is the last one of it.

    mate (G,): of each GPU the next one whose worker ends the same segment now; without it w does so alone.
    """
    jobs, workers, gpus, segments = compute.jobs, compute.workers, compute.gpus, compute.segments
    j, k = workers[w].job, (workers[w].phase + 1) // 2  # the next segment
    goes_on = task_goes_on(jobs, segments, j, k)
    phase = WAITING
    if k < jobs[j].num_segments:
        phase = HELD - k if must_wait(jobs, segments, j, k) else 2 * k
    num, g = 0, workers[w].gpu
    while g != NONE:
        list_changed_gpu(gpus, compute.touched_gpus, compute.counts, g)
        workers[w if num == 0 else gpus[g].running].phase = phase
        if not goes_on:
            gpus[g].running = NONE
        num += 1
        if mate is None:  # noqa: SIM108 (numba drops the other branch where there are none)
            g = NONE
        else:
            g = mate[g]
    if jobs[j].overlaps == 1:
        segment = jobs[j].first_segment + k - 1
        pass_segment(compute, rules, j, segment, num, now)
    if phase >= 0:
        return
    if phase <= HELD:
        jobs[j].workers_held += num
        _note_stall(jobs, j, now)
        return
    jobs[j].workers_pending -= num
    if jobs[j].workers_pending > 0:
        if jobs[j].overlaps == 1:
            _note_stall(jobs, j, now)
        return
    jobs[j].gpu_wait += now - jobs[j].iteration_start - jobs[j].stalls - jobs[j].forward - jobs[j].backward
    if jobs[j].overlaps == 1:
        _end_computing(compute, rules, j, now)
    elif jobs[j].num_servers > 0:
        want_transfer(jobs, compute.batch_bytes, compute.ready, compute.counts, rules, j, now)
        jobs[j].stalled = 1
    else:
        end_iterations(compute, rules, j, 1, now)


@lean_kernel
def end_transfer(compute, network, rules, j, now):
    """Let job j's transfer end: of a batch, or of an iteration, which is complete with it."""
    jobs = compute.jobs
    jobs[j].bytes_sent += jobs[j].chunk_left + jobs[j].later
    jobs[j].chunk_left = jobs[j].later = 0.0
    jobs[j].claims = 0
    wait_at(jobs, network.links, j, NONE)  # its last chunk may have had no claim
    leave(network, j, now)
    jobs[j].stage = COMPUTING
    if jobs[j].overlaps == 1:
        _arrive(compute, rules, j, now)
    else:
        end_iterations(compute, rules, j, 1, now)


@lean_kernel
def first_ready(jobs, workers, gpus, g):
    """The worker that is ready for GPU g and goes first, or NONE."""
    first = NONE
    w = gpus[g].resident
    while w != NONE:
        ready = workers[w].phase >= 0 and workers[w].phase % 2 == 0
        if ready and (first == NONE or before(jobs, workers[w].job, workers[first].job)):
            first = w
        w = workers[w].next
    return first


@lean_kernel
def start_tasks(jobs, workers, gpus, touched_gpus, started_workers, counts):
    """Let workers in the middle of a task go on, and each touched GPU that is idle take its first ready one.

    Fills ``started_workers``. A worker in the middle of a task that has to wait for a batch leaves its GPU
    to others.
    """
    num_started = 0
    for i in range(counts[0].touched):
        g = touched_gpus[i]
        gpus[g].touched = 0
        w = gpus[g].running
        if w != NONE and workers[w].phase >= 0:
            if workers[w].phase % 2 == 1:
                continue
        else:
            w = first_ready(jobs, workers, gpus, g)
            gpus[g].running = w
        if w != NONE:
            workers[w].phase += 1
            started_workers[num_started] = w
            num_started += 1
    counts[0].touched = 0
    counts[0].started = num_started
