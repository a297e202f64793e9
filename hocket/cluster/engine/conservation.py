"""Conservation: what must hold of the engine's state after every event, whatever the policy."""

from __future__ import annotations

import numpy as np

from hocket.cluster.engine.records import (
    CLOSED,
    COMPUTING,
    EXCLUDED,
    FINISHED,
    HELD,
    NONE,
    QUEUED,
    READY,
    SUBMITTED,
    TRANSFERRING,
    WAITING,
    Floats,
    Rules,
)
from hocket.cluster.engine.state import EngineState
from hocket.cluster.engine.transfer_progress import progress

# Bytes are floats: sums of thousands of transfers agree to this part of them.
_ROUNDING = 1e-9


def validate(state: EngineState, rules: Rules, now: int) -> None:
    """Assert that nothing is used twice, lost or made up; ``now``: the tick of the last event."""
    residents = _check_gpus(state, rules)
    _check_links(state)
    _check_waiting(state)
    _check_users(state)
    for j, job in enumerate(state.jobs):
        placed = job["stage"] in (COMPUTING, READY, TRANSFERRING)
        assert residents.get(j, 0) == (job["gpus"] if placed else 0), f"job {j} is where it should not be"
        assert (job["stage"] == FINISHED) == (job["remaining"] == 0), f"job {j} is over too early or too late"
        _check_work(state, j)
        _check_bytes(state, rules, j, now)
        _check_batches(state, j)
    _check_queue(state)
    assert state.counts[0]["finished"] == (state.jobs["stage"] == FINISHED).sum()


def _check_queue(state: EngineState) -> None:
    """The queue has those that queue, and as many are counted of each need."""
    queue = state.queue[: state.counts[0]["queued"]]
    assert sorted(queue.tolist()) == (state.jobs["stage"] == QUEUED).nonzero()[0].tolist()
    needs = state.needs.of_job[queue]
    assert np.array_equal(state.needs.queued, np.bincount(needs, minlength=len(state.needs.queued)))


def _check_work(state: EngineState, j: int) -> None:
    """The iterations of a job on its number of GPUs are its work, and none of it twice."""
    job = state.jobs[j]
    assert job["fewest"] <= job["gpus"] <= job["most"], f"job {j} has more or fewer GPUs than it may"
    num = job["gpus"]
    assert (job["iterations"] - 1) * num < job["work"] <= job["iterations"] * num, f"job {j} lost work"
    assert job["kept"] * num <= job["work_kept"] < (job["kept"] + 1) * num, f"job {j} made up work"
    assert 0 <= job["kept"] < job["iterations"]
    if job["stage"] in (SUBMITTED, QUEUED):
        assert job["gpus"] == job["fewest"], f"job {j} queues for more than it needs"


def _check_gpus(state: EngineState, rules: Rules) -> dict[int, int]:
    """One task on each GPU at most, and no more memory than there is; how many GPUs each job is on."""
    residents: dict[int, int] = {}
    memory = state.sites.class_memory[state.jobs["memory_class"]]
    whole: dict[int, set[int]] = {}
    for g, gpu in enumerate(state.gpus):
        used, w, here = 0, gpu["resident"], set()
        while w != NONE:
            worker = state.workers[w]
            assert worker["gpu"] == g, f"GPU {g} lists what is not its own"
            assert worker["job"] not in here, f"GPU {g} lists a job twice"
            here.add(worker["job"])
            residents[worker["job"]] = residents.get(worker["job"], 0) + 1
            used += memory[worker["job"]]
            computes = worker["phase"] > 0 and worker["phase"] % 2 == 1
            assert computes == (gpu["running"] == w), f"GPU {g} runs two tasks, or none that it should"
            w = worker["next"]
        assert len(here) == gpu["jobs"] <= rules.jobs_per_gpu, f"GPU {g} has more jobs than it counts"
        closed = CLOSED if len(here) == rules.jobs_per_gpu else 0
        if gpu["free"] < -CLOSED:
            assert not here, f"GPU {g} is of a server that is down, and has a job"
            closed += EXCLUDED
        assert gpu["free"] + closed >= 0, f"GPU {g} has given more memory than it has"
        whole.setdefault(int(gpu["type"]), set()).add(int(gpu["free"] + used + closed))
        assert all(state.jobs[j]["type"] == gpu["type"] for j in here), f"GPU {g} has a job of another type"
        assert gpu["running"] == NONE or state.workers[gpu["running"]]["gpu"] == g
    assert all(len(found) == 1 for found in whole.values()), "memory was lost"
    for kind in range(len(state.sites.class_fits)):
        free = state.gpus["free"][state.gpus["type"] == kind]
        for c, need in enumerate(state.sites.class_memory):
            assert state.sites.class_fits[kind, c] == (free >= need).sum(), "free GPUs are miscounted"
    return residents


