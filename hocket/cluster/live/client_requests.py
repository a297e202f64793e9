"""Requests of commands to a manager: to submit, cancel and drain, and for the status of everything."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from hocket.cluster.jobs import JobSet
from hocket.cluster.live.context import ManagerContext
from hocket.cluster.live.database import JobState, Record
from hocket.cluster.live.driver import Driver
from hocket.cluster.live.manager_messages import (
    AskStatus,
    Cancel,
    Drain,
    FromClient,
    JobStatus,
    ManagerAnswer,
    Status,
    Submit,
)
from hocket.cluster.live.runnable_jobs import LiveJob, check_program
from hocket.cluster.live.scheduling import Scheduling
from hocket.cluster.live.transfer_log import TransferLog
from hocket.errors import HocketError, UnknownNameError


class Commands:
    """Serves commands."""

    def __init__(self, context: ManagerContext, transfers: TransferLog, scheduling: Scheduling) -> None:
        self._context, self._transfers, self._scheduling = context, transfers, scheduling
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
            case AskStatus():
                return ManagerAnswer(status=self.status())

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
            check_program(job, f"job '{job.id}'")
            self._context.driver.check(job)
            self._check_files(job)
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

    def _check_files(self, job: LiveJob) -> None:
        apart = [node.name for node in self._context.nodes if not node.shares_files]
        if job.step is not None and apart:
            raise HocketError(
                f"job '{job.id}' replays files of this machine, and {apart[0]} has others; give all nodes "
                "one file system with --state and the jobs in it, or leave out step and plan"
            )

    def _cancel(self, job: str) -> str:
        context, record = self._context, self._context.records.get(job)
        if record is None:
            raise UnknownNameError("job", job, list(context.records)[-20:])
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
        context.note("cancelled", job)
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
            f"{name}: {'no job is placed there any more' if on else 'in use again'}, {there} jobs are there"
        )

    def status(self) -> Status:
        """The cluster as it is."""
        context, records = self._context, self._context.records.values()
        times = [
            r.finish_s - r.arrival_s for r in records if r.state == "finished" and r.finish_s is not None
        ]
        return Status(
            now_s=context.now_s(),
            placement=self._scheduling.placement,
            policy=self._scheduling.policy,
            gpus_per_server=context.cluster.gpus_per_server,
            nodes=tuple(node.name for node in context.nodes),
            drained=tuple(sorted(context.drained_nodes)),
            silent=tuple(sorted(context.silent_nodes)),
            jobs=tuple(self._job_status(record) for record in records),
            transfers=self._transfers.spans(),
            average_jct_s=sum(times) / len(times) if times else None,
        )

    def _job_status(self, record: Record) -> JobStatus:
        job, driver = record.job.id, self._context.driver
        live = not record.over and job in driver.progress_of
        return JobStatus(
            id=job,
            model=record.job.model,
            state=record.state,
            stage=_stage(record, driver) if live else record.state,
            gpus=tuple(divmod(gpu, self._context.cluster.gpus_per_server) for gpu in record.gpus),
            wanted=record.job.gpus,
            iteration=max(record.iteration, driver.iterations_done(job)) if live else record.iteration,
            iterations=record.job.iterations,
            attempt=record.attempt,
            arrival_s=record.arrival_s,
            start_s=record.start_s,
            finish_s=record.finish_s,
            jct_s=None if record.finish_s is None else record.finish_s - record.arrival_s,
            why=record.why,
        )


def _stage(record: Record, driver: Driver) -> str:
    return "ending" if record.cancelled else driver.stage(record.job.id)
