"""The engine's decisions when it has taken in what ranks said: instants, in the order of the clock."""

from __future__ import annotations

from hocket.cluster.engine.engine import end_task, end_transfer, list_changed_gpu, start_tasks, submit
from hocket.cluster.engine.records import (
    BACKWARD,
    COMPUTING,
    FORWARD,
    IN_BACKWARD,
    IN_FORWARD,
    NEVER,
    NONE,
    READY,
    TRANSFERRING,
    WAITING,
)
from hocket.cluster.engine.resizing import next_stop
from hocket.cluster.engine.state_parts import compute_state, flow_shares, network_state, transfer_lists
from hocket.cluster.engine.transfers import account, decide_transfers, occupy
from hocket.cluster.live.actions import Actions
from hocket.cluster.live.engine_rows import EngineRows
from hocket.cluster.live.job_progress import JobProgress
from hocket.cluster.live.placing_decisions import place


def decide(rows: EngineRows, now: int) -> Actions:
    """Decide until nothing more has ended; ``now`` in ticks."""
    actions = Actions()
    while _decide_once(rows, now, actions):
        pass
    if rows.rules.resizes or rows.rules.requeues:  # ranks wait for this, and a kernel's call takes its time
        rows.next_stop = next_stop(rows.state, rows.rules, now)
    _answer(rows, actions)
    return actions


def _decide_once(rows: EngineRows, now: int, actions: Actions) -> bool:
    """One pass in the clock's order; whether something ended, so that another one may find more to do."""
    s, rules = rows.state, rows.rules
    ended = sum(_end_tasks(rows, progress, now) for progress in rows.by_row if progress is not None)
    for j in s.ended_jobs[: s.counts[0]["over"]].tolist():
        # Its GPUs are free when its processes have ended.
        rows.ending_jobs.append(rows.job_at(j))
        s.jobs[j]["stage"] = COMPUTING
    s.counts[0]["over"] = 0
    arrived, rows.arrived_jobs = rows.arrived_jobs, []
    for progress in arrived:
        submit(s.jobs, s.queue, s.counts, s.needs, rules, progress.row)
    s.counts[0]["placed"] = 0
    looks = s.counts[0]["queued"] or rules.resizes
    if looks and (arrived or rows.has_new_room or now >= rows.next_stop):
        place(rows, now, actions)
    rows.has_new_room, rows.next_stop = False, NEVER
    for j in s.placed_jobs[: s.counts[0]["placed"]].tolist():
        progress = rows.job_at(j)
        if progress.leaves:
            continue  # it is placed when its ranks have ended
        progress.take_number(int(s.jobs[j]["gpus"]), int(s.jobs[j]["kept"]))
        actions.placements[progress.job.id] = s.workers["gpu"][rows.workers(progress)].tolist()
    if s.counts[0]["ready"] or s.counts[0]["changed"]:
        decide_transfers(network_state(s), transfer_lists(s), flow_shares(s), rules, now)
    s.jobs["moved"][s.moved_jobs[: s.counts[0]["moved"]]] = 0
    s.counts[0]["moved"] = 0
    start_tasks(s.jobs, s.workers, s.gpus, s.touched_gpus, s.started_workers, s.counts)
    return bool(ended) or bool(s.counts[0]["placed"])


def _end_tasks(rows: EngineRows, progress: JobProgress, now: int) -> bool:
    """Let what ranks have ended end in the engine, as far as it has begun there."""
    s, rules, j = rows.state, rows.rules, progress.row
    row = s.jobs[j]
    if progress in rows.ending_jobs or progress.leaves:
        return False
    fed = False
    if row["stage"] == COMPUTING:
        _skip_iterations(rows, progress)
        fed = _park(rows, progress)
        for rank, w in enumerate(rows.workers(progress)):
            running = s.workers[w]["phase"] in (IN_FORWARD, IN_BACKWARD)
            if running and progress.tasks_in_engine[rank] < progress.tasks_ended[rank]:
                progress.tasks_in_engine[rank] += 1
                fed = True
                end_task(compute_state(s), rules, w, now)
        done = progress.iterations - int(row["remaining"])
        if done > progress.iterations_done:
            progress.parked_ranks.clear()
            progress.iterations_done, progress.iterations_transferred = (
                done,
                max(progress.iterations_transferred, done),
            )
    elif row["stage"] in (READY, TRANSFERRING) and progress.iterations_transferred > progress.iterations_done:
        if row["stage"] == READY:  # it went ahead
            account(s.jobs, j, now)
            occupy(network_state(s), j, now)
        end_transfer(compute_state(s), network_state(s), rules, j, now)
        progress.iterations_done += 1
        progress.chunks_granted = 0
        progress.parked_ranks.clear()
        fed = True
    return fed


