"""Attempts at jobs: ranks are started on nodes and watched; what has ended is drawn conclusions from."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from hocket.cluster.live.book import Book, Run
from hocket.cluster.live.database import Record
from hocket.cluster.live.jobs import command_of, environments
from hocket.cluster.live.nodes import NodeError
from hocket.launch.control import UNIX

LOOK_EVERY_S = 0.05
_RETRY_S = 1.0  # until a job that failed is tried again


class Attempts:
    """Starts ranks and watches them.

    ``token``: the cluster's; ``gate``: the path of the gate's socket; ``restarts``: how often a job that
    fails is tried again; ``chunk_bytes``: after how many bytes replayed jobs ask again. ``address``: the
    gate's for ranks that do not have this machine's files.
    """

    def __init__(self, book: Book, token: str, *, gate: str, restarts: int, chunk_bytes: float) -> None:
        self._book, self._token, self._gate = book, token, gate
        self._restarts, self._chunk_bytes = restarts, chunk_bytes
        self.address = ""

    async def start(self, run: Run) -> None:
        """Start the ranks of an attempt; the watch sees what becomes of them."""
        nodes, job = self._book.nodes, run.record.job
        servers = run.attempt.servers(self._book.cluster)
        checkpoint = self._book.checkpoint(run.record)
        try:
            checkpoint.mkdir(parents=True, exist_ok=True)
            leaders = []
            for server in dict.fromkeys(servers):
                port = await nodes[server].free_port()
                leaders.append(f"{nodes[server].address}:{port}")
            local = f"{UNIX}{self._gate}"
            preemptive = self._book.driver.preemptive
            told = environments(
                run.attempt,
                self._book.cluster,
                leaders=leaders,
                gates=[local if nodes[s].shares_files else self.address for s in servers],
                token=run.attempt.token(self._token),
                checkpoint=str(checkpoint.resolve()),
                begin=run.record.iteration,
                chunk_bytes=int(self._chunk_bytes if preemptive else max(1.0, job.size_bytes)),
            )
            command, folder = command_of(job), job.folder or "."
            for rank, server in enumerate(servers):
                await nodes[server].start(run.attempt.key(rank), command, told[rank], folder)
        except (NodeError, OSError) as error:
            self._book.note(f"cannot be started: {error}", job.id)
            run.ending = run.ending or ("failed", str(error))
        run.started = True

    async def watch(self) -> None:
        """See which ranks have ended, and what that means for their jobs."""
        while True:
            conditions: list[dict[str, int | None] | None] = []
            # Only those that had been started before any node was asked.
            runs = [run for run in self._book.runs.values() if run.started]
            for node in self._book.nodes:
                try:
                    conditions.append(await node.conditions())
                except NodeError as error:
                    self._book.note(f"{error}")
                    conditions.append(None)
            for run in runs:
                if self._book.runs.get(run.record.job.id) is run:
                    await self._look_at(run, conditions)
            await asyncio.sleep(LOOK_EVERY_S)

    async def _look_at(self, run: Run, conditions: Sequence[dict[str, int | None] | None]) -> None:
        nodes, servers = self._book.nodes, run.attempt.servers(self._book.cluster)
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
                    await nodes[server].stop(run.attempt.key(rank))
        elif not running:
            self._ended(run)
            for rank, server in enumerate(servers):
                with contextlib.suppress(NodeError):
                    await nodes[server].forget(run.attempt.key(rank))

    async def _why(self, rank: int, server: int, key: str, status: int) -> str:
        ended = f"status {status}" if status >= 0 else f"signal {-status}"
        node, said = self._book.nodes[server], ""
        with contextlib.suppress(NodeError):
            lines = (await node.output(key)).strip().splitlines()
            said = f": {lines[-1][:300]}" if lines else ""
        return f"rank {rank} on {node.name} ended with {ended}{said}"

    def _ended(self, run: Run) -> None:
        """All processes of an attempt have ended: its job is over, or tried again."""
        book, record = self._book, run.record
        job, now_s = record.job.id, book.now_s()
        record.iteration = max(record.iteration, book.driver.done(job))
        parts = book.driver.withdraw(job, now_s)
        seconds = (parts.computing_s, parts.gpu_wait_s, parts.transferring_s, parts.network_wait_s)
        a, b, c, d = (old + new for old, new in zip(record.parts, seconds, strict=True))
        record.parts = (a, b, c, d)
        del book.runs[job], book.by_attempt[run.attempt.name]
        state, why = run.ending or ("finished", "")
        if state == "failed" and record.attempt <= self._restarts:
            book.note(f"{why}; it is tried again", job)
            record.state, record.why = "queued", why
            if record.job.step is None and not any(book.checkpoint(record).glob("*")):
                record.iteration = 0  # it has kept nothing
            book.make_known([record])
            book.database.put([record])
            asyncio.get_running_loop().call_later(_RETRY_S, self._try_again, record)
        else:
            record.state, record.why, record.finish_s = state, why, now_s
            if state == "finished":
                record.iteration = record.job.iterations
            book.note(f"{state}{': ' if why else ''}{why}", job)
            book.database.put([record])
            book.changed.set()
        book.decide_soon()

    def _try_again(self, record: Record) -> None:
        if record.state == "queued" and record.job.id in self._book.driver.courses:
            self._book.driver.arrive(record.job.id)
            self._book.decide_soon()

    async def end_ranks(self) -> None:
        """End every rank that runs; their jobs are as if they had failed."""
        for _ in range(400):
            left = 0
            for node in self._book.nodes:
                with contextlib.suppress(NodeError):
                    for key, status in (await node.conditions()).items():
                        if status is None:
                            left += 1
                            await node.stop(key)
            if not left:
                return
            await asyncio.sleep(LOOK_EVERY_S)
