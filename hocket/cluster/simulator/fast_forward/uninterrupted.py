"""Stretches: iterations that nothing can interrupt, passed as one event.

* Of a job inside one server that starts to compute on all its GPUs: it stays ahead of those that wait there,
  because what is left of it becomes less and theirs stays as it is. It ends when a job comes to one of the
  GPUs who goes first (which a clock alone can see: a job placed, or one whose transfer has ended).
* Of a job on several servers that is alone on its GPUs and on its links, until another is placed on either.

Durations are whole ticks and none is zero, so what a stretch has come to at any instant is a division, exact.
"""

from __future__ import annotations

import numpy as np

from hocket.cluster.engine.engine import end_iterations, first_ready, list_changed_gpu
from hocket.cluster.engine.policies.policy_dispatch import before, key_of
from hocket.cluster.engine.records import BACKWARD, FORWARD, IN_BACKWARD, IN_FORWARD, NEVER, NONE, WAITING
from hocket.cluster.engine.transfer_progress import alone_ticks, reset
from hocket.cluster.engine.transfers import occupy, want_transfer
from hocket.kernel import lean_kernel
from hocket.sim.loop.lanes import set_time

STRETCH = np.dtype(
    [
        ("passing", np.int64),
        ("since", np.int64),  # the iteration under way when it was last looked at
        ("begun", np.int64),  # its first iteration
        ("waited", np.int64),  # for the GPUs, before that, within the iteration
        ("period", np.int64),
        ("place", np.int64),  # in ``passing``
    ],
    align=True,
)


@lean_kernel
def links_alone(jobs, ports, links, j):
    """True if no other job uses the links of job j."""
    for p in range(jobs[j].first_port, jobs[j].first_port + jobs[j].num_hops):
        if links[ports[p].link].user != p or ports[p].next != NONE:
            return False
    return True


@lean_kernel
def gpus_alone(jobs, workers, gpus, j):
    """True if no other job is on the GPUs of job j."""
    for w in range(jobs[j].first_worker, jobs[j].first_worker + jobs[j].gpus):
        if gpus[workers[w].gpu].resident != w or workers[w].next != NONE:
            return False
    return True


@lean_kernel
def may_pass(jobs, workers, gpus, ports, links, rules, j):
    """True if job j, which starts to compute on all its GPUs, can pass iterations as one.

    Not if something of it takes no time: its beginning and its end are instants of one time.
    """
    if jobs[j].remaining < 2 or jobs[j].overlaps == 1 or jobs[j].forward == 0 or jobs[j].backward == 0:
        return False
    if jobs[j].num_hops == 0 and rules.steady:
        return True
    if jobs[j].num_hops > 0 and (not links_alone(jobs, ports, links, j) or alone_ticks(jobs, rules, j) == 0):
        return False
    return gpus_alone(jobs, workers, gpus, j)


@lean_kernel
def begin_stretch(jobs, rules, stretches, passing, hands, j, now):
    """Let job j pass the iterations that remain; when it is over unless another comes."""
    period = jobs[j].forward + jobs[j].backward
    if jobs[j].num_servers > 0:
        period += alone_ticks(jobs, rules, j)
    stretches[j].begun, stretches[j].waited = now, now - jobs[j].iteration_start
    jobs[j].gpu_wait += stretches[j].waited
    stretches[j].passing = 1
    stretches[j].since, stretches[j].period = now, period
    stretches[j].place = hands[0].passing
    passing[hands[0].passing] = j
    hands[0].passing += 1
    return now + jobs[j].remaining * period


@lean_kernel
def catch_up(jobs, rules, stretches, j, now):
    """Count the iterations that job j, which passes a stretch, has completed; those yet to begin remain."""
    done = (now - stretches[j].since) // stretches[j].period
    stretches[j].since += done * stretches[j].period
    jobs[j].remaining -= done
    jobs[j].key = key_of(jobs, j, jobs[j].remaining, rules.order)
    if jobs[j].num_servers > 0:
        jobs[j].transferring += done * (stretches[j].period - jobs[j].forward - jobs[j].backward)
        jobs[j].bytes_sent += done * jobs[j].size


@lean_kernel
def close_stretch(stretches, passing, hands, j):
    """Take job j off those that pass a stretch."""
    hands[0].passing -= 1
    last = passing[hands[0].passing]
    passing[stretches[j].place] = last
    stretches[last].place = stretches[j].place
    stretches[j].passing = 0