def _skip_iterations(rows: EngineRows, progress: JobProgress) -> None:
    """Pass at once the iterations that the job is ahead by, all but the one under way.

    After an hour without a manager they are millions; one by one they would keep everybody waiting.
    """
    ahead = min(*progress.tasks_ended, 2 * progress.iterations) // 2 - progress.iterations_done - 1
    if ahead <= 0:
        return
    row = rows.state.jobs[progress.row]
    if row["num_servers"] > 0:
        ahead = min(ahead, progress.iterations_transferred - progress.iterations_done - 1)
        if ahead <= 0:
            return
    row["remaining"] -= ahead
    # As where they end one by one at this instant: computing has lasted longer than we have seen.
    row["gpu_wait"] -= ahead * (row["forward"] + row["backward"])
    if row["num_servers"] > 0:
        row["bytes_sent"] += ahead * row["size"]
    progress.iterations_done += ahead
    progress.iterations_transferred = max(progress.iterations_transferred, progress.iterations_done)
    progress.tasks_in_engine = [ended + 2 * ahead for ended in progress.tasks_in_engine]


def _park(rows: EngineRows, progress: JobProgress) -> bool:
    """Let ranks that do not talk to us leave their GPUs to others; whether that changed anything."""
    s, changed = rows.state, False
    for rank, w in enumerate(rows.workers(progress)):
        silent = (
            rank not in progress.connected_ranks
            and progress.tasks_ended[rank] == progress.tasks_in_engine[rank]
        )
        if silent == (rank in progress.parked_ranks):
            continue
        g = int(s.workers[w]["gpu"])
        if not silent:
            progress.parked_ranks.discard(rank)
            s.workers[w]["phase"] = FORWARD if progress.tasks_in_engine[rank] % 2 == 0 else BACKWARD
        elif s.workers[w]["phase"] != WAITING:
            progress.parked_ranks.add(rank)
            s.workers[w]["phase"] = WAITING
            if s.gpus[g]["running"] == w:
                s.gpus[g]["running"] = NONE
        else:
            continue
        list_changed_gpu(s.gpus, s.touched_gpus, s.counts, g)
        changed = True
    return changed


def _answer(rows: EngineRows, actions: Actions) -> None:
    """Grant the requests of ranks whose task or transfer has begun in the engine, or is over there."""
    s = rows.state
    for progress in rows.by_row:
        if progress is None or not (progress.task_requests or progress.transfer_request is not None):
            continue
        name, over = progress.job.id, progress.leaves or progress in rows.ending_jobs
        first = int(s.jobs[progress.row]["first_worker"])
        for rank, task in list(progress.task_requests.items()):
            begun = s.workers[first + rank]["phase"] in (IN_FORWARD, IN_BACKWARD)
            if (
                over
                or (progress.free_running and not rows.shares(progress, rank))
                or task < progress.tasks_in_engine[rank]
                or (begun and task == progress.tasks_in_engine[rank])
            ):
                del progress.task_requests[rank]
                actions.compute.append((name, rank))
        row, asked = s.jobs[progress.row], progress.transfer_request
        if asked is None:
            continue
        local = row["num_servers"] == 0
        if (
            over
            or local
            or asked < progress.iterations_done
            or (row["stage"] == TRANSFERRING and asked == progress.iterations_done)
        ):
            progress.transfer_request = None
            progress.chunks_granted += 1
            actions.transfer.append(name)
