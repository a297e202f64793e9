"""Attempts at jobs: ranks are started, watched, and asked to end."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
from collections.abc import Awaitable, Callable, Collection, Iterable

import msgspec

from hocket.cluster.live.attempt_endings import AttemptEndings
from hocket.cluster.live.context import ManagerContext, RunningAttempt
from hocket.cluster.live.devices import shared_out
from hocket.cluster.live.node_watch import NodeWatch
from hocket.cluster.live.nodes import AbsentError, FullError, Node, NodeError, UnfitError, is_full, text_of
from hocket.cluster.live.rank_failures import Cause, ended_text, failure_of, greatest_cause, signal_of
from hocket.cluster.live.runnable_jobs import GateAccess, KeptWork, command_of, environments
from hocket.errors import HocketError
from hocket.launch.control import UNIX
from hocket.launch.credentials import Credentials
from hocket.launch.rank_processes import GRACE_S
from hocket.launch.traffic import Leader, kept_iterations, kept_path

LOOK_EVERY_S = 0.05
_ASIDE_S = 2.0  # what is asked beside the watch, which waits for it
_CANCEL_S = 5.0  # of silence, until a job that was cancelled is over without its node
_SETTLE_S = 1.0  # after a rank's own failure, in which a peer may show that it was killed before
_PEERS_SETTLE_S = 5.0  # after a lost connection: a peer that failed may be slow to end, as an interpreter is
_TIDY_EVERY_S = 60.0
_END_S = 20.0  # until a manager that was to end all ranks ends without those of nodes that do not answer


class Attempts:
    """Starts ranks and watches them.

    ``credentials``: the cluster's; ``gate``: the path of the gate's socket; ``restarts``: how often a job
    is tried again whose ranks were killed or lost a peer; ``chunk_bytes``: after how many bytes replayed jobs
    ask again; ``lost_after_s``: of a node's silence, until its jobs go back to the queue. ``address``: the
    gate's for other machines.
    """

    def __init__(
        self,
        context: ManagerContext,
        credentials: Credentials,
        *,
        gate: str,
        restarts: int,
        chunk_bytes: float,
        lost_after_s: float,
    ) -> None:
        self._context, self._credentials, self._gate = context, credentials, gate
        self._endings = AttemptEndings(context, restarts)
        self._chunk_bytes, self._lost_after_s = chunk_bytes, lost_after_s
        self._watches = [NodeWatch(node, lost_after_s) for node in context.nodes]
        self.address = ""

    async def start(self, run: RunningAttempt) -> None:
        """Start the ranks of an attempt; the watch sees what becomes of them."""
        nodes, job = self._context.nodes, run.record.job
        servers = run.attempt.servers(self._context.cluster)
        checkpoint = self._context.checkpoint(run.record)
        for other in run.waits_for:
            await other.over.wait()
        try:
            await self._until_clear(set(servers))
            checkpoint.mkdir(mode=0o700, parents=True, exist_ok=True)
            places = list(dict.fromkeys(servers))
            ports = await asyncio.gather(*(nodes[server].free_port() for server in places))
            leaders = [
                Leader(f"{nodes[s].address}:{port}", f"rank {servers.index(s)} on {nodes[s].name}")
                for s, port in zip(places, ports, strict=True)
            ]
            local = f"{UNIX}{self._gate}"
            preemptive = self._context.driver.preemptive
            told = environments(
                run.attempt,
                self._context.cluster,
                leaders=leaders,
                devices=shared_out(nodes, self._context.cluster.gpus_per_server),
                gate=GateAccess(
                    addresses=[local if nodes[s].here else self.address for s in servers],
                    token=run.attempt.token(self._credentials.secret),
                    fingerprint=self._credentials.fingerprint,
                ),
                kept_work=KeptWork(str(checkpoint.resolve()), run.record.iteration),
                chunk_bytes=int(self._chunk_bytes if preemptive else max(1.0, job.size_bytes)),
            )
            folder = "." if job.is_traffic or job.folder is None else job.folder
            for rank, server in enumerate(servers):
                if run.ending is not None:
                    break  # it was cancelled meanwhile
                command = command_of(run.attempt, nodes[server].python)
                await nodes[server].start(run.attempt.key(rank), command, told[rank], folder)
        except (NodeError, HocketError, OSError) as error:
            full = isinstance(error, FullError) or (isinstance(error, OSError) and is_full(error))
            why = f"cannot be started: {'a disk is full: ' if full else ''}{error}"
            run.ending = run.ending or ("failed", why)
            run.lost_with_node = full or isinstance(error, AbsentError)
            run.cause = Cause.OWN if isinstance(error, UnfitError) else None
        run.started_s = asyncio.get_running_loop().time()

    async def _until_clear(self, servers: Collection[int]) -> None:
        """Wait until none of these servers has ranks of an attempt that is over.

        They may have come back with their node, on GPUs that nobody has by what the database says. Raises
        AbsentError where a node does not answer.
        """
        watches = [self._watches[server] for server in servers]
        while not all(watch.is_clear for watch in watches):
            if late := [watch.node.name for watch in watches if watch.late]:
                raise AbsentError(f"{late[0]} does not answer, or has ranks of another attempt")
            await asyncio.sleep(LOOK_EVERY_S)

    async def watch(self) -> None:
        """See which ranks have ended, and what that means for their jobs."""
        loop = asyncio.get_running_loop()
        last_s = loop.time()
        try:
            while True:
                # A node that does not answer keeps nobody else waiting.
                await asyncio.wait([watch.ask() for watch in self._watches], timeout=LOOK_EVERY_S)
                now_s = loop.time()
                for server, watch in enumerate(self._watches):
                    if watch.take(now_s - last_s):
                        await self._end_strays(watch)
                    if watch.has_turned():
                        self._turn(server, watch)
                last_s = now_s
                for run in list(self._context.runs.values()):
                    if run.started_s is not None and self._context.runs.get(run.record.job.id) is run:
                        await self._look_at(run, run.started_s)
                await asyncio.sleep(LOOK_EVERY_S)
        finally:
            for watch in self._watches:
                watch.end()

    def _turn(self, server: int, watch: NodeWatch) -> None:
        """Place nobody on a node that does not answer, or again on one that does."""
        name = watch.node.name
        self._context.set_silent(name, silent=watch.late)
        self._context.note(watch.why or f"{name} does not answer" if watch.late else f"{name} answers again")
        self._context.decide_soon()

    async def _end_strays(self, watch: NodeWatch) -> None:
        """End ranks of attempts that are over, which a node that was lost has brought back."""
        node, said = watch.node, watch.answer() or {}
        over = [key for key in said if key.rpartition("-")[0] not in self._context.by_attempt]
        watch.strays = any(said[key] is None for key in over)
        stop = functools.partial(node.stop, grace_s=GRACE_S)
        await _aside((stop if said[key] is None else node.forget, key) for key in over)

    async def _look_at(self, run: RunningAttempt, started_s: float) -> None:
        running: list[tuple[Node, str]] = []
        ended: list[tuple[Node, str]] = []
        lost: set[str] = set()
        left, succeeded = False, 0
        patience_s = _CANCEL_S if run.record.cancelled else self._lost_after_s
        for rank, server in enumerate(run.attempt.servers(self._context.cluster)):
            watch, key = self._watches[server], run.attempt.key(rank)
            known = watch.answer(started_s)
            if known is None or known.get(key, 0) is None:
                if watch.quiet_s >= patience_s:
                    lost.add(watch.node.name)
                    continue
                left = True
                if known is not None and not watch.late:
                    running.append((watch.node, key))
            elif key not in known:
                if run.ending is None:
                    # The manager was ended between writing the attempt down and starting it.
                    run.ending, run.lost_with_node = ("failed", f"rank {rank} was not started"), True
            else:
                ended.append((watch.node, key))
                succeeded += known[key] == 0
                if status := known[key]:
                    await self._note_failure(run, rank, watch.node, status)
        if lost and (run.ending is None or run.ending[0] == "failed"):
            # An attempt that failed before may have done so because its peers were gone.
            names = ", ".join(sorted(lost))
            run.ending, run.lost_with_node = (
                ("failed", f"{names} has not answered for {self._lost_after_s:g} s"),
                True,
            )
        if left:
            if run.ending is not None and not _settles(run):
                self._note_asked(run)
                grace_s = _grace_s(run)
                await _aside((functools.partial(node.stop, grace_s=grace_s), key) for node, key in running)
            return
        leaving = run.record.leaving
        if leaving and not leaving.asked and succeeded == len(run.attempt.gpus) and not run.record.cancelled:
            run.ending = None  # it was through before it was asked to leave
        kept = await self._kept_iterations(run)
        if (following := self._endings.end(run, kept)) is not None:
            self._context.spawn(self.start(following))
        await _aside((node.forget, key) for node, key in ended)
        self._context.change_event.set()

    def _note_asked(self, run: RunningAttempt) -> None:
        """Ranks are about to be asked to end; that they were asked to save is on disk before."""
        leaving = run.record.leaving
        if leaving and not leaving.asked:
            run.record.leaving = msgspec.structs.replace(leaving, asked=True)
            self._context.database.put([run.record])
        run.stopped = True

    async def _note_failure(self, run: RunningAttempt, rank: int, node: Node, status: int) -> None:
        """Take in that a rank has failed: the first one says why, unless a peer's end explains that one's."""
        saves = run.ending is not None and run.ending[0] == "queued"
        was_asked = signal_of(status) == signal.SIGTERM  # which asks it to save
        if saves and greatest_cause(status) is Cause.KILLED and not was_asked:
            run.killed_saving[rank] = f"rank {rank} on {node.name} {ended_text(status)}"
        outdone = run.cause is not None and greatest_cause(status) > run.cause and not run.stopped
        if rank in run.judged_ranks or (run.ending is not None and not outdone):
            return
        run.judged_ranks.add(rank)
        cause, why = await failure_of(rank, node, run.attempt.key(rank), status)
        # It may have been cancelled meanwhile.
        if run.ending is None or (run.ending[0] == "failed" and (run.cause is None or cause > run.cause)):
            run.ending, run.cause = ("failed", why), cause
            run.failed_s = asyncio.get_running_loop().time()

    async def _kept_iterations(self, run: RunningAttempt) -> int:
        """Iterations that a replayed job has run, those run while it could not reach the manager included."""
        if not run.record.job.is_traffic:
            return 0
        path = str(kept_path(self._context.checkpoint(run.record).resolve()))
        watch = self._watches[run.attempt.servers(self._context.cluster)[0]]
        if watch.late and not watch.node.shares_files:
            return 0  # with its node
        with contextlib.suppress(NodeError, TimeoutError):
            async with asyncio.timeout(_ASIDE_S):
                text = text_of(path) if watch.node.shares_files else await watch.node.text(path)
                return kept_iterations(text, len(run.attempt.gpus))
        return 0

    async def tidy(self) -> None:
        """Now and then: remove what ranks printed that ended long ago."""
        while True:
            await asyncio.sleep(_TIDY_EVERY_S)
            retention = self._context.retention
            for node in self._context.nodes:
                with contextlib.suppress(NodeError, TimeoutError):
                    async with asyncio.timeout(_TIDY_EVERY_S):
                        await node.tidy(retention.output_s, retention.output_bytes)

    async def end_ranks(self) -> None:
        """End every rank that runs, some seconds long; their jobs are as if they had failed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await asyncio.gather(*map(_end_ranks_of, self._context.nodes))


