"""The manager of a cluster: events from ranks, commands and clocks go to the engine, its decisions to ranks.

It decides nothing itself. Whatever must survive it is in the database before it happens: an attempt at a job
is written down, then started; ranks go on without a manager, and the next one finds them by their attempt.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
import sqlite3
import tempfile
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hocket.cluster.cluster import Cluster
from hocket.cluster.jobs import JobSet
from hocket.cluster.live.database import Database, JobState, Record
from hocket.cluster.live.driver import Actions, Driver
from hocket.cluster.live.jobs import Attempt, LiveJob, attempt_token, check_program, command_of, environments
from hocket.cluster.live.messages import (
    Answer,
    AskStatus,
    Cancel,
    Drain,
    FromClient,
    JobStatus,
    Status,
    Submit,
    TransferSpan,
)
from hocket.cluster.live.nodes import Node, NodeError
from hocket.cluster.live.server import RankLink, Server
from hocket.cluster.records import TRANSFERRING
from hocket.errors import HocketError, UnknownNameError
from hocket.launch.control import UNIX, Guest
from hocket.launch.gate import (
    HELD_EVERY_S,
    Compute,
    Computed,
    FromRank,
    Go,
    Held,
    Join,
    Transfer,
    Transferred,
)

LOOK_EVERY_S = 0.05
_WRITE_EVERY_S = 1.0
_MOST_SPANS = 5000
_LONGEST_SOCKET = 100  # bytes of its path
_RETRY_S = 1.0  # until a job that failed is tried again


class Run:
    """An attempt at a job that is under way: its ranks' connections, and what they wait for."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.attempt = Attempt(job=record.job, number=record.number, attempt=record.attempt, gpus=record.gpus)
        self.links: dict[int, RankLink] = {}
        self.computes: dict[int, int] = {}
        self.transfer: int | None = None
        self.started = False
        self.ending: tuple[JobState, str] | None = None


