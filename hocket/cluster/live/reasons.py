"""Reasons why jobs are as they are: of each a line that names the cause."""

from __future__ import annotations

from collections.abc import Sequence

from hocket.cluster.engine.records import COMPUTING, READY, TRANSFERRING
from hocket.cluster.live.context import ManagerContext, RunningAttempt
from hocket.cluster.live.job_progress import JobProgress
from hocket.cluster.live.job_record import Record, share_text
from hocket.cluster.live.queue_reasons import QueueReasons
from hocket.cluster.live.reason_names import ClusterNames, named
from hocket.text import duration_text, listed


class Reasons:
    """Reasons at one instant; ``lost_after_s``: of a node's silence, until its jobs go back to the queue."""

    def __init__(self, context: ManagerContext, lost_after_s: float) -> None:
        self._context, self._lost_after_s = context, lost_after_s
        self._names = ClusterNames(context)
        self._of_queued = QueueReasons(context, self._names, context.now_s())

    def of(self, record: Record) -> str:
        """The reason of a job's state, in a line."""
        if record.over:
            return self._over(record)
        progress = self._context.driver.progress_of.get(record.job.id)
        if progress is None:
            return ""
        if record.state == "queued":
            line = self._of_queued.of(record, progress)
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

    def _running(self, record: Record, progress: JobProgress, run: RunningAttempt) -> str:
        if run.ending is not None:
            why = run.ending[1]
            if run.ending[0] == "queued":
                return f"saves what it has: {why}"
            if run.started_s is None and (awaited := _awaited(run)):
                have = "has" if len(awaited) == 1 else "have"
                why = why or "it was cancelled by a command"
                return f"{why} as it waited for its GPUs; it is over once {named(awaited)} {have} saved"
            return f"its ranks are ending: {why or 'it was cancelled by a command'}"
        servers = list(dict.fromkeys(run.attempt.servers(self._context.cluster)))
        names = [self._context.nodes[server].name for server in servers]
        silent = [name for name in names if name in self._context.silent_nodes]
        if silent:
            return (
                f"{listed(silent)} {'does' if len(silent) == 1 else 'do'} not answer; after "
                f"{duration_text(self._lost_after_s)} of silence it is tried again elsewhere"
            )
        if leaving := _awaited(run):
            return f"has its GPUs once {named(leaving)} {'has' if len(leaving) == 1 else 'have'} saved"
        if not progress.reported:
            if record.job.command is None or run.started_s is None:
                return f"its ranks start on {named(names)}"
            silent_yet = "that has told nothing yet (hocket.distribute does)"
            return f"runs a program on {named(names)} {silent_yet}{self._never_stopped(record)}"
        return self._stage(progress, names, servers) + self._never_stopped(record)

    def _never_stopped(self, record: Record) -> str:
        """The reason for which a job keeps its GPUs where others are preempted or resized."""
        rules, job = self._context.driver.rules, record.job
        resizes = rules.resizes and job.fewest_gpus < job.gpus
        if job.checkpoint_s is not None or not (rules.requeues or resizes):
            return ""
        never = ["preempted"] * rules.requeues + ["resized"] * resizes
        return f"; never {listed(never, 'or')}, it says no checkpoint_s"

    def _stage(self, progress: JobProgress, names: Sequence[str], servers: Sequence[int]) -> str:
        driver = self._context.driver
        if progress in driver.ending_jobs:
            return "has no iteration left; its ranks are ending"
        if (rank := driver.held_rank(progress)) is not None:
            gpu = int(driver.state.workers["gpu"][driver.workers(progress)[rank]])
            user = driver.user_of(gpu)
            return f"waits for {self._names.gpu(gpu)}" + (f", where {user} computes" if user else "")
        stage = int(driver.state.jobs[progress.row]["stage"])
        if stage == READY:
            users = [job for job in driver.transferring() if self._meets(job, servers)]
            first = (
                f", where {named(users)} transfer{'s' if len(users) == 1 else ''}"
                if users
                else ", which others are to have first"
            )
            return f"waits for the network of {named(names)}{first}"
        if stage == TRANSFERRING:
            return f"transfers between {named(names)}"
        assert stage == COMPUTING
        return f"computes on {named(names)}"

    def _meets(self, job: str, servers: Sequence[int]) -> bool:
        run = self._context.runs.get(job)
        return run is not None and not set(servers).isdisjoint(run.attempt.servers(self._context.cluster))


def _awaited(run: RunningAttempt) -> list[str]:
    """The jobs that have yet to save before an attempt can begin."""
    return [each.record.job.id for each in run.waits_for if not each.over.is_set()]
