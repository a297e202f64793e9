"""The engine's decisions when it has taken in what ranks said: instants, in the order of the clock."""

from __future__ import annotations

from dataclasses import dataclass, field

from hocket.cluster.engine.engine import end_task, end_transfer, list_changed_gpu, start_tasks, submit
from hocket.cluster.engine.placing import place_queue
from hocket.cluster.engine.records import (
    BACKWARD,
    COMPUTING,
    FORWARD,
    IN_BACKWARD,
    IN_FORWARD,
    NONE,
    READY,
    TRANSFERRING,
    WAITING,
)
from hocket.cluster.engine.state_parts import compute_state, flow_shares, network_state, transfer_lists
from hocket.cluster.engine.transfers import account, decide_transfers, occupy
from hocket.cluster.live.engine_rows import EngineRows, JobProgress


@dataclass
class Actions:
    """Things to do next: jobs to start with their GPUs; ranks that may compute; jobs whose chunk may go."""

    placed: dict[str, list[int]] = field(default_factory=dict)
    compute: list[tuple[str, int]] = field(default_factory=list)
    transfer: list[str] = field(default_factory=list)


def decide(roster: EngineRows, now: int) -> Actions:
    """Decide until nothing more has ended; ``now`` in ticks."""
    actions = Actions()
    while _instant(roster, now, actions):
        pass
    _answer(roster, actions)
    return actions


def _instant(roster: EngineRows, now: int, actions: Actions) -> bool:
    """One pass in the clock's order; whether something ended, so that another one may find more to do."""
    s, rules = roster.state, roster.rules
    ended = sum(_feed(roster, course, now) for course in roster.by_row if course is not None)
    for j in s.over[: s.counts[0]["over"]].tolist():
        # Its GPUs are free when its processes have ended.
        course = roster.by_row[j]
        assert course is not None
        roster.over.append(course)
        s.jobs[j]["stage"] = COMPUTING
    s.counts[0]["over"] = 0
    arrived, roster.arrived = roster.arrived, []
    for course in arrived:
        submit(s.jobs, s.queue, s.counts, rules, course.row)
    s.counts[0]["placed"] = 0
    if s.counts[0]["queued"] and (arrived or roster.freed):
        place_queue(s, rules, now)
    roster.freed = False
    for j in s.placed[: s.counts[0]["placed"]].tolist():
        course = roster.by_row[j]
        assert course is not None
        actions.placed[course.job.id] = s.workers["gpu"][roster.workers(course)].tolist()
    if s.counts[0]["ready"] or s.counts[0]["changed"]:
        decide_transfers(network_state(s), transfer_lists(s), flow_shares(s), rules, now)
    s.jobs["moved"][s.moved[: s.counts[0]["moved"]]] = 0
    s.counts[0]["moved"] = 0
    start_tasks(s.jobs, s.workers, s.gpus, s.touched, s.started, s.counts)
    return bool(ended) or bool(s.counts[0]["placed"])


def _feed(roster: EngineRows, course: JobProgress, now: int) -> bool:
    """Let what ranks have ended end in the engine, as far as it has begun there."""
    s, rules, j = roster.state, roster.rules, course.row
    row = s.jobs[j]
    if course in roster.over:
        return False
    fed = False
    if row["stage"] == COMPUTING:
        _leap(roster, course)
        fed = _park(roster, course)
        for rank, w in enumerate(roster.workers(course)):
            running = s.workers[w]["phase"] in (IN_FORWARD, IN_BACKWARD)
            if running and course.ended[rank] < course.tasks[rank]:
                course.ended[rank] += 1
                fed = True
                end_task(compute_state(s), rules, w, now)
        done = course.job.iterations - int(row["remaining"])
        if done > course.done:
            course.parked.clear()
            course.done, course.transferred = done, max(course.transferred, done)
    elif row["stage"] in (READY, TRANSFERRING) and course.transferred > course.done:
        if row["stage"] == READY:  # it went ahead
            account(s.jobs, j, now)
            occupy(network_state(s), j, now)
        end_transfer(compute_state(s), network_state(s), rules, j, now)
        course.done += 1
        course.chunks = 0
        course.parked.clear()
        fed = True
    return fed


def _leap(roster: EngineRows, course: JobProgress) -> None:
    """Pass at once the iterations that the job is ahead by, all but the one under way.

    After an hour without a manager they are millions; one by one they would keep everybody waiting.
    """
    ahead = min(*course.tasks, 2 * course.job.iterations) // 2 - course.done - 1
    if ahead <= 0:
        return
    row = roster.state.jobs[course.row]
    if row["num_servers"] > 0:
        ahead = min(ahead, course.transferred - course.done - 1)
        if ahead <= 0:
            return
    row["remaining"] -= ahead
    # As where they end one by one at this instant: computing has lasted longer than we have seen.
    row["gpu_wait"] -= ahead * (row["forward"] + row["backward"])
    if row["num_servers"] > 0:
        row["sent"] += ahead * row["size"]
    course.done += ahead
    course.transferred = max(course.transferred, course.done)
    course.ended = [ended + 2 * ahead for ended in course.ended]


def _park(roster: EngineRows, course: JobProgress) -> bool:
    """Let ranks that do not talk to us leave their GPUs to others; whether that changed anything."""
    s, changed = roster.state, False
    for rank, w in enumerate(roster.workers(course)):
        silent = rank not in course.here and course.tasks[rank] == course.ended[rank]
        if silent == (rank in course.parked):
            continue
        g = int(s.workers[w]["gpu"])
        if not silent:
            course.parked.discard(rank)
            s.workers[w]["phase"] = FORWARD if course.ended[rank] % 2 == 0 else BACKWARD
        elif s.workers[w]["phase"] != WAITING:
            course.parked.add(rank)
            s.workers[w]["phase"] = WAITING
            if s.gpus[g]["running"] == w:
                s.gpus[g]["running"] = NONE
        else:
            continue
        list_changed_gpu(s.gpus, s.touched, s.counts, g)
        changed = True
    return changed


def _answer(roster: EngineRows, actions: Actions) -> None:
    """Grant the requests of ranks whose task or transfer has begun in the engine, or is over there."""
    s = roster.state
    for course in roster.by_row:
        if course is None or not (course.computes or course.transfers is not None):
            continue
        name, over = course.job.id, course in roster.over
        first = int(s.jobs[course.row]["first_worker"])
        for rank, task in list(course.computes.items()):
            begun = s.workers[first + rank]["phase"] in (IN_FORWARD, IN_BACKWARD)
            free = course.free_running and not roster.shares(course, rank)
            if over or free or task < course.ended[rank] or (begun and task == course.ended[rank]):
                del course.computes[rank]
                actions.compute.append((name, rank))
        row, asked = s.jobs[course.row], course.transfers
        if asked is None:
            continue
        local = row["num_servers"] == 0
        if over or local or asked < course.done or (row["stage"] == TRANSFERRING and asked == course.done):
            course.transfers = None
            course.chunks += 1
            actions.transfer.append(name)
