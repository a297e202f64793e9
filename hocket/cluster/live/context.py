"""The context of a manager's parts: records of jobs, attempts under way, the engine, the clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from hocket.cluster.cluster import Cluster
from hocket.cluster.live.database import Database
from hocket.cluster.live.driver import Driver
from hocket.cluster.live.job_record import JobState, Record, share_text
from hocket.cluster.live.nodes import Node
from hocket.cluster.live.rank_failures import Cause
from hocket.cluster.live.rank_link import RankLink
from hocket.cluster.live.retention import Retention
from hocket.cluster.live.runnable_jobs import Attempt


class RunningAttempt:
    """An attempt at a job that is under way: its ranks' connections, and what they wait for."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.attempt = Attempt(job=record.job, number=record.number, attempt=record.attempt, gpus=record.gpus)
        self.links: dict[int, RankLink] = {}
        self.compute_requests: dict[int, int] = {}
        self.transfer_request: int | None = None
        self.started_s: float | None = None  # of the loop's time, when all of its ranks had been
        self.ending: tuple[JobState, str] | None = ("cancelled", "") if record.cancelled else None
        self.lost_with_node = False  # with a node
        self.cause: Cause | None = None  # of a failure that ranks have shown, or would
        self.judged_ranks: set[int] = set()  # those whose failure has been looked at
        self.failed_s = 0.0  # of the loop's time
        self.stopped = False  # ranks were asked to end
        self.killed_saving: dict[int, str] = {}  # how a signal ended ranks that were to save
        self.over = asyncio.Event()  # none of its ranks is left
        self.waits_for: list[RunningAttempt] = []  # those whose GPUs it gets when they are over


