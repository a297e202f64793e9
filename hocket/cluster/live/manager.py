"""The manager of a cluster: events from ranks, commands and clocks go to the engine, its decisions to ranks.

It decides nothing itself. Whatever must survive it is in the database before it happens: an attempt at a job
is written down, then started; ranks go on without a manager, and the next one finds them by their attempt.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import sqlite3
import stat
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.records import EXCLUDED
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.live.actions import Resize
from hocket.cluster.live.api.application import Backend, HttpService, api_application
from hocket.cluster.live.api.page_door import PageDoor, page_door
from hocket.cluster.live.api.prometheus_text import Metrics
from hocket.cluster.live.attempts import Attempts
from hocket.cluster.live.client_requests import Commands
from hocket.cluster.live.context import ManagerContext, RunningAttempt
from hocket.cluster.live.database import Database
from hocket.cluster.live.devices import lacking_bytes, shared_out
from hocket.cluster.live.driver import Driver
from hocket.cluster.live.gatekeeper import Gatekeeper
from hocket.cluster.live.job_record import Leaving, Record
from hocket.cluster.live.manager_server import ManagerServer
from hocket.cluster.live.nodes import Node, check_reachable
from hocket.cluster.live.nvml import gpu_memory
from hocket.cluster.live.retention import Retention
from hocket.cluster.live.runnable_jobs import LiveJob
from hocket.cluster.live.transfer_log import TransferLog
from hocket.cluster.live.user_history import attained_gpu_s
from hocket.errors import HocketError
from hocket.launch.credentials import Credentials
from hocket.launch.gate import HELD_EVERY_S
from hocket.launch.job import split_address
from hocket.launch.open_files import allow_ranks
from hocket.launch.rate_limited_log import RateLimitedLog
from hocket.text import counted

_WRITE_EVERY_S = 1.0
_LONGEST_SOCKET = 100  # bytes of its path


class Manager:
    """Runs the jobs of the cluster in ``folder`` on ``nodes``.

    ``credentials``: the cluster's, with its private key; ``restarts``: how often a job that fails is tried
    again; ``lost_after_s``: of silence of a node, until its jobs go back to the queue and may run elsewhere.
    ``on_change`` is called now and then. To be run once, with :meth:`run`.
    """

    def __init__(
        self,
        folder: Path,
        cluster: Cluster,
        nodes: Sequence[Node],
        scheduling: Scheduling,
        *,
        credentials: Credentials,
        restarts: int = 3,
        lost_after_s: float = 60.0,
    ) -> None:
        assert len(nodes) == cluster.num_servers
        most_ranks = allow_ranks(cluster.num_gpus)
        self._socket, self._half_life_s = _socket_path(folder), scheduling.half_life_s
        driver = Driver(cluster, scheduling)
        settings = {
            "nodes": ",".join(node.name for node in nodes),
            "gpus_per_server": str(cluster.gpus_per_server),
            "placement": scheduling.placement,
            "policy": scheduling.policy,
        }
        self._database, epoch_s = _open_database(folder, settings, nodes, cluster)
        self._context = ManagerContext(
            folder, cluster, nodes, driver, self._database, epoch_s=epoch_s, decide=self._decide
        )
        running = any(record.state == "running" for record in self._context.records.values())
        memory = gpu_memory(free=not running)  # ours are not to count as others'
        lacking = lacking_bytes(nodes, cluster.gpus_per_server, cluster.gpu_memory_bytes, memory)
        driver.set_lacking(np.array([EXCLUDED if lack is None else lack for lack in lacking], np.int64))
        self._transfers = TransferLog()
        self._gatekeeper = Gatekeeper(self._context, credentials.secret)
        self._attempts = Attempts(
            self._context,
            credentials,
            gate=str(self._socket),
            restarts=restarts,
            chunk_bytes=scheduling.chunk_bytes,
            lost_after_s=lost_after_s,
        )
        self._commands = Commands(self._context, self._transfers, scheduling, lost_after_s)
        self._strangers = RateLimitedLog(self._context.note)
        self._backend = Backend(
            serve=self._commands.serve,
            metrics=Metrics(self._context, scheduling).text,
            token=credentials.without_key.text,
            refuse=self._strangers,
        )
        self._server = ManagerServer(
            credentials.served,
            self._gatekeeper,
            HttpService(api_application(self._backend), self._strangers),
            self._strangers,
            most_ranks,
        )
        self.address = ""
        self.page: PageDoor | None = None
        self.on_change: Callable[[], object] = lambda: None

    def set_retention(self, retention: Retention) -> None:
        """Set for how long what is over is shown and kept; before it runs."""
        self._context.retention = retention

    def show_page(self, host: str, port: int, page: bytes) -> None:
        """Show ``page`` at an address while it runs; HocketError where that is not possible."""
        self.page = page_door(host, port, page, self._backend)

    @property
    def records(self) -> list[Record]:
        """All jobs, in the order in which they were submitted."""
        return list(self._context.records.values())

    @property
    def events(self) -> int:
        """The number of times that ranks, commands and clocks have told it something."""
        return self._context.events

    async def run(
        self,
        host: str,
        port: int,
        jobs: Sequence[LiveJob] = (),
        *,
        until_idle: bool = False,
        on_open: Callable[[], None] = lambda: None,
    ) -> None:
        """Serve at ``host`` and ``port`` for ever, or until all jobs are over; ``jobs`` arrive when they say.

        ``on_open`` is called when :attr:`address` is known.
        Ranks that still run when this ends go on, unless :meth:`end_ranks` was called.
        """
        context = self._context
        try:
            self.address = self._attempts.address = await self._listen(host, port)
            context.note(f"manager at {self.address}")
            check_reachable(self.address, context.nodes)
            if self.page is not None:
                await self._server.open_page(self.page.listener, self.page.service, is_tls=self.page.is_open)
            on_open()
            self._take_over()
            self._commands.submit(jobs)
            tasks = [asyncio.create_task(loop) for loop in self._loops()]
            try:
                while not (until_idle and all(record.over for record in context.records.values())):
                    context.change_event.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_WRITE_EVERY_S):
                            await context.change_event.wait()
                    self.on_change()
                    for task in tasks:
                        if task.done():
                            task.result()
                    if context.failure is not None:
                        raise context.failure
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await context.end_work()
        except sqlite3.Error as error:
            raise HocketError(
                f"{context.folder}: the cluster's database cannot be written: {error}; jobs go on, and so"
                " will a manager that is started there"
            ) from None
        finally:
            await self._server.close()
            self._strangers.tell(ends=True)
            with contextlib.suppress(sqlite3.Error):
                context.keep_iterations()
            self._database.close()
            self._socket.unlink(missing_ok=True)

    async def _listen(self, host: str, port: int) -> str:
        """Listen at the address of this cluster's last manager, which ranks know, unless another is given."""
        address, before = "", self._database.port()
        if port == 0 and before:
            with contextlib.suppress(HocketError):  # another process listens there now
                address = await self._server.open(host, before, str(self._socket))
        address = address or await self._server.open(host, port, str(self._socket))
        self._database.keep_port(split_address(address)[1])
        return address

    async def end_ranks(self) -> None:
        """End every rank that runs; their jobs are as if they had failed."""
        await self._attempts.end_ranks()

    def _take_over(self) -> None:
        """Go on with what another manager left: queued jobs queue, running ones are where they are."""
        context = self._context
        now_s = context.now_s()
        had = attained_gpu_s(context.records.values(), now_s, self._half_life_s)
        context.driver.set_attained(had, now_s)
        left = [record for record in context.records.values() if not record.over]
        if not left:
            return
        context.add_to_engine(left)
        for record in left:
            if record.state != "running":
                context.schedule_arrival(record)
                continue
            run = context.begin_attempt(record)
            run.started_s = 0.0
            if (leaving := record.leaving) is None:
                context.driver.adopt(record.job.id, record.gpus, now_s)
            else:  # what its GPUs have room for is another's, or its own to come
                run.ending = run.ending or ("queued", leaving.why)
                context.driver.leave(record.job.id, len(record.gpus), leaving.gpus, now_s)
        for run in context.runs.values():
            if context.wait_for_leaving(run):  # so none of its ranks was started
                run.started_s = None
                context.spawn(self._attempts.start(run))
        context.note(f"{counted(len(left), 'job')} taken over")
        context.decide_soon()

    def _decide(self) -> None:
        context, now_s = self._context, self._context.now_s()
        actions = context.driver.decide(now_s)
        leaving = [self._preempt(job, by, now_s) for job, by in actions.preemptions.items()]
        leaving += [self._resize(job, to, now_s) for job, to in actions.resizes.items()]
        runs = [context.place(job, gpus, now_s) for job, gpus in actions.placements.items()]
        if leaving or runs:  # on disk, all at once, before anything of it happens
            self._database.put([run.record for run in (*leaving, *runs)])
        for run in runs:
            context.wait_for_leaving(run)
            context.spawn(self._attempts.start(run))
        self._gatekeeper.let_go(actions)
        since = context.driver.transferring()
        servers = {job: sorted(set(context.runs[job].attempt.servers(context.cluster))) for job in since}
        self._transfers.take(since, servers, now_s)

    def _preempt(self, job: str, by: str, now_s: float) -> RunningAttempt:
        """Let an attempt end, and its job queue again."""
        return self._end_with(job, Leaving(now_s, f"preempted for {by}"))

    def _resize(self, job: str, to: Resize, now_s: float) -> RunningAttempt:
        """Let an attempt end, and its job go on with other GPUs."""
        had, has = len(self._context.runs[job].record.gpus), len(to.gpus)
        why = (
            f"shrunk from {had} to {has} GPUs for {to.ahead}"
            if to.ahead
            else f"grown from {had} to {has} GPUs"
        )
        return self._end_with(job, Leaving(now_s, why, gpus=to.gpus))

    def _end_with(self, job: str, leaving: Leaving) -> RunningAttempt:
        run = self._context.runs[job]
        run.record.leaving = leaving
        if run.ending is None:
            run.ending = ("queued", leaving.why)
        self._context.note(leaving.why, job)
        return run

    def _loops(self) -> tuple[Coroutine[Any, Any, None], ...]:
        return self._attempts.watch(), self._beat(), self._attempts.tidy()

    async def _beat(self) -> None:
        """Tell ranks that wait that we are alive, and keep how far jobs are."""
        while True:
            await asyncio.sleep(HELD_EVERY_S)
            self._gatekeeper.hold()
            self._context.keep_iterations()
            self._strangers.tell()
            self._database.keep_reserve()
            self._database.write_notes()