@lean_kernel
def is_challenged(compute, rules, stretches, g, j, now):
    """True if a job that is ready for GPU g may get it before job j is through with its stretch there."""
    jobs, workers = compute.jobs, compute.workers
    if jobs[j].num_servers > 0 or not rules.steady:
        return True
    catch_up(jobs, rules, stretches, j, now)
    w = first_ready(jobs, workers, compute.gpus, g)
    return w != NONE and before(jobs, workers[w].job, j)


@lean_kernel
def end_stretch(compute, rules, clock, j, now):
    """Let job j be over: nothing has interrupted it."""
    jobs, workers, gpus = compute.jobs, compute.workers, compute.gpus
    catch_up(jobs, rules, clock.stretches, j, now)
    close_stretch(clock.stretches, clock.passing, clock.hands, j)
    for w in range(jobs[j].first_worker, jobs[j].first_worker + jobs[j].gpus):
        workers[w].phase = WAITING
        gpus[workers[w].gpu].running = NONE
        list_changed_gpu(gpus, compute.touched_gpus, compute.counts, workers[w].gpu)
    end_iterations(compute, rules, j, 0, now)


@lean_kernel
def resume(compute, network, rules, clock, j, now):
    """Let job j, in the middle of a stretch, go on event by event, as if it had come here so."""
    jobs, workers, gpus, mate = compute.jobs, compute.workers, compute.gpus, clock.groups.mate
    tree = clock.tree[: 2 * clock.hands[0].leaves]
    catch_up(jobs, rules, clock.stretches, j, now)
    close_stretch(clock.stretches, clock.passing, clock.hands, j)
    set_time(tree, clock.lanes.lane[j], NEVER)
    begun = clock.stretches[j].since
    jobs[j].iteration_start, jobs[j].workers_pending = begun, jobs[j].gpus
    if begun == clock.stretches[j].begun:
        # Waiting from an earlier time counts when this iteration is complete, which it need not come to.
        jobs[j].iteration_start -= clock.stretches[j].waited
        jobs[j].gpu_wait -= clock.stretches[j].waited
    offset, computing = now - begun, jobs[j].forward + jobs[j].backward
    # A task that ends now ends at the first instant of this time, and the next begins there: at a later one,
    # which a job's transfer without any length makes, the GPUs are taken.
    ends = clock.hands[0].turn == 1
    if offset == 0 and ends:
        phase, end = FORWARD, NEVER
    elif offset < jobs[j].forward:
        phase, end = IN_FORWARD, begun + jobs[j].forward
    elif offset == jobs[j].forward and ends:
        phase, end = BACKWARD, NEVER
    elif offset < computing:
        phase, end = IN_BACKWARD, begun + computing
    else:
        phase, end = WAITING, NEVER
    leader = workers[jobs[j].first_worker].gpu
    for w in range(jobs[j].first_worker, jobs[j].first_worker + jobs[j].gpus):
        g = workers[w].gpu
        workers[w].phase = phase
        mate[g] = NONE if w + 1 == jobs[j].first_worker + jobs[j].gpus else workers[w + 1].gpu
        if end == NEVER:
            gpus[g].running = NONE
            list_changed_gpu(gpus, compute.touched_gpus, compute.counts, g)
    if end < NEVER:
        set_time(tree, leader, end)
    if phase == WAITING:
        jobs[j].workers_pending = 0
        if offset == computing and ends:
            want_transfer(jobs, compute.batch_bytes, compute.ready, compute.counts, rules, j, now)
        else:
            jobs[j].startup_left, jobs[j].claims = rules.startup, 1
            jobs[j].per_byte = jobs[j].alone_per_byte
            reset(jobs, j, jobs[j].size, rules.chunk)
            occupy(network, j, begun + computing)
        jobs[j].stalled = 1


@lean_kernel
def resume_interrupted(compute, network, placed_jobs, rules, clock, now):
    """Let stretches go on event by event into which a job comes at this instant."""
    jobs, workers, counts = compute.jobs, compute.workers, compute.counts
    ports, links, stretches = network.ports, network.links, clock.stretches
    for i in range(counts[0].touched):
        g = compute.touched_gpus[i]
        w = compute.gpus[g].running
        if w == NONE or stretches[workers[w].job].passing == 0:
            continue
        if is_challenged(compute, rules, stretches, g, workers[w].job, now):
            resume(compute, network, rules, clock, workers[w].job, now)
    for i in range(counts[0].placed):
        j = placed_jobs[i]
        for p in range(jobs[j].first_port, jobs[j].first_port + jobs[j].num_hops):
            user = links[ports[p].link].user
            while user != NONE:
                if stretches[ports[user].job].passing == 1:
                    resume(compute, network, rules, clock, ports[user].job, now)
                user = ports[user].next