class Manager:
    """Runs the jobs of the cluster in ``folder`` on ``nodes``.

    ``token``: what commands have to know; ``restarts``: how often a job that fails is tried again;
    ``events``: what ranks, commands and clocks have told it; ``on_change`` is called now and then. To be run
    once, with :meth:`run`.
    """

    def __init__(
        self,
        folder: Path,
        cluster: Cluster,
        nodes: Sequence[Node],
        *,
        placement: str,
        policy: str,
        token: str,
        seed: int = 0,
        chunk_bytes: float = 4e6,
        restarts: int = 3,
    ) -> None:
        assert len(nodes) == cluster.num_servers
        self._folder, self._cluster, self._nodes, self._token = folder, cluster, list(nodes), token
        self._placement, self._policy, self._restarts = placement, policy, restarts
        self._chunk_bytes = chunk_bytes
        self._driver = Driver(cluster, placement=placement, policy=policy, seed=seed, chunk_bytes=chunk_bytes)
        self._database = Database(folder)
        settings = {
            "nodes": ",".join(node.name for node in nodes),
            "gpus_per_server": str(cluster.gpus_per_server),
            "placement": placement,
            "policy": policy,
        }
        self._epoch_s = self._database.settle(settings, time.time())
        self._ahead_s = time.time() - self._epoch_s - time.monotonic()
        self._records = {record.job.id: record for record in self._database.jobs()}
        self._number = max((record.number for record in self._records.values()), default=0)
        self._runs: dict[str, Run] = {}
        self._by_attempt: dict[str, Run] = {}
        self._drained: set[str] = set()
        self._spans: deque[list[object]] = deque(maxlen=_MOST_SPANS)
        self._open_spans: dict[str, tuple[int, list[object]]] = {}
        self._server = Server(self)
        self._tasks: set[asyncio.Task[None]] = set()
        self._deciding = False
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None
        self._socket = _socket_path(folder)
        self.address = ""
        self.events = 0
        self.on_change: Callable[[], object] = lambda: None

    # What drives it.

    def now_s(self) -> float:
        """Seconds since the cluster's beginning, also if that was another manager's."""
        return time.monotonic() + self._ahead_s

    @property
    def records(self) -> list[Record]:
        """All jobs, in the order in which they were submitted."""
        return list(self._records.values())

    async def run(
        self,
        host: str,
        port: int,
        jobs: Sequence[LiveJob] = (),
        *,
        until_idle: bool = False,
        opened: Callable[[], None] = lambda: None,
    ) -> None:
        """Serve at ``host`` and ``port`` for ever, or until all jobs are over; ``jobs`` arrive when they say.

        ``opened`` is called when :attr:`address` is known.
        Ranks that still run when this ends go on, unless :meth:`end_ranks` was called.
        """
        try:
            self.address = await self._server.open(host, port, str(self._socket))
            self.note(f"manager at {self.address}")
            opened()
            self._take_over()
            self._add(jobs, self.now_s())
            loops = [self._watch(), self._beat()]
            tasks = [asyncio.create_task(loop) for loop in loops]
            try:
                while not (until_idle and all(record.over for record in self._records.values())):
                    self._changed.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_WRITE_EVERY_S):
                            await self._changed.wait()
                    self.on_change()
                    for task in tasks:
                        if task.done():
                            task.result()
                    if self._failure is not None:
                        raise self._failure
            finally:
                for task in (*tasks, *self._tasks):
                    task.cancel()
                await asyncio.gather(*tasks, *self._tasks, return_exceptions=True)
        finally:
            await self._server.close()
            self._keep_iterations()
            self._database.close()
            self._socket.unlink(missing_ok=True)

    async def end_ranks(self) -> None:
        """End every rank that runs; their jobs are as if they had failed."""
        for _ in range(400):
            left = 0
            for node in self._nodes:
                with contextlib.suppress(NodeError):
                    for key, status in (await node.conditions()).items():
                        if status is None:
                            left += 1
                            await node.stop(key)
            if not left:
                return
            await asyncio.sleep(LOOK_EVERY_S)

    def _take_over(self) -> None:
        """Go on with what another manager left: queued jobs queue, running ones are where they are."""
        left = [record for record in self._records.values() if not record.over]
        if not left:
            return
        self._known(left)
        now_s = self.now_s()
        for record in left:
            if record.state == "running":
                run = self._begun(record)
                run.started = True
                self._driver.adopt(record.job.id, record.gpus, now_s)
            else:
                self._arrives(record)
        self.note(f"{len(left)} jobs were taken over")
        self._decide_soon()

    def _known(self, records: Sequence[Record]) -> None:
        self._driver.add(
            [record.job for record in records],
            [min(record.iteration, record.job.iterations - 1) for record in records],
            [not record.job.is_traffic for record in records],
        )

    def _add(self, jobs: Sequence[LiveJob], now_s: float) -> list[str]:
        """Keep new jobs; what is to be said of each. Raises HocketError if one can never be placed."""
        if jobs:
            JobSet(jobs=tuple(jobs), source="submission")  # ids and numbers are as they have to be
        notes, new = [], []
        for job in jobs:
            known = self._records.get(job.id)
            if known is not None:
                if msgspec.structs.replace(known.job, arrival_s=job.arrival_s) != job:
                    raise HocketError(
                        f"job '{job.id}' is known and another one; give this one an id of its own"
                    )
                notes.append(f"{job.id}: {known.state}, it was submitted before")
                continue
            check_program(job, f"job '{job.id}'")
            self._driver.check(job)
            self._number += 1
            arrival_s = now_s + job.arrival_s
            new.append(
                Record(
                    number=self._number,
                    job=msgspec.structs.replace(job, arrival_s=arrival_s),
                    arrival_s=arrival_s,
                )
            )
            notes.append(f"{job.id}: queued")
        if new:
            self._known(new)
            try:
                self._database.add(new)
            except sqlite3.Error as error:
                for record in new:
                    self._driver.withdraw(record.job.id, now_s)
                raise HocketError(f"the jobs cannot be kept: {error}; submit them again") from None
            for record in new:
                self._records[record.job.id] = record
                self._arrives(record)
        return notes

    def _arrives(self, record: Record) -> None:
        """Let a job queue when it is to."""

        def arrive() -> None:
            if record.state == "queued" and record.job.id in self._driver.courses:
                self._driver.arrive(record.job.id)
                self._decide_soon()

        left_s = record.arrival_s - self.now_s()
        if left_s <= 0:
            arrive()
        else:
            asyncio.get_running_loop().call_later(left_s, arrive)

    # Decisions.

    def _decide_soon(self) -> None:
        """Decide once everything that has come by now is taken in."""
        self.events += 1
        if not self._deciding:
            self._deciding = True
            asyncio.get_running_loop().call_soon(self._decide)

    def _decide(self) -> None:
        self._deciding = False
        try:
            now_s = self.now_s()
            actions = self._driver.decide(now_s)
            self._carry_out(actions, now_s)
            self._log_transfers(now_s)
        except Exception as error:  # a callback's exception would only be printed
            self._failure = error
            self._changed.set()

    def _carry_out(self, actions: Actions, now_s: float) -> None:
        for job, gpus in actions.placed.items():
            record = self._records[job]
            record.state, record.gpus, record.why = "running", tuple(gpus), ""
            record.start_s = now_s if record.start_s is None else record.start_s
            record.attempt += 1
            run = self._begun(record)
            self._database.put([record])
            self.note(f"placed on {self._where(record)}, attempt {record.attempt}", job)
            self._spawn(self._start(run))
        for job, rank in actions.compute:
            run = self._runs[job]
            number = run.computes.pop(rank, None)
            if number is not None and rank in run.links:
                run.links[rank].send(Go(number))
        for job in actions.transfer:
            run = self._runs[job]
            number, run.transfer = run.transfer, None
            if number is not None and 0 in run.links:
                run.links[0].send(Go(number))

    def _log_transfers(self, now_s: float) -> None:
        """Write down whose transfers have begun since the last decision, and whose are over."""
        under_way: dict[str, int] = {}
        if self._driver.courses:
            state, _ = self._driver.state
            for name, course in self._driver.courses.items():
                row = state.jobs[course.row]
                if row["stage"] == TRANSFERRING:
                    under_way[name] = int(row["since"])
        for name, (since, span) in list(self._open_spans.items()):
            if under_way.get(name) != since:
                span[3] = now_s
                del self._open_spans[name]
        for name, since in under_way.items():
            if name not in self._open_spans:
                servers = sorted({g // self._cluster.gpus_per_server for g in self._records[name].gpus})
                span = [name, servers, now_s, None]
                self._open_spans[name] = since, span
                self._spans.append(span)

    def _begun(self, record: Record) -> Run:
        run = Run(record)
        self._runs[record.job.id] = run
        self._by_attempt[run.attempt.name] = run
        return run

    async def _start(self, run: Run) -> None:
        """Start the ranks of an attempt; the watch sees what becomes of them."""
        servers = run.attempt.servers(self._cluster)
        different = list(dict.fromkeys(servers))
        checkpoint = self._checkpoint(run.record)
        try:
            checkpoint.mkdir(parents=True, exist_ok=True)
            leaders = []
            for server in different:
                node = self._nodes[server]
                leaders.append(f"{node.address}:{await node.free_port()}")
            local = f"{UNIX}{self._socket}"
            told = environments(
                run.attempt,
                self._cluster,
                leaders=leaders,
                gates=[local if self._nodes[s].shares_files else self.address for s in servers],
                token=run.attempt.token(self._token),
                checkpoint=str(checkpoint.resolve()),
                begin=run.record.iteration,
                chunk_bytes=int(
                    self._chunk_bytes if self._driver.preemptive else max(1.0, run.record.job.size_bytes)
                ),
            )
            command, folder = command_of(run.record.job), run.record.job.folder or "."
            for rank, server in enumerate(servers):
                await self._nodes[server].start(run.attempt.key(rank), command, told[rank], folder)
        except (NodeError, OSError) as error:
            self.note(f"cannot be started: {error}", run.record.job.id)
            run.ending = run.ending or ("failed", str(error))
        run.started = True

    def _checkpoint(self, record: Record) -> Path:
        return self._folder / "jobs" / str(record.number)

    # Ranks.

    def token_of(self, guest: Guest) -> str:
        """What the guest has to know."""
        if guest.role == "client":
            return self._token
        number, _, attempt = guest.address.partition("-")
        if guest.role != "rank" or not (number.isdecimal() and attempt.isdecimal()):
            return secrets.token_hex(16)  # which nobody knows
        return attempt_token(self._token, guest.address)

    def is_current(self, attempt: str, rank: int) -> bool:
        """Whether the rank takes part."""
        run = self._by_attempt.get(attempt)
        return run is not None and run.ending is None and 0 <= rank < len(run.attempt.gpus)

    def joined(self, link: RankLink, message: Join) -> None:
        """A rank has come; one that is here already has lost its other connection."""
        run = self._by_attempt[link.attempt]
        self._forget(run, link.rank)
        run.links[link.rank] = link
        self._driver.joined(run.record.job.id, link.rank, max(0, message.iteration))
        self._decide_soon()

    def heard(self, link: RankLink, message: FromRank) -> None:
        """A rank says something."""
        run = self._by_attempt.get(link.attempt)
        if run is None or run.links.get(link.rank) is not link:
            return
        job, rank = run.record.job.id, link.rank
        match message:
            case Compute(number, iteration, part):
                run.computes[rank] = number
                self._driver.ask_compute(job, rank, iteration, part)
            case Computed(iteration, part):
                self._driver.computed(job, rank, iteration, part)
            case Transfer(number, iteration, bytes_left, of_bytes) if rank == 0:
                run.transfer = number
                self._driver.ask_transfer(job, iteration, bytes_left, of_bytes, self.now_s())
            case Transferred(iteration) if rank == 0:
                self._driver.ended_transfer(job, iteration)
        self._decide_soon()

    def left(self, link: RankLink) -> None:
        """A rank has gone."""
        run = self._by_attempt.get(link.attempt)
        if run is not None and run.links.get(link.rank) is link:
            self._forget(run, link.rank)
            self._decide_soon()

    def _forget(self, run: Run, rank: int) -> None:
        if run.links.pop(rank, None) is not None:
            run.computes.pop(rank, None)
            if rank == 0:
                run.transfer = None
            self._driver.left(run.record.job.id, rank)

    # Processes.

    async def _watch(self) -> None:
        """See which ranks have ended, and what that means for their jobs."""
        while True:
            conditions: list[dict[str, int | None] | None] = []
            # Only those that had been started before any node was asked.
            runs = [run for run in self._runs.values() if run.started]
            for node in self._nodes:
                try:
                    conditions.append(await node.conditions())
                except NodeError as error:
                    self.note(f"{error}")
                    conditions.append(None)
            for run in runs:
                if self._runs.get(run.record.job.id) is run:
                    await self._look_at(run, conditions)
            await asyncio.sleep(LOOK_EVERY_S)

    async def _look_at(self, run: Run, conditions: Sequence[dict[str, int | None] | None]) -> None:
        servers = run.attempt.servers(self._cluster)
        running, failed = [], run.ending is not None
        for rank, server in enumerate(servers):
            known = conditions[server]
            if known is None:
                return  # what runs there is not known
            key = run.attempt.key(rank)
            if key not in known:
                # The manager was ended between writing the attempt down and starting it.
                failed = True
                run.ending = run.ending or ("failed", f"rank {rank} was not started")
                continue
            status = known[key]
            if status is None:
                running.append((rank, server))
            elif status != 0 and run.ending is None:
                failed = True
                why = await self._why(rank, server, key, status)
                run.ending = run.ending or ("failed", why)  # it may have been cancelled meanwhile
        if failed and running:
            for rank, server in running:
                with contextlib.suppress(NodeError):
                    await self._nodes[server].stop(run.attempt.key(rank))
        elif not running:
            self._ended(run)
            for rank, server in enumerate(servers):
                with contextlib.suppress(NodeError):
                    await self._nodes[server].forget(run.attempt.key(rank))

    async def _why(self, rank: int, server: int, key: str, status: int) -> str:
        ended = f"status {status}" if status >= 0 else f"signal {-status}"
        said = ""
        with contextlib.suppress(NodeError):
            lines = (await self._nodes[server].output(key)).strip().splitlines()
            said = f": {lines[-1][:300]}" if lines else ""
        return f"rank {rank} on {self._nodes[server].name} ended with {ended}{said}"

    def _ended(self, run: Run) -> None:
        """All processes of an attempt have ended: its job is over, or tried again."""
        record, now_s = run.record, self.now_s()
        job = record.job.id
        record.iteration = max(record.iteration, self._driver.done(job))
        parts = self._driver.withdraw(job, now_s)
        seconds = (parts.computing_s, parts.gpu_wait_s, parts.transferring_s, parts.network_wait_s)
        a, b, c, d = (old + new for old, new in zip(record.parts, seconds, strict=True))
        record.parts = (a, b, c, d)
        del self._runs[job], self._by_attempt[run.attempt.name]
        state, why = run.ending or ("finished", "")
        if state == "failed" and record.attempt <= self._restarts:
            self.note(f"{why}; it is tried again", job)
            record.state, record.why = "queued", why
            if record.job.step is None and not any(self._checkpoint(record).glob("*")):
                record.iteration = 0  # it has kept nothing
            self._known([record])
            self._database.put([record])
            asyncio.get_running_loop().call_later(_RETRY_S, self._try_again, record)
        else:
            record.state, record.why, record.finish_s = state, why, now_s
            if state == "finished":
                record.iteration = record.job.iterations
            self._database.put([record])
            self.note(f"{state}{': ' if why else ''}{why}", job)
            self._changed.set()
        self._decide_soon()

    def _try_again(self, record: Record) -> None:
        if record.state == "queued" and record.job.id in self._driver.courses:
            self._driver.arrive(record.job.id)
            self._decide_soon()

    async def _beat(self) -> None:
        """Tell whoever waits that we are alive, and keep how far jobs are."""
        while True:
            await asyncio.sleep(HELD_EVERY_S)
            for run in self._runs.values():
                for rank, link in run.links.items():
                    if rank in run.computes or (rank == 0 and run.transfer is not None):
                        link.send(Held())
            self._keep_iterations()

    def _keep_iterations(self) -> None:
        changed = []
        for job in self._runs:
            record, done = self._records[job], self._driver.done(job)
            if done > record.iteration:
                record.iteration = done
                changed.append(record)
        if changed:
            self._database.put(changed)

    # Commands.

    async def serve(self, request: FromClient) -> Answer:
        """A command's request."""
        match request:
            case Submit(jobs):
                return Answer(notes=tuple(self._add(jobs, self.now_s())))
            case Cancel(job):
                return Answer(notes=(self._cancel(job),))
            case Drain(node, on):
                return Answer(notes=(self._drain(node, on=on),))
            case AskStatus():
                return Answer(status=self.status())

    def _cancel(self, job: str) -> str:
        record = self._records.get(job)
        if record is None:
            raise UnknownNameError("job", job, list(self._records)[-20:])
        if record.over:
            return f"{job}: {record.state} already"
        if record.state == "running":
            self._runs[job].ending = ("cancelled", "")
        else:
            self._driver.withdraw(job, self.now_s())
            record.state, record.finish_s = "cancelled", self.now_s()
            self._database.put([record])
            self._changed.set()
        self.note("cancelled", job)
        self._decide_soon()
        return f"{job}: cancelled"

    def _drain(self, name: str, *, on: bool) -> str:
        names = [node.name for node in self._nodes]
        if name not in names:
            raise UnknownNameError("node", name, names)
        (self._drained.add if on else self._drained.discard)(name)
        self._driver.drain(names.index(name), on=on)
        there = sum(names.index(name) in run.attempt.servers(self._cluster) for run in self._runs.values())
        self.note(f"{name} is {'drained' if on else 'in use again'}")
        self._decide_soon()
        return (
            f"{name}: {'no job is placed there any more' if on else 'in use again'}, {there} jobs are there"
        )

    def status(self) -> Status:
        """The cluster as it is."""
        records = self._records.values()
        times = [
            r.finish_s - r.arrival_s for r in records if r.state == "finished" and r.finish_s is not None
        ]
        return Status(
            now_s=self.now_s(),
            placement=self._placement,
            policy=self._policy,
            gpus_per_server=self._cluster.gpus_per_server,
            nodes=tuple(node.name for node in self._nodes),
            drained=tuple(sorted(self._drained)),
            jobs=tuple(self._job_status(record) for record in records),
            transfers=tuple(TransferSpan(*span) for span in self._spans),  # type: ignore[arg-type]
            average_jct_s=sum(times) / len(times) if times else None,
        )

    def _job_status(self, record: Record) -> JobStatus:
        job = record.job.id
        live = not record.over and job in self._driver.courses
        return JobStatus(
            id=job,
            model=record.job.model,
            state=record.state,
            stage=self._driver.stage(job) if live else record.state,
            gpus=tuple(divmod(gpu, self._cluster.gpus_per_server) for gpu in record.gpus),
            wanted=record.job.gpus,
            iteration=max(record.iteration, self._driver.done(job)) if live else record.iteration,
            iterations=record.job.iterations,
            attempt=record.attempt,
            arrival_s=record.arrival_s,
            start_s=record.start_s,
            finish_s=record.finish_s,
            jct_s=None if record.finish_s is None else record.finish_s - record.arrival_s,
            why=record.why,
        )

    def note(self, what: str, job: str | None = None) -> None:
        """Write down what happened."""
        self._database.note(self.now_s(), job, what)

    def _where(self, record: Record) -> str:
        servers: Iterable[int] = dict.fromkeys(g // self._cluster.gpus_per_server for g in record.gpus)
        return ", ".join(self._nodes[server].name for server in servers)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = error
            self._changed.set()


def _socket_path(folder: Path) -> Path:
    """Where this machine's ranks find the gate of the cluster in ``folder``, now and after a restart."""
    path = folder.resolve() / "gate"
    if len(bytes(path)) <= _LONGEST_SOCKET:
        return path
    name = hashlib.sha256(bytes(folder.resolve())).hexdigest()[:24]
    short = Path(tempfile.gettempdir(), f"hocket-{name}")
    short.mkdir(mode=0o700, exist_ok=True)
    return short / "gate"