def _open_database(
    folder: Path, settings: Mapping[str, str], nodes: Sequence[Node], cluster: Cluster
) -> tuple[Database, float]:
    """The database of the cluster in ``folder``, and when that began; HocketError where it is another."""
    devices = zip(nodes, shared_out(nodes, cluster.gpus_per_server), strict=True)
    database = Database(folder)
    with contextlib.ExitStack() as unless_refused:
        unless_refused.callback(database.close)
        epoch_s = database.keep_settings(settings, time.time())
        running = (record for record in database.jobs() if record.state == "running")
        database.keep_devices(
            {node.name: given for node, given in devices if node.devices is not None},
            {nodes[gpu // cluster.gpus_per_server].name for record in running for gpu in record.gpus},
        )
        unless_refused.pop_all()
    return database, epoch_s


def _socket_path(folder: Path) -> Path:
    """The path of the socket where this machine's ranks find the gate of the cluster in ``folder``.

    It is the same after a restart. A socket's path is short: where the folder's is not, it is in a folder of
    its own beside other users' files, and HocketError is raised if they could write there.
    """
    path = folder.resolve() / "gate"
    if len(bytes(path)) <= _LONGEST_SOCKET:
        return path
    name = hashlib.sha256(bytes(folder.resolve())).hexdigest()[:24]
    short = Path(tempfile.gettempdir(), f"hocket-{name}")
    with contextlib.suppress(FileExistsError):
        short.mkdir(mode=0o700)
    found = short.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise HocketError(
            f"{short} is to hold the gate's socket and is no folder of yours alone; remove it, or give "
            f"a --state whose path has at most {_LONGEST_SOCKET - len('/gate')} bytes"
        )
    return short / "gate"
