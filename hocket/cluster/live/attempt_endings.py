"""Ends of attempts at jobs: a job is over, is tried again, or goes on with other GPUs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from hocket.cluster.live.context import ManagerContext, RunningAttempt
from hocket.cluster.live.job_record import MOST_TRIED, Leaving, Record, Tried
from hocket.cluster.live.rank_failures import Cause
from hocket.text import counted, listed

_RETRY_S = 1.0  # until a job that failed is tried again
_LONGEST_RETRY_S = 60.0
_EARLY_S = 10.0  # after its start an attempt that fails has hardly run


class AttemptEndings:
    """Ends attempts; ``restarts``: how often a job is tried again whose ranks were killed or lost a peer."""

    def __init__(self, context: ManagerContext, restarts: int) -> None:
        self._context, self._restarts = context, restarts
        self._pauses_s: dict[str, float] = {}  # the last ones, of jobs that failed as they began

    def end(self, run: RunningAttempt, kept_iterations: int) -> RunningAttempt | None:
        """End an attempt of which all processes have ended, or are lost; one that is to be started for it."""
        context, record, leaving = self._context, run.record, run.record.leaving
        job = record.job.id
        self._take_off(run, kept_iterations)
        state, why = run.ending or ("finished", "")
        if state == "queued" and record.iteration == record.iterations:
            state, why = "finished", ""  # it was through when it was asked to leave
        following = None
        if state == "queued" and leaving is not None and leaving.gpus:
            following = self._go_on(run, leaving)
        elif state == "queued":
            record.preempted += 1
            self._queue_again(run, why)
            self._try_again(record)
        elif state == "failed" and self._is_tried_again(run):
            pause_s = self._pause_s(run)
            later = f" in {pause_s:g} s" if pause_s > _RETRY_S else ""
            context.note(f"{why}; it is tried again{later}", job)
            self._queue_again(run, why)
            context.tried_again_s[job] = context.now_s() + pause_s
            asyncio.get_running_loop().call_later(pause_s, self._try_again, record)
        else:
            record.state, record.why, record.finish_s = state, why, context.now_s()
            if state == "finished":
                record.iteration = record.iterations
            context.note(f"{state}{': ' if why else ''}{why}", job)
            context.database.put([record])
            with contextlib.suppress(OSError):  # it has kept something
                context.checkpoint(record).rmdir()
        context.decide_soon()
        return following

    def _take_off(self, run: RunningAttempt, kept_iterations: int) -> None:
        """Let an attempt be none of those that run, and its job be none that the engine knows."""
        context, record = self._context, run.record
        job = record.job.id
        record.iteration = min(
            record.iterations, max(record.iteration, context.driver.iterations_done(job), kept_iterations)
        )
        parts = context.driver.withdraw(job, context.now_s())
        seconds = (parts.computing_s, parts.gpu_wait_s, parts.transferring_s, parts.network_wait_s)
        a, b, c, d = (old + new for old, new in zip(record.parts, seconds, strict=True))
        record.parts = (a, b, c, d)
        record.busy_gpu_s += parts.computing_s * len(run.attempt.gpus)
        del context.runs[job], context.by_attempt[run.attempt.name]
        record.leaving = None
        run.over.set()
        # A rank whose node is lost to us may still have its gate.
        for link in run.links.values():
            link.give_up()
        record.lost_attempts += run.lost_with_node

    def _go_on(self, run: RunningAttempt, leaving: Leaving) -> RunningAttempt | None:
        """Let a job that has saved go on with its other GPUs; it queues if they are closed meanwhile."""
        context, record, job = self._context, run.record, run.record.job.id
        if len(leaving.gpus) < len(record.gpus):
            record.shrunk += 1
        else:
            record.grown += 1
        closed = [name for name in context.nodes_of(leaving.gpus) if context.is_closed(name)]
        if closed:
            self._queue_again(run, f"{leaving.why}, and queued, as {listed(closed)} took no jobs then")
            self._try_again(record)
            return None
        self._end_try(run, leaving.why)
        now_s = context.now_s()
        context.driver.adopt(job, leaving.gpus, now_s)
        following = context.place(job, leaving.gpus, now_s)
        context.database.put([record])
        context.wait_for_leaving(following)
        return following

    def _queue_again(self, run: RunningAttempt, why: str) -> None:
        """Let a job have ended an attempt that is not its last, on disk too; it has yet to arrive."""
        self._end_try(run, why)
        self._context.database.put([run.record])

    def _end_try(self, run: RunningAttempt, why: str) -> None:
        """Let a job have ended an attempt that is not its last; the caller keeps that on disk."""
        context, record, now_s = self._context, run.record, self._context.now_s()
        record.state, record.why = "queued", why
        tried = Tried(record.gpus, now_s if record.placed_s is None else record.placed_s, now_s, why)
        record.tried = (*record.tried, tried)[-MOST_TRIED:]
        goes_on = f"goes on from iteration {record.iteration}"
        if record.job.command is not None:
            goes_on = "goes on with what it has kept"
            if not any(context.checkpoint(record).glob("*")):
                record.iteration = 0
                goes_on = "has kept nothing and begins anew"
        if run.killed_saving:
            context.note(f"{_killed_text(run.killed_saving)}; the job {goes_on}", record.job.id)
        context.add_to_engine([record])

    def _pause_s(self, run: RunningAttempt) -> float:
        """Seconds until a job that failed is tried again.

        Twice the last ones where it failed as it began, by no own fault: a disk stays full for a while.
        """
        job = run.record.job.id
        last_s = self._pauses_s.pop(job, 0.0)
        ran_s = asyncio.get_running_loop().time() - (run.started_s or 0.0)
        if _is_own_failure(run) or ran_s >= _EARLY_S:
            return _RETRY_S
        self._pauses_s[job] = min(_LONGEST_RETRY_S, 2 * last_s) if last_s else _RETRY_S
        return self._pauses_s[job]

    def _is_tried_again(self, run: RunningAttempt) -> bool:
        """Tell whether another attempt follows; the job's own failures count by what it asks for."""
        record = run.record
        if _is_own_failure(run):
            record.own_failures += 1
            return record.own_failures <= (record.job.restarts or 0)
        others = record.lost_attempts + record.own_failures + record.preempted
        return record.attempt - others - record.shrunk - record.grown <= self._restarts

    def _try_again(self, record: Record) -> None:
        self._context.tried_again_s.pop(record.job.id, None)
        if record.state == "queued" and record.job.id in self._context.driver.progress_of:
            self._context.driver.arrive(record.job.id)
            self._context.decide_soon()


def _is_own_failure(run: RunningAttempt) -> bool:
    return run.cause is Cause.OWN and not run.lost_with_node


def _killed_text(killed: Mapping[int, str]) -> str:
    """A line of the ranks that a signal ended when they were to save; ``killed``: of each how it ended."""
    others = len(killed) - 1
    as_well = f", as {'was' if others == 1 else 'were'} {counted(others, 'other')}" if others else ""
    return f"{killed[min(killed)]} when it was to save{as_well}"
