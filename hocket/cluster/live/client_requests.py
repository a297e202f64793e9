"""Requests of commands to a manager: to submit, cancel and drain; for status, reasons, logs and events."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.jobs import JobSet
from hocket.cluster.live.context import ManagerContext
from hocket.cluster.live.devices import shared_out, slots_of
from hocket.cluster.live.driver import Driver
from hocket.cluster.live.job_logs import events, job_log
from hocket.cluster.live.job_record import JobState, Record
from hocket.cluster.live.manager_messages import (
    AskEvents,
    AskJob,
    AskJobs,
    AskLog,
    AskStatus,
    AskWhy,
    Cancel,
    Drain,
    FromClient,
    JobStatus,
    ManagerAnswer,
    Status,
    Submit,
    TriedStatus,
)
from hocket.cluster.live.reasons import Reasons
from hocket.cluster.live.runnable_jobs import LiveJob, check_program
from hocket.cluster.live.transfer_log import TransferLog
from hocket.errors import HocketError, UnknownNameError, one_line
from hocket.text import counted

_REFUSED = "was refused: "


class Commands:
    """Serves commands."""

    def __init__(
        self, context: ManagerContext, transfers: TransferLog, scheduling: Scheduling, lost_after_s: float
    ) -> None:
        self._context, self._transfers, self._scheduling = context, transfers, scheduling
        self._lost_after_s = lost_after_s
        self._type_names = context.cluster.type_names()  # of each GPU
        self._number = max((record.number for record in context.records.values()), default=0)

    async def serve(self, request: FromClient) -> ManagerAnswer:
        """A command's request; raises HocketError for one that cannot be served."""
        match request:
            case Submit(jobs):
                return ManagerAnswer(notes=tuple(self.submit(jobs)))
            case Cancel(job):
                return ManagerAnswer(notes=(self._cancel(job),))
            case Drain(node, on):
                return ManagerAnswer(notes=(self._drain(node, on=on),))
            case AskStatus(every):
                return ManagerAnswer(status=self.status(every=every))
            case AskJobs(state, every):
                found = self.status(every=every).jobs
                return ManagerAnswer(jobs=tuple(j for j in found if state is None or j.state == state))
            case AskJob(job):
                record = self._known(job)
                return ManagerAnswer(jobs=(self._job_status(record, self._reason(record)),))
            case AskWhy(job):
                return ManagerAnswer(notes=(self._why(job),))
            case AskLog(job):
                record = self._known(job)
                return ManagerAnswer(log=await job_log(self._context, record, request, self._reason(record)))
            case AskEvents(job=job):
                if job is not None and not self._refused(job):
                    self._known(job)
                return ManagerAnswer(events=events(self._context, request))

    def submit(self, jobs: Sequence[LiveJob]) -> list[str]:
        """Keep new jobs; what is to be said of each. Raises HocketError if one can never be placed."""
        if jobs:
            JobSet(jobs=tuple(jobs), source="submission")  # ids and numbers are as they have to be
        now_s = self._context.now_s()
        notes: list[str] = []
        new: list[Record] = []
        for job in jobs:
            known = self._context.records.get(job.id)
            if known is not None:
                if msgspec.structs.replace(known.job, arrival_s=job.arrival_s) != job:
                    raise HocketError(
                        f"job '{job.id}' is known and another one; give this one an id of its own"
                    )
                notes.append(f"{job.id}: {known.state}, it was submitted before")
                continue
            try:
                check_program(job, f"job '{job.id}'")
                self._context.driver.check(job)
                self._check_files(job)
            except HocketError as error:
                self._context.note(f"{_REFUSED}{error}", job.id)
                raise
            arrival_s = now_s + job.arrival_s
            new.append(
                Record(
                    number=self._number + len(new) + 1,
                    job=msgspec.structs.replace(job, arrival_s=arrival_s),
                    arrival_s=arrival_s,
                )
            )
            notes.append(f"{job.id}: queued")
        if new:
            self._context.add_to_engine(new)
            try:
                self._context.database.add(new)
            except sqlite3.Error as error:
                for record in new:
                    self._context.driver.withdraw(record.job.id, now_s)
                raise HocketError(f"the jobs cannot be kept: {error}; submit them again") from None
            self._number += len(new)
            for record in new:
                self._context.records[record.job.id] = record
                self._context.schedule_arrival(record)
        return notes

    def _known(self, job: str) -> Record:
        record = self._context.records.get(job)
        if record is None:
            if refused := self._refused(job):
                raise HocketError(f"job '{job}' {refused}")
            raise UnknownNameError("job", job, list(self._context.records)[-20:])
        return record

    def _refused(self, job: str) -> str:
        """The reason for which a job that is not known was refused; empty for one that never came."""
        said = "" if job in self._context.records else self._context.database.last_event(job) or ""
        return said if said.startswith(_REFUSED) else ""

    def _reason(self, record: Record) -> str:
        return Reasons(self._context, self._lost_after_s).of(record)

    def _why(self, job: str) -> str:
        if refused := self._refused(job):
            return one_line(f"{job}: {refused}")
        return one_line(f"{job}: {self._reason(self._known(job))}")

    def _check_files(self, job: LiveJob) -> None:
        apart = [node.name for node in self._context.nodes if not node.shares_files]
        if job.step is not None and apart:
            raise HocketError(
                f"job '{job.id}' replays files of this machine, and {apart[0]} has others; give all nodes "
                "one file system with --state and the jobs in it, or leave out step and plan"
            )

    def _cancel(self, job: str) -> str:
        context, record = self._context, self._known(job)
        if record.over or record.cancelled:
            return f"{job}: {record.state if record.over else 'cancelled'} already"
        runs = record.state == "running"
        state: JobState = "running" if runs else "cancelled"
        finish_s = None if runs else context.now_s()
        # An answer that was given is not forgotten when this process is ended.
        try:
            context.database.put([replace(record, cancelled=True, state=state, finish_s=finish_s)])
        except sqlite3.Error as error:
            raise HocketError(f"job '{job}' goes on, it cannot be kept that it is to end: {error}") from None
        record.cancelled, record.state, record.finish_s = True, state, finish_s
        if runs:
            context.runs[job].ending = ("cancelled", "")
        else:
            context.driver.withdraw(job, context.now_s())
            context.change_event.set()
        context.note("is cancelled by a command; its ranks are ending" if runs else "cancelled", job)
        context.decide_soon()
        return f"{job}: cancelled"

    def _drain(self, name: str, *, on: bool) -> str:
        context, names = self._context, [node.name for node in self._context.nodes]
        if name not in names:
            raise UnknownNameError("node", name, names)
        try:
            context.set_drained(name, drained=on)
        except sqlite3.Error as error:
            raise HocketError(f"{name} is as it was, the change cannot be kept: {error}") from None
        there = sum(
            names.index(name) in run.attempt.servers(context.cluster) for run in context.runs.values()
        )
        context.note(f"{name} is {'drained' if on else 'in use again'}")
        context.decide_soon()
        return (
            f"{name}: {'no job is placed there any more' if on else 'in use again'}, "
            f"{counted(there, 'job')} {'is' if there == 1 else 'are'} there"
        )

    def status(self, *, every: bool = False) -> Status:
        """The cluster as it is; ``every``: with jobs that were over long ago."""
        context, records = self._context, self._context.records.values()
        times = [
            r.finish_s - r.arrival_s for r in records if r.state == "finished" and r.finish_s is not None
        ]
        since_s = context.now_s() - context.retention.shown_s
        shown = [r for r in records if every or r.finish_s is None or r.finish_s >= since_s]
        reasons = Reasons(context, self._lost_after_s)
        return Status(
            now_s=context.now_s(),
            placement=self._scheduling.placement,
            policy=self._scheduling.policy,
            gpus_per_server=context.cluster.gpus_per_server,
            nodes=tuple(node.name for node in context.nodes),
            drained=tuple(sorted(context.drained_nodes)),
            silent=tuple(sorted(context.silent_nodes)),
            jobs=tuple(self._job_status(record, reasons.of(record)) for record in shown),
            transfers=self._transfers.spans(),
            average_jct_s=sum(times) / len(times) if times else None,
            num_finished=len(times),
            gpus_of_node=self._gpus_of_node(),
            devices=self._devices(),
            gpu_types=self._gpu_types(),
            left_out=len(records) - len(shown),
        )

    def _gpus_of_node(self) -> tuple[int, ...]:
        """The GPUs of each node; () where all have the same number."""
        per_server = self._context.cluster.gpus_per_server
        found = tuple(slots_of(node, per_server) for node in self._context.nodes)
        return () if set(found) == {per_server} else found

    def _devices(self) -> tuple[tuple[str, ...], ...]:
        """The ids of each node's GPUs; () where no node has any."""
        context = self._context
        found = tuple(shared_out(context.nodes, context.cluster.gpus_per_server))
        return found if any(node.devices for node in context.nodes) else ()

    def _gpu_types(self) -> tuple[tuple[str, ...], ...]:
        """The type of each GPU of each node; () where none is known."""
        if not self._context.cluster.gpu_types:
            return ()
        per_server = self._context.cluster.gpus_per_server
        slots = [slots_of(node, per_server) for node in self._context.nodes]
        return tuple(tuple(self._type_names[server * per_server :][:num]) for server, num in enumerate(slots))

    def _job_status(self, record: Record, reason: str) -> JobStatus:
        job, driver = record.job.id, self._context.driver
        progress = None if record.over else driver.progress_of.get(job)
        gpus = () if record.state == "queued" else record.gpus  # it has those no longer
        return JobStatus(
            id=job,
            model=record.job.model,
            state=record.state,
            stage=record.state if progress is None else _stage(record, driver),
            gpus=self._pairs(gpus),
            gpu_type=self._type_names[gpus[0]] if gpus else "",
            accepted_types=tuple(record.job.speeds),
            wanted=record.job.gpus,
            wanted_min=record.job.fewest_gpus if record.job.fewest_gpus < record.job.gpus else None,
            iteration=record.iteration
            if progress is None or record.state == "queued"
            else max(record.iteration, progress.iterations_done),
            iterations=record.iterations,
            attempt=record.attempt,
            arrival_s=record.arrival_s,
            start_s=record.start_s,
            finish_s=record.finish_s,
            jct_s=None if record.finish_s is None else record.finish_s - record.arrival_s,
            why=record.why,
            reason=one_line(reason),
            reports=record.job.command is None or progress is None or progress.reported,
            waited_s=self._waited_s(record),
            placed_s=record.placed_s if record.state != "queued" else None,
            user=record.job.user,
            priority=record.job.priority,
            tried=tuple(TriedStatus(self._pairs(t.gpus), t.start_s, t.end_s, t.why) for t in record.tried),
        )

    def _pairs(self, gpus: Sequence[int]) -> tuple[tuple[int, int], ...]:
        return tuple(divmod(gpu, self._context.cluster.gpus_per_server) for gpu in gpus)

    def _waited_s(self, record: Record) -> float:
        """Seconds that a job has waited for GPUs and the network, up to now.

        A program computes as long as it likes, which is not told apart from waiting for its GPU: until now
        alone that shows.
        """
        job, driver, now_s = record.job.id, self._context.driver, self._context.now_s()
        until_s = record.start_s
        if until_s is None:
            until_s = record.finish_s if record.over and record.finish_s is not None else now_s
        waited_s = max(0.0, until_s - record.arrival_s) + record.parts[3]
        waited_s += record.parts[1] if record.job.is_traffic else 0.0
        progress = None if record.over else driver.progress_of.get(job)
        if progress is not None and progress.reported:
            parts = driver.parts(progress)
            waited_s += parts.network_wait_s + driver.waits_now_s(job, now_s)
            waited_s += parts.gpu_wait_s if record.job.is_traffic else 0.0
        return waited_s


def _stage(record: Record, driver: Driver) -> str:
    if record.cancelled:
        return "ending"
    progress = driver.progress_of[record.job.id]
    if record.state == "running" and not (progress.reported or progress.leaves):
        return "starting" if record.job.command is None else "running"
    return driver.stage(record.job.id)
