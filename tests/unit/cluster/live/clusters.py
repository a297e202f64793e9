"""A manager in a thread of this process, its ranks real processes; in the end nothing of it runs."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.live.devices import types_of_slots
from hocket.cluster.live.driver import warm
from hocket.cluster.live.job_record import Record
from hocket.cluster.live.manager import Manager
from hocket.cluster.live.manager_address import Contact, ask_manager
from hocket.cluster.live.manager_messages import AskStatus, FromClient, ManagerAnswer, Status
from hocket.cluster.live.nodes import LocalNode, Node, local_nodes
from hocket.cluster.live.runnable_jobs import LiveJob, attempt_token
from hocket.launch.control import Connection, Guest, connect
from hocket.launch.credentials import Credentials
from tests.tokens import CREDENTIALS, FINGERPRINT, SECRET, TOKEN

LIMIT_S = 40.0


def as_rank(address: str, attempt: str, rank: int = 0) -> Connection:
    """What a rank of that attempt has with the gate."""
    theirs = Credentials(attempt_token(SECRET, attempt), FINGERPRINT)
    return connect(address, theirs, Guest("rank", rank, attempt), 5.0)


def live_job(name: str, gpus: int = 1, **changes: Any) -> LiveJob:
    fields: dict[str, Any] = {
        **{"id": name, "model": "m", "gpus": gpus, "iterations": 4, "arrival_s": 0.0},
        **{"forward_s": 0.02, "backward_s": 0.02, "size_bytes": 1e5, "memory_bytes": 1.0},
    }
    return LiveJob(**fields | changes)


class Running:
    """A manager that runs; ``ask`` is what commands do."""

    def __init__(self, manager: Manager, nodes: Sequence[Node]) -> None:
        self.manager, self.nodes = manager, nodes
        self.failure: BaseException | None = None
        self._opened, self._loop = threading.Event(), asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._work)

    def open(self, jobs: Sequence[LiveJob], *, until_idle: bool) -> None:
        self._jobs, self._until_idle = jobs, until_idle
        self._thread.start()
        assert self._opened.wait(LIMIT_S)

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)

        async def work() -> None:
            self._task = asyncio.current_task()
            try:
                await self.manager.run(
                    "127.0.0.1", 0, self._jobs, until_idle=self._until_idle, on_open=self._opened.set
                )
            except asyncio.CancelledError:
                pass
            except BaseException as error:
                self.failure = error
            finally:
                self._opened.set()

        self._loop.run_until_complete(work())
        self._loop.close()

    def ask(self, request: FromClient) -> ManagerAnswer:
        return ask_manager(Contact(address=self.manager.address, token=TOKEN), request)

    def status(self) -> Status:
        found = self.ask(AskStatus()).status
        assert found is not None
        return found

    def until(self, due: Callable[[Status], bool]) -> Status:
        deadline = time.monotonic() + LIMIT_S
        while not due(status := self.status()):
            assert time.monotonic() < deadline, status
            time.sleep(0.05)
        return status

    def until_ranks_run(self) -> Status:
        """Wait until the ranks of all jobs have been started; a job is *running* from its placement on."""
        runs = self.manager._context.runs
        return self.until(
            lambda status: all(
                job.state == "running" and job.id in runs and runs[job.id].started_s is not None
                for job in status.jobs
            )
        )

    def join(self, limit_s: float = LIMIT_S) -> dict[str, Record]:
        """Wait until it is idle."""
        self._thread.join(limit_s)
        assert not self._thread.is_alive()
        if self.failure is not None:
            raise self.failure
        return {record.job.id: record for record in self.manager.records}

    def end(self) -> None:
        """End the manager alone; its ranks go on."""
        if self._thread.is_alive() and self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()


warmed = functools.cache(warm)


def end_ranks(nodes: Sequence[Node]) -> None:
    async def end() -> None:
        for _ in range(400):
            left = [(node, k) for node in nodes for k, s in (await node.conditions()).items() if s is None]
            for node, key in left:
                assert isinstance(node, LocalNode)
                node._ranks.kill(key)
            if not left:
                return
            await asyncio.sleep(0.02)
        raise AssertionError("ranks do not end")

    asyncio.run(end())


@contextmanager
def running(
    folder: Path,
    jobs: Sequence[LiveJob] = (),
    *,
    servers: int = 2,
    gpus: int = 2,
    placement: str = "ls",
    policy: str = "srsf-1",
    until_idle: bool = True,
    restarts: int = 1,
    keep: bool = False,
    memory: float = 10.0,
    chunk_bytes: float = 5e4,
    lost_after_s: float = 60.0,
    starvation_s: float | None = None,
    wait_for_faster: bool = False,
    quotas: Mapping[str, int] | None = None,
    resize: bool = False,
    nodes: Sequence[Node] | None = None,
    credentials: Credentials = CREDENTIALS,
) -> Iterator[Running]:
    """A cluster on this machine; ``keep``: ranks go on when the block ends."""
    warmed()
    nodes = local_nodes(folder, servers) if nodes is None else nodes
    servers = len(nodes)
    cluster = Cluster(
        num_servers=servers,
        gpus_per_server=gpus,
        gpu_memory_bytes=memory,
        gpu_types=types_of_slots(nodes, gpus),
    )
    manager = Manager(
        folder,
        cluster,
        nodes,
        Scheduling(
            placement=placement,
            policy=policy,
            chunk_bytes=chunk_bytes,
            starvation_s=starvation_s,
            wait_for_faster=wait_for_faster,
            quotas=quotas or {},
            resize=resize,
        ),
        credentials=credentials,
        restarts=restarts,
        lost_after_s=lost_after_s,
    )
    found = Running(manager, nodes)
    found.open(jobs, until_idle=until_idle)
    try:
        yield found
    finally:
        found.end()
        if not keep:
            end_ranks(nodes)
