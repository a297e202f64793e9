"""The engine's decisions of who has which GPUs: jobs that are placed, and those that leave some for it.

As :func:`hocket.cluster.simulator.preemption_clock.place_and_resize`, with two differences that ranks make. A
preempted job queues again when its ranks have ended, not at once. One that is resized has its other GPUs at
once, so that nobody else gets them, and does nothing there until its ranks have ended.
"""

from __future__ import annotations

from hocket.cluster.engine.growing import choose_growing, go_on_with_more
from hocket.cluster.engine.interruptions import stop_job
from hocket.cluster.engine.placing import end_placing, place_queue
from hocket.cluster.engine.preemption import choose_preemption, place_chosen, preempt, save_and_leave
from hocket.cluster.engine.records import NONE
from hocket.cluster.engine.shrinking import choose_shrinking, go_on_with_fewer
from hocket.cluster.live.actions import Actions, Resize
from hocket.cluster.live.engine_rows import EngineRows
from hocket.cluster.live.job_progress import JobProgress


def place(rows: EngineRows, now: int, actions: Actions) -> None:
    """Place the queued jobs that fit, then those for which others leave GPUs; after the last, jobs grow."""
    s, rules = rows.state, rows.rules
    num_held = place_queue(s, rules, now)
    while _shrink_for_one(rows, num_held, now, actions) or _preempt_for_one(rows, now, actions):
        end_placing(s, rules, num_held)
        num_held = place_queue(s, rules, now)
    end_placing(s, rules, num_held)
    while rules.resizes and _grow_one(rows, now, actions):
        pass


def _shrink_for_one(rows: EngineRows, num_held: int, now: int, actions: Actions) -> bool:
    """Let jobs give GPUs to the first that waits, if that is worth it; whether they did."""
    s, rules = rows.state, rows.rules
    first = choose_shrinking(s, rules, num_held, now) if rules.resizes else NONE
    if first == NONE:
        return False
    giving = s.preempted_jobs[: s.counts[0]["preempted"]].tolist()
    for j in giving:
        save_and_leave(s, rules, j, 0, now, now)
    place_chosen(s, rules, first, now)
    for j in giving:
        go_on_with_fewer(s, rules, j, now)
        _note_resize(rows, j, rows.job_at(first).job.id, now, actions)
    return True


def _preempt_for_one(rows: EngineRows, now: int, actions: Actions) -> bool:
    """Let jobs leave for the first queued one for which that is worth it; whether there is one."""
    s, rules = rows.state, rows.rules
    first = choose_preemption(s, rules, now) if rules.requeues else NONE
    if first == NONE:
        return False
    for j in s.preempted_jobs[: s.counts[0]["preempted"]].tolist():
        progress = rows.job_at(j)
        preempt(s, rules, j, 0, now, now)
        rows.leave_queue(j)
        rows.begin_leaving(progress)
        actions.preemptions[progress.job.id] = rows.job_at(first).job.id
    place_chosen(s, rules, first, now)
    return True


def _grow_one(rows: EngineRows, now: int, actions: Actions) -> bool:
    """Let the first job take idle GPUs for which that is worth it; whether there is one."""
    s, rules = rows.state, rows.rules
    j, num = choose_growing(s, rules, now)
    if j == NONE:
        return False
    save_and_leave(s, rules, j, 0, now, now)
    go_on_with_more(s, rules, j, num, now)
    _note_resize(rows, j, "", now, actions)
    return True


def _note_resize(rows: EngineRows, j: int, ahead: str, now: int, actions: Actions) -> None:
    """Let job j, which has its other GPUs, wait there for the end of its ranks."""
    progress: JobProgress = rows.job_at(j)
    rows.begin_leaving(progress)
    stop_job(rows.state, j, now)
    first, num = (int(rows.state.jobs[j][name]) for name in ("first_worker", "gpus"))
    gpus = rows.state.workers["gpu"][first : first + num].tolist()
    actions.resizes[progress.job.id] = Resize(tuple(gpus), ahead)
