"""Preemption as the virtual clock has it: jobs leave their GPUs when the queue is placed."""

from __future__ import annotations

from hocket.cluster.engine.placing import end_placing, place_queue
from hocket.cluster.engine.preemption import choose_preemption, place_preempting, preempt, saving_ticks
from hocket.cluster.engine.records import NONE
from hocket.cluster.simulator.outage_clock import count_waits, end_attempt
from hocket.kernel import lean_kernel


@lean_kernel
def place_and_preempt(state, rules, clock, log, now):
    """Place the queued jobs that fit; then those for which others leave, and again those that fit."""
    num_held = place_queue(state, rules, now)
    first = choose_preemption(state, rules, now) if rules.requeues else NONE
    while first != NONE:
        save = saving_ticks(state)
        for i in range(state.counts[0].preempted):
            j = state.preempted_jobs[i]
            num = state.jobs[j].gpus
            end_attempt(state, rules, clock, log, j, 1, now)
            preempt(state, rules, j, state.jobs[j].relaunch, now + save, now)
            count_waits(state.jobs, clock.outages.attempts, j, num)
        place_preempting(state, rules, first, now)
        end_placing(state, rules, num_held)
        num_held = place_queue(state, rules, now)
        first = choose_preemption(state, rules, now)
    end_placing(state, rules, num_held)
