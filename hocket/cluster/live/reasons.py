"""Reasons why jobs are as they are: of each a line that names the cause."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import islice

import numpy as np
import numpy.typing as npt

from hocket.cluster.engine.gpu_types import service_on
from hocket.cluster.engine.records import COMPUTING, EXCLUDED, NEVER, READY, SUBMITTED, TRANSFERRING, Ints
from hocket.cluster.engine.users import quota_name
from hocket.cluster.jobs import Job
from hocket.cluster.live.context import ManagerContext, RunningAttempt
from hocket.cluster.live.devices import shared_out
from hocket.cluster.live.engine_rows import TICK_S, JobProgress
from hocket.cluster.live.job_record import Record
from hocket.text import counted, duration_text, listed, scaled_text

Bools = npt.NDArray[np.bool_]

_MOST_NAMED = 3


class Reasons:
    """Reasons at one instant; ``lost_after_s``: of a node's silence, until its jobs go back to the queue."""

    def __init__(self, context: ManagerContext, lost_after_s: float) -> None:
        self._context, self._lost_after_s = context, lost_after_s
        self._now_s = context.now_s()
        driver = context.driver
        self._free: Ints = np.zeros(0, np.int64)
        self._ahead: dict[int, int] = {}
        self._queue: list[int] = []
        if not driver.empty:
            self._free = driver.state.gpus["free"].copy()
            self._queue = driver.queue(self._now_s)
            self._ahead = {row: place for place, row in enumerate(self._queue)}
        self._room: dict[tuple[int, int], str] = {}

    def of(self, record: Record) -> str:
        """The reason of a job's state, in a line."""
        if record.over:
            return self._over(record)
        progress = self._context.driver.progress_of.get(record.job.id)
        if progress is None:
            return ""
        if record.state == "queued":
            line = self._queued(record, progress)
        else:
            line = self._running(record, progress, self._context.runs[record.job.id])
            line += f"; has {share}" if (share := share_text(record)) else ""
        last = record.tried[-1] if record.tried else None
        return (
            line
            if last is None
            else f"{line}; attempt {record.attempt - (record.state == 'running')}: {last.why}"
        )

    def _over(self, record: Record) -> str:
        took = duration_text((record.finish_s or 0.0) - record.arrival_s)
        if record.state == "finished":
            again = f" in attempt {record.attempt}" if record.attempt > 1 else ""
            return f"finished{again}, {took} after its arrival"
        if record.state == "cancelled":
            return f"was cancelled by a command, {took} after its arrival"
        if record.own_failures > (record.job.restarts or 0) > 0:
            return f"failed {record.own_failures} times: {record.why}"
        if not record.own_failures and record.attempt > 1:
            return f"failed in attempt {record.attempt}, the last one that it has: {record.why}"
        own = record.own_failures > 0 and not record.job.restarts
        hint = "; it failed by itself and asked for no restarts (submit --restarts N)" if own else ""
        return f"failed: {record.why}{hint}"

    # Jobs in the queue.

    def _queued(self, record: Record, progress: JobProgress) -> str:
        row = self._context.driver.state.jobs[progress.row]
        if row["stage"] == SUBMITTED:
            if record.attempt:
                return "is tried again in a moment"
            return f"arrives in {duration_text(max(0.0, record.arrival_s - self._now_s))}"
        user = self._context.driver.state.users[row["user"]]
        if user["held"] + record.job.fewest_gpus > user["quota"]:
            held = f"{user['held']} of {user['quota']} GPUs held"
            return f"waits for {quota_name(record.job.user)}: {held}, it wants {wanted_text(record.job)}"
        need = int(self._context.driver.state.sites.class_memory[row["memory_class"]])
        types = int(row["types"])
        free = {k: int((self._open_to(1 << k) & (self._free >= need)).sum()) for k in _bits(types)}
        faster = self._faster_types(progress.row, record.job, free)
        line = self._lack(record.job, need, faster or types)
        if faster:
            slower = {k: num for k, num in free.items() if num and not faster >> k & 1}
            there = [f"{num} of {self._context.cluster.types[k].name}" for k, num in slower.items()]
            line += f"; {listed(there)} {'is' if sum(slower.values()) == 1 else 'are'} free, and slower"
        elif max(free.values()) >= record.job.fewest_gpus:
            line += self._kept_free(progress.row)
        elif sum(free.values()) >= record.job.fewest_gpus:
            line += "; no type has enough of them"
        return line + self._behind(progress.row)

    def _open_to(self, types: int) -> Bools:
        """True of each GPU that is of one of ``types``, a bit each."""
        found: Bools = types >> self._context.driver.state.gpus["type"] & 1 == 1
        return found

    def _faster_types(self, j: int, job: Job, free: Mapping[int, int]) -> int:
        """The types of GPUs, a bit each, that a job may wait for; 0 unless enough of a slower one are free.

        ``free``: of each type how many have room for it.
        """
        driver = self._context.driver
        service = {kind: service_on(driver.state.jobs, driver.state.sites, j, kind) for kind in free}
        enough = [service[kind] for kind, num in free.items() if num >= job.fewest_gpus]
        if not (driver.rules.wait_for_faster and enough):
            return 0
        return sum(1 << kind for kind in free if service[kind] < min(enough))

    def _kept_free(self, row: int) -> str:
        """The reason for which a job that would fit is not placed."""
        driver = self._context.driver
        if driver.placement_waits:
            return "; the free ones are not in one block of servers"
        if driver.rules.starvation == NEVER:
            return ""
        if not (num := self._starving.get(row, len(self._starving))):
            return ""
        have = "has" if num == 1 else "have"
        since = duration_text(driver.rules.starvation * TICK_S)
        names = _named([self._name_of(other) for other in islice(self._starving, _MOST_NAMED)], num)
        return f"; the free ones are held for {names}, which {have} queued for {since} or longer"

    @cached_property
    def _starving(self) -> dict[int, int]:
        """The rows of jobs that have queued for so long that GPUs are held for them, each with its place."""
        driver = self._context.driver
        jobs, latest = driver.state.jobs, round(self._now_s / TICK_S) - driver.rules.starvation
        found = [row for row in self._queue if jobs[row]["arrival"] <= latest]
        return {row: place for place, row in enumerate(sorted(found, key=lambda row: jobs[row]["rank"]))}

    def _lack(self, job: Job, need: int, types: int) -> str:
        """The room that a job waits for, on GPUs of one of ``types``, with so much memory."""
        if (line := self._room.get((need, types))) is None:
            line = self._room[need, types] = self._room_for(need, types)
        there = self._context.cluster.types
        names = [there[kind].name for kind in _bits(types)]
        of = f" of {listed(names, 'or')}" if len(there) > 1 else ""
        return f"waits for {wanted_text(job)} GPU{'' if job.gpus == 1 else 's'}{of}{line}"

    def _room_for(self, need: int, types: int) -> str:
        driver = self._context.driver
        open_ = (driver.withheld < EXCLUDED) & self._open_to(types)
        fits = np.flatnonzero(self._open_to(types) & (self._free >= need))
        short = np.flatnonzero(open_ & (self._free < need))
        where = f" on {self._nodes_of(fits)}" if len(fits) else ""
        line = f"; {len(fits)} {'is' if len(fits) == 1 else 'are'} free{where}"
        some = short[self._free[short] > 0]
        if len(some):
            best = int(some[np.argmax(self._free[some])])
            have = "has" if len(fits) == 1 else "have"
            beside = self._residents([best])
            full = [job for job in self._residents(short.tolist()) if job not in beside]
            line = (
                f" with {scaled_text(need, 'B')} of memory each; {len(fits)} {have} it{where}, "
                f"{self._gpu(best)} has {scaled_text(int(self._free[best]), 'B')} beside "
                f"{_named(beside)}"
            )
            line += f"; {_named(full)} {'has' if len(full) == 1 else 'have'} the others" if full else ""
        elif len(short):
            there = self._residents(short.tolist())
            line += f"; {_named(there)} {'has' if len(there) == 1 else 'have'} the others"
        return line + self._closed()

    def _closed(self) -> str:
        context = self._context
        drained = sorted(context.drained_nodes)
        silent = sorted(context.silent_nodes)
        line = f"; {listed(drained)} {'is' if len(drained) == 1 else 'are'} drained" if drained else ""
        return line + (
            f"; {listed(silent)} {'does' if len(silent) == 1 else 'do'} not answer" if silent else ""
        )

    def _behind(self, row: int) -> str:
        place = self._ahead.get(row, 0)
        if not place:
            return ""
        name = self._name_of(self._queue[place - 1])
        return f"; behind {name}" + (f" and {counted(place - 1, 'other')}" if place > 1 else "")

    def _name_of(self, row: int) -> str:
        progress = self._context.driver.by_row[row]
        return "another job" if progress is None else progress.job.id

    # Jobs on GPUs.

    def _running(self, record: Record, progress: JobProgress, run: RunningAttempt) -> str:
        if run.ending is not None:
            why = run.ending[1]
            if run.ending[0] == "queued":
                return f"saves what it has: {why}"
            return f"its ranks are ending: {why or 'it was cancelled by a command'}"
        servers = list(dict.fromkeys(run.attempt.servers(self._context.cluster)))
        names = [self._context.nodes[server].name for server in servers]
        silent = [name for name in names if name in self._context.silent_nodes]
        if silent:
            return (
                f"{listed(silent)} {'does' if len(silent) == 1 else 'do'} not answer; after "
                f"{duration_text(self._lost_after_s)} of silence it is tried again elsewhere"
            )
        leaving = [each.record.job.id for each in run.waits_for if not each.over.is_set()]
        if leaving:
            return f"has its GPUs once {_named(leaving)} {'has' if len(leaving) == 1 else 'have'} saved"
        if not progress.reported:
            if record.job.command is None:
                return f"its ranks start on {_named(names)}"
            silent_yet = "that has told nothing yet (hocket.distribute does)"
            return f"runs a program on {_named(names)} {silent_yet}{self._never_preempted(record)}"
        return self._stage(progress, names, servers) + self._never_preempted(record)

    def _never_preempted(self, record: Record) -> str:
        """The reason for which a job keeps its GPUs under a policy that preempts jobs."""
        if not self._context.driver.rules.requeues or record.job.checkpoint_s is not None:
            return ""
        return "; never preempted, it says no checkpoint_s"

    def _stage(self, progress: JobProgress, names: Sequence[str], servers: Sequence[int]) -> str:
        driver = self._context.driver
        if progress in driver.ending_jobs:
            return "has no iteration left; its ranks are ending"
        if (rank := driver.held_rank(progress)) is not None:
            gpu = int(driver.state.workers["gpu"][driver.workers(progress)[rank]])
            user = driver.user_of(gpu)
            return f"waits for {self._gpu(gpu)}" + (f", where {user} computes" if user else "")
        stage = int(driver.state.jobs[progress.row]["stage"])
        if stage == READY:
            users = [job for job in driver.transferring() if self._meets(job, servers)]
            first = (
                f", where {_named(users)} transfer{'s' if len(users) == 1 else ''}"
                if users
                else ", which others are to have first"
            )
            return f"waits for the network of {_named(names)}{first}"
        if stage == TRANSFERRING:
            return f"transfers between {_named(names)}"
        assert stage == COMPUTING
        return f"computes on {_named(names)}"

    def _meets(self, job: str, servers: Sequence[int]) -> bool:
        run = self._context.runs.get(job)
        return run is not None and not set(servers).isdisjoint(run.attempt.servers(self._context.cluster))

    # Names.

    def _gpu(self, gpu: int) -> str:
        server, slot = divmod(gpu, self._context.cluster.gpus_per_server)
        node = self._context.nodes[server]
        ids = shared_out(self._context.nodes, self._context.cluster.gpus_per_server)[server]
        return f"{node.name} GPU {ids[slot] if node.devices and slot < len(ids) else slot}"

    def _nodes_of(self, gpus: Ints) -> str:
        servers = np.unique(gpus // self._context.cluster.gpus_per_server)
        return _named([self._context.nodes[server].name for server in servers.tolist()])

    def _residents(self, gpus: Sequence[int]) -> list[str]:
        wanted = set(gpus)
        there = [job for job, run in self._context.runs.items() if not wanted.isdisjoint(run.record.gpus)]
        return there or ["another program"]


def wanted_text(job: Job) -> str:
    """The number of GPUs that a job is to have, or its range."""
    return f"{job.gpus}" if job.fewest_gpus == job.gpus else f"{job.fewest_gpus} to {job.gpus}"


def share_text(record: Record) -> str:
    """The number of GPUs that a job has of those that it may have; empty where that is no choice."""
    job = record.job
    return "" if job.fewest_gpus == job.gpus else f"{len(record.gpus)} of {wanted_text(job)} GPUs"


def _bits(types: int) -> list[int]:
    """The numbers of the bits that are set."""
    return [kind for kind in range(types.bit_length()) if types >> kind & 1]


def _named(names: Iterable[str], num: int | None = None) -> str:
    """All of a few names; of more the first ones and how many there are besides.

    ``num``: how many there are, where ``names`` are the first ones alone.
    """
    found = list(names)
    num = len(found) if num is None else num
    if num <= _MOST_NAMED:
        return listed(found[:num])
    return listed([*found[: _MOST_NAMED - 1], f"{num - _MOST_NAMED + 1} others"])