class ManagerContext:
    """A cluster's jobs: ``records`` by id, ``runs``, attempts under way, by job, ``by_attempt`` by name.

    ``tried_again_s``: the instants at which jobs that failed are tried again, by id.
    ``drained_nodes``, ``silent_nodes``: those that get no job, since a command said so and since they do not
    answer. ``decide`` is called soon after anything has come up; ``events`` counts what has. ``change_event``
    is set when there is something to look at, ``failure``, say: an error that no client could be told of.
    ``epoch_s``: the cluster's beginning on the machine's clock; ``retention``: of what is over.
    """

    def __init__(
        self,
        folder: Path,
        cluster: Cluster,
        nodes: Sequence[Node],
        driver: Driver,
        database: Database,
        *,
        epoch_s: float,
        decide: Callable[[], None],
    ) -> None:
        self.folder, self.cluster, self.nodes = folder, cluster, list(nodes)
        self.driver, self.database = driver, database
        self.records = {record.job.id: record for record in database.jobs()}
        self.runs: dict[str, RunningAttempt] = {}
        self.by_attempt: dict[str, RunningAttempt] = {}
        self.tried_again_s: dict[str, float] = {}
        self.drained_nodes = database.drained_nodes()
        self.silent_nodes: set[str] = set()
        for node in self.nodes:
            self._drain_in_engine(node.name)
        self.events = 0
        self.change_event = asyncio.Event()
        self.failure: BaseException | None = None
        self.epoch_s = epoch_s
        self.retention = Retention()
        self._ahead_s = time.time() - epoch_s - time.monotonic()
        self._decide, self._deciding = decide, False
        self._next_decision: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def now_s(self) -> float:
        """Seconds since the cluster's beginning, also if that was another manager's."""
        return time.monotonic() + self._ahead_s

    def note(self, what: str, job: str | None = None) -> None:
        """Write down what happened."""
        self.database.note(self.now_s(), job, what)

    def set_drained(self, name: str, *, drained: bool) -> None:
        """Place nothing on a node any more, or again, as a command wants; kept before it is done."""
        self.database.drain(name, on=drained)
        (self.drained_nodes.add if drained else self.drained_nodes.discard)(name)
        self._drain_in_engine(name)

    def set_silent(self, name: str, *, silent: bool) -> None:
        """Place nobody on a node that does not answer, or again on one that does."""
        (self.silent_nodes.add if silent else self.silent_nodes.discard)(name)
        self._drain_in_engine(name)

    def _drain_in_engine(self, name: str) -> None:
        server = [node.name for node in self.nodes].index(name)
        self.driver.drain(server, on=self.is_closed(name))

    def checkpoint(self, record: Record) -> Path:
        """The folder that all attempts at a job share."""
        return self.folder / "jobs" / str(record.number)

    def add_to_engine(self, records: Sequence[Record]) -> None:
        """Let the engine know these jobs."""
        self.driver.add(
            [record.job for record in records],
            [min(record.iteration, record.iterations - 1) * record.num_gpus for record in records],
            [not record.job.is_traffic for record in records],
            [record.number - 1 for record in records],
        )
        self.driver.set_stops(
            {record.job.id: (record.preempted, record.shrunk, record.grown) for record in records}
        )

    def schedule_arrival(self, record: Record) -> None:
        """Let a job queue when it is to."""

        def arrive() -> None:
            if record.state == "queued" and record.job.id in self.driver.progress_of:
                self.driver.arrive(record.job.id)
                self.decide_soon()

        left_s = record.arrival_s - self.now_s()
        if left_s <= 0:
            arrive()
        else:
            asyncio.get_running_loop().call_later(left_s, arrive)

    def nodes_of(self, gpus: Sequence[int]) -> list[str]:
        """The names of the nodes that have these GPUs, each once, in their order."""
        servers = dict.fromkeys(gpu // self.cluster.gpus_per_server for gpu in gpus)
        return [self.nodes[server].name for server in servers]

    def is_closed(self, node: str) -> bool:
        """True if nobody is to be placed on a node."""
        return node in self.drained_nodes or node in self.silent_nodes

    def place(self, job: str, gpus: Sequence[int], now_s: float) -> RunningAttempt:
        """Begin an attempt at a job with these GPUs; it is neither on disk nor started."""
        record = self.records[job]
        record.take_gpus(gpus)
        record.state, record.why, record.placed_s = "running", "", now_s
        record.start_s = now_s if record.start_s is None else record.start_s
        record.attempt += 1
        chosen = f" with {share}" if (share := share_text(record)) else ""
        where = ", ".join(self.nodes_of(record.gpus))
        self.note(f"placed on {where}{chosen}, attempt {record.attempt}", job)
        return self.begin_attempt(record)

    def begin_attempt(self, record: Record) -> RunningAttempt:
        """The attempt that a record is at, under way from now on."""
        run = RunningAttempt(record)
        self.runs[record.job.id] = run
        self.by_attempt[run.attempt.name] = run
        return run

    def wait_for_leaving(self, run: RunningAttempt) -> bool:
        """Let an attempt wait for those that were there as it was placed, and leave; whether there are any.

        They keep their GPUs until they have saved, whichever job they leave for: the engine counts these as
        free from the preemption on.
        """
        placed_s = run.record.placed_s or 0.0
        run.waits_for = [
            each
            for each in self.runs.values()
            if each is not run
            and (leaving := each.record.leaving) is not None
            and leaving.since_s <= placed_s
            and not set(each.attempt.gpus).isdisjoint(run.attempt.gpus)
        ]
        return bool(run.waits_for)

    def keep_iterations(self) -> None:
        """Keep how far jobs are."""
        changed = []
        for job in self.runs:
            record, done = self.records[job], self.driver.iterations_done(job)
            if done > record.iteration:
                record.iteration = done
                changed.append(record)
        if changed:
            self.database.put(changed)

    def decide_soon(self) -> None:
        """Decide once everything that has come by now is taken in."""
        self.events += 1
        if not self._deciding:
            self._deciding = True
            asyncio.get_running_loop().call_soon(self._decide_now)

    def _decide_now(self) -> None:
        self._deciding = False
        try:
            self._decide()
        except Exception as error:  # a callback's exception would only be printed
            self.fail(error)
            return
        if self._next_decision is not None:
            self._next_decision.cancel()
            self._next_decision = None
        if (due_s := self.driver.next_stop_s()) is not None:
            left_s = max(0.0, due_s - self.now_s())
            self._next_decision = asyncio.get_running_loop().call_later(left_s, self.decide_soon)

    def fail(self, error: BaseException) -> None:
        """The manager cannot go on."""
        self.failure = error
        self.change_event.set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside everything else."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end_task)

    def _end_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    async def end_work(self) -> None:
        """End what was spawned."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
