"""Preemption and resizing as the virtual clock has them: jobs leave their GPUs when the queue is placed."""

from __future__ import annotations

from hocket.cluster.engine.growing import choose_growing, go_on_with_more
from hocket.cluster.engine.placing import end_placing, place_queue
from hocket.cluster.engine.preemption import (
    choose_preemption,
    place_chosen,
    preempt,
    save_and_leave,
    saving_ticks,
)
from hocket.cluster.engine.records import NONE
from hocket.cluster.engine.shrinking import choose_shrinking, go_on_with_fewer
from hocket.cluster.simulator.outage_clock import count_waits, end_attempt
from hocket.kernel import lean_kernel


@lean_kernel
def _leave(state, rules, clock, log, j, save, now):
    """Let job j, which is placed, leave its GPUs to be resized, once they have saved for so many ticks."""
    num = state.jobs[j].gpus
    end_attempt(state, rules, clock, log, j, 1, now)
    save_and_leave(state, rules, j, state.jobs[j].relaunch, now + save, now)
    count_waits(state.jobs, clock.outages.attempts, j, num)


@lean_kernel
def _shrink_for_one(state, rules, clock, log, num_held, now):
    """Let jobs give GPUs to the first that waits, if that is worth it; whether they did."""
    first = choose_shrinking(state, rules, num_held, now) if rules.resizes else NONE
    if first == NONE:
        return False
    save = saving_ticks(state)
    for i in range(state.counts[0].preempted):
        _leave(state, rules, clock, log, state.preempted_jobs[i], save, now)
    place_chosen(state, rules, first, now)
    for i in range(state.counts[0].preempted):
        go_on_with_fewer(state, rules, state.preempted_jobs[i], now)
    return True


@lean_kernel
def _preempt_for_one(state, rules, clock, log, now):
    """Let jobs leave for the first queued one for which that is worth it; whether there is one."""
    first = choose_preemption(state, rules, now) if rules.requeues else NONE
    if first == NONE:
        return False
    save = saving_ticks(state)
    for i in range(state.counts[0].preempted):
        j = state.preempted_jobs[i]
        num = state.jobs[j].gpus
        end_attempt(state, rules, clock, log, j, 1, now)
        preempt(state, rules, j, state.jobs[j].relaunch, now + save, now)
        count_waits(state.jobs, clock.outages.attempts, j, num)
    place_chosen(state, rules, first, now)
    return True


@lean_kernel
def place_and_resize(state, rules, clock, log, now):
    """Place the queued jobs that fit; then those for which others give GPUs or leave; again those that fit.

    Where nobody is left in the queue, jobs grow.
    """
    num_held = place_queue(state, rules, now)
    while _shrink_for_one(state, rules, clock, log, num_held, now) or _preempt_for_one(
        state, rules, clock, log, now
    ):
        end_placing(state, rules, num_held)
        num_held = place_queue(state, rules, now)
    end_placing(state, rules, num_held)
    if not rules.resizes:
        return
    j, num = choose_growing(state, rules, now)
    while j != NONE:
        _leave(state, rules, clock, log, j, state.jobs[j].checkpoint, now)
        go_on_with_more(state, rules, j, num, now)
        j, num = choose_growing(state, rules, now)