async def _end_ranks_of(node: Node) -> None:
    with contextlib.suppress(NodeError):
        while running := [key for key, status in (await node.conditions()).items() if status is None]:
            for key in running:
                await node.stop(key, GRACE_S)
            await asyncio.sleep(LOOK_EVERY_S)


def _grace_s(run: RunningAttempt) -> float:
    """Seconds that ranks have to end; those of a job that saves also twice what it says that a save takes."""
    saves = run.ending is not None and run.ending[0] == "queued"
    return GRACE_S + (2 * (run.record.job.checkpoint_s or 0.0) if saves else 0.0)


async def _aside(work: Iterable[tuple[Callable[[str], Awaitable[None]], str]]) -> None:
    """Ask nodes for something that can be asked again: none of them holds up the watch for long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_ASIDE_S):
            for ask, key in work:
                with contextlib.suppress(NodeError):
                    await ask(key)


def _settles(run: RunningAttempt) -> bool:
    """True shortly after a rank's failure, while it is not clear whether a peer's end was its cause."""
    if run.ending is None or run.ending[0] != "failed" or run.cause is None:
        return False
    settle_s = {Cause.LOST_PEER: _PEERS_SETTLE_S, Cause.OWN: _SETTLE_S, Cause.KILLED: 0.0}[run.cause]
    return asyncio.get_running_loop().time() - run.failed_s < settle_s