def _check_links(state: EngineState) -> None:
    """Each link carries what it says it does."""
    carried: list[set[int]] = [set() for _ in state.links]
    for j, job in enumerate(state.jobs):
        if job["stage"] == TRANSFERRING:
            for port in state.ports[job["first_port"] : job["first_port"] + job["num_hops"]]:
                carried[port["link"]].add(j)
    for number, link in enumerate(state.links):
        listed, p = [], link["flow"]
        while p != NONE:
            assert state.ports[p]["link"] == number, f"link {number} lists what is not its own"
            listed.append(int(state.ports[p]["job"]))
            p = state.ports[p]["next_flow"]
        assert sorted(listed) == sorted(carried[number]), f"link {number} lists what it does not carry"
        assert len(listed) == link["count"], f"link {number} carries other transfers than it counts"
    flows = state.flows[: state.counts[0]["flows"]].tolist()
    assert sorted(flows) == (state.jobs["stage"] == TRANSFERRING).nonzero()[0].tolist()


def _check_users(state: EngineState) -> None:
    """Users hold what their placed jobs do, and no more than their quotas."""
    placed = np.isin(state.jobs["stage"], (COMPUTING, READY, TRANSFERRING))
    for u, user in enumerate(state.users):
        held = int(state.jobs["gpus"][placed & (state.jobs["user"] == u)].sum())
        assert user["held"] == held <= user["quota"], f"user {u} holds other GPUs than it counts"
        assert user["kept_for"] == NONE, f"the quota of user {u} is kept beyond its time"


def _check_waiting(state: EngineState) -> None:
    """A job that is ready to transfer and does not waits at one of its servers, for what is there."""
    waits_at = {}
    for number, link in enumerate(state.links):
        previous, j = NONE, link["waiting"]
        while j != NONE:
            assert j not in waits_at, f"job {j} waits for two links"
            assert state.jobs[j]["previous_waiting"] == previous, f"link {number} forgot who waits"
            waits_at[int(j)] = number
            previous, j = j, state.jobs[j]["next_waiting"]
    for j, job in enumerate(state.jobs):
        number = waits_at.get(j, NONE)
        assert job["waits_at"] == number, f"job {j} waits at another link than lists it"
        if job["stage"] != READY:
            assert number == NONE or job["stage"] == TRANSFERRING, f"job {j} waits without anything to send"
            continue
        ports = state.ports[job["first_port"] : job["first_port"] + job["num_servers"]]
        assert number in ports["link"], f"job {j} waits for no server of its own"
        link = state.links[number]
        assert link["count"] > 0 or link["claimant"] not in (NONE, j), f"job {j} waits for an idle link"


def _check_bytes(state: EngineState, rules: Rules, j: int, now: int) -> None:
    """Bytes sent are bytes owed: of complete iterations, of batches after them, and of what is sent now."""
    job = state.jobs[j]
    if job["num_servers"] == 0:
        assert job["bytes_sent"] == 0.0, f"job {j} sends inside a server"
        return
    owed = (job["iterations"] - job["remaining"] - job["kept"]) * _iteration_bytes(state, j)
    if job["overlaps"]:
        arrived = job["batches_arrived"] - (
            job["num_batches"] if job["batches_arrived"] >= job["num_batches"] else 0
        )
        owed += _batch_bytes(state, j)[:arrived].sum()
    if job["stage"] in (READY, TRANSFERRING):
        owed += job["size"] - job["chunk_left"] - job["later"]
    most = job["iterations"] * _iteration_bytes(state, j) + 1.0
    assert abs(job["bytes_sent"] - owed) <= _ROUNDING * most, f"job {j} lost bytes"
    if job["stage"] == TRANSFERRING:
        chunk_left, later, startup_left = progress(state.jobs, rules, j, now)
        assert 0.0 <= chunk_left <= min(rules.chunk, job["size"])
        assert later >= 0.0
        assert startup_left >= 0


def _batch_bytes(state: EngineState, j: int) -> Floats:
    job = state.jobs[j]
    return state.batch_bytes[job["first_batch"] : job["first_batch"] + job["num_batches"]]


def _iteration_bytes(state: EngineState, j: int) -> float:
    job = state.jobs[j]
    return float(_batch_bytes(state, j).sum() if job["overlaps"] else job["size"])


def _check_batches(state: EngineState, j: int) -> None:
    """A job sends what is complete, in order, and nobody computes what needs more than has arrived."""
    job = state.jobs[j]
    if not job["overlaps"] or job["stage"] == FINISHED or job["launch"] > 0:
        return
    num, arrived, complete = job["num_batches"], job["batches_arrived"], job["batches_complete"]
    assert 0 <= arrived <= complete <= 2 * num, f"job {j} has sent what is not complete"
    assert (job["stage"] == COMPUTING) == (arrived == complete), (
        f"job {j} forgot a batch, or sends one too many"
    )
    workers = state.workers[job["first_worker"] : job["first_worker"] + job["gpus"]]
    segments = state.segments[job["first_segment"] : job["first_segment"] + job["num_segments"]]
    held = workers["phase"] <= HELD
    assert held.sum() == job["workers_held"]
    assert (segments["needs"][HELD - workers["phase"][held]] > arrived).all(), f"job {j} waits for nothing"
    may = workers["phase"] >= 0
    assert (segments["needs"][workers["phase"][may] // 2] <= arrived).all(), f"job {j} computes too early"
    assert job["workers_pending"] == (workers["phase"] != WAITING).sum()
    assert job["stalled"] == (job["workers_held"] == job["workers_pending"])
