"""``hocket cluster run``, ``serve`` and what goes with them: jobs on a real cluster."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hocket.cli import options
from hocket.cli.output import note, print_json, print_table, progress
from hocket.errors import HocketError

if TYPE_CHECKING:
    from hocket.cluster.cluster import Cluster
    from hocket.cluster.live.manager import Manager
    from hocket.cluster.live.messages import Answer, FromClient
    from hocket.cluster.live.nodes import Node

Placement = Annotated[str, typer.Option(help="rand, ff, ls, lwf-K, ...; an unknown name lists them.")]
PolicyName = Annotated[str, typer.Option(help="srsf-N, ada-srsf, ...; an unknown name lists them.")]
Servers = Annotated[
    int | None, typer.Option(help="Nodes; else all of the lab or the Ray cluster, or 1 on this machine.")
]
Gpus = Annotated[int, typer.Option("--gpus-per-server", help="GPUs, or slots for processes, of each node.")]
Memory = Annotated[str, typer.Option(help="Of each GPU; jobs share GPUs as far as it goes.")]
Chunk = Annotated[str, typer.Option(help="At whose end psrsf and srpt may give the network to another.")]
NetworkPath = Annotated[
    Path | None,
    typer.Option("--network", metavar="FILE", help="A hocket.network/1 file with a measured all-reduce."),
]
EngineName = Annotated[
    Literal["processes", "ray"], typer.Option(help="Processes of this machine, or of a Ray cluster's.")
]
Address = Annotated[
    str | None, typer.Option(help="Of the Ray cluster to join, with --engine ray; else one is started.")
]
LabName = Annotated[str | None, typer.Option("--lab", help="Run in the nodes of this lab (hocket lab up).")]
Listen = Annotated[str, typer.Option(help="Where ranks on other machines and commands reach the manager.")]
PageAt = Annotated[str, typer.Option("--page", help="Where browsers find the cluster's page; off: nowhere.")]
Restarts = Annotated[int, typer.Option(min=0, help="How often a job that fails is tried again.")]
LostAfter = Annotated[
    str, typer.Option(help="Of silence of a node, until its jobs are tried again elsewhere.")
]
State = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help="The cluster's: jobs, checkpoints, token; else HOCKET_CLUSTER(_TOKEN)."
    ),
]


def run(
    jobs: Annotated[Path, typer.Argument(metavar="JOBS", help="A hocket.jobs/1 file (.json or .json.zst).")],
    placement: Placement,
    policy: PolicyName,
    servers: Servers = None,
    gpus_per_server: Gpus = 1,
    memory: Memory = "16GB",
    chunk: Chunk = "4MB",
    network_file: NetworkPath = None,
    engine: EngineName = "processes",
    address: Address = None,
    lab: LabName = None,
    listen: Listen = "127.0.0.1:0",
    page: PageAt = "off",
    restarts: Restarts = 3,
    lost_after: LostAfter = "60s",
    state: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Keep the cluster there, and go on if it is there.")
    ] = None,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Run a job set under one placement and one policy, for real; the same figures as simulate's.

    Jobs without a command are replayed: computing is slept, transfers are real. Without --state everything is
    ended and forgotten at the end; with it, the same command goes on with what an interrupted one began.
    """
    from hocket.cluster.live.jobs import read_live_jobs
    from hocket.cluster.live.outcome import live_row
    from hocket.report.cluster_table import cluster_table

    job_set = read_live_jobs(jobs)
    began_s = time.monotonic()
    with _folder(state) as folder, _nodes(folder, servers, engine, address, lab) as nodes:
        cluster = _cluster(len(nodes), gpus_per_server, memory, network_file)
        manager = _manager(folder, cluster, nodes, placement, policy, seed, chunk, restarts, lost_after)

        async def work() -> None:
            try:
                await _served(manager, folder, listen, page, job_set, until_idle=True)
            finally:
                if state is None:
                    await manager.end_ranks()

        with progress("running") as report:
            manager.on_change = lambda: report(sum(r.over for r in manager.records), len(manager.records))
            _until_stopped(work())
    row = live_row(
        manager.records,
        cluster,
        placement=placement,
        policy=policy,
        source=str(jobs),
        seed=seed,
        events=manager.events,
        wall_s=time.monotonic() - began_s,
    )
    for record in manager.records:
        if record.state != "finished":
            note(f"{record.job.id}: {record.state}{': ' if record.why else ''}{record.why}")
    if row is None:
        raise HocketError("no job has finished")
    if json:
        print_json(row)
    else:
        print_table(cluster_table([row]))
    if any(record.state == "failed" for record in manager.records):
        raise typer.Exit(1)


def serve(
    placement: Placement,
    policy: PolicyName,
    state: Annotated[Path, typer.Option(metavar="FOLDER", help="The cluster's: jobs, checkpoints, token.")],
    servers: Servers = None,
    gpus_per_server: Gpus = 1,
    memory: Memory = "16GB",
    chunk: Chunk = "4MB",
    network_file: NetworkPath = None,
    engine: EngineName = "processes",
    address: Address = None,
    lab: LabName = None,
    listen: Listen = "127.0.0.1:0",
    page: PageAt = "127.0.0.1:0",
    restarts: Restarts = 3,
    lost_after: LostAfter = "60s",
    seed: options.Seed = 0,
) -> None:
    """Manage a cluster until it is stopped; jobs come from submit.

    Jobs go on without their manager, and the next one in the same folder goes on with them.
    """
    with _nodes(state, servers, engine, address, lab) as nodes:
        cluster = _cluster(len(nodes), gpus_per_server, memory, network_file)
        manager = _manager(state, cluster, nodes, placement, policy, seed, chunk, restarts, lost_after)
        _until_stopped(_served(manager, state, listen, page, (), until_idle=False))


def submit(
    jobs: Annotated[Path, typer.Argument(metavar="JOBS", help="A hocket.jobs/1 file (.json or .json.zst).")],
    state: State = None,
) -> None:
    """Hand jobs to a cluster's manager; arrival_s counts from now on. A job it knows is not run again."""
    from hocket.cluster.live.jobs import read_live_jobs
    from hocket.cluster.live.messages import Submit

    for line in _asked(state, Submit(read_live_jobs(jobs))).notes:
        note(line)


def cancel(job: Annotated[str, typer.Argument(metavar="JOB", help="Its id.")], state: State = None) -> None:
    """End a job, wherever it is."""
    from hocket.cluster.live.messages import Cancel

    note(_asked(state, Cancel(job)).notes[0])


def drain(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Its name in status.")],
    undo: Annotated[bool, typer.Option("--undo", help="Place jobs there again.")] = False,
    state: State = None,
) -> None:
    """Place no job on a node any more; those that are there stay to their end."""
    from hocket.cluster.live.messages import Drain

    note(_asked(state, Drain(node, not undo)).notes[0])


def status(
    state: State = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show it until interrupted.")] = False,
    json: options.Json = False,
) -> None:
    """Show a cluster's jobs: who queues, computes, transfers, and how far everybody is."""
    from hocket.cluster.live.clients import contact_of
    from hocket.cluster.live.messages import AskStatus, Status
    from hocket.report.live_table import live_table

    def asked() -> Status:
        found = _asked(state, AskStatus()).status
        assert found is not None
        return found

    if json:
        print_json(asked())
    elif not watch:
        print_table(live_table(asked()))
        if page := contact_of(state).page:
            note(f"the cluster's page: {page}")
    else:
        from rich.live import Live

        with Live(live_table(asked()), auto_refresh=False) as view:
            while True:
                time.sleep(1.0)
                view.update(live_table(asked()), refresh=True)


def _asked(state: Path | None, request: FromClient) -> Answer:
    from hocket.cluster.live.clients import asked, contact_of

    return asked(contact_of(state), request)


@contextlib.contextmanager
def _folder(state: Path | None) -> Iterator[Path]:
    if state is not None:
        yield state
        return
    folder = Path(tempfile.mkdtemp(prefix="hocket-cluster-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _nodes(
    folder: Path, servers: int | None, engine: str, address: str | None, lab: str | None
) -> Iterator[Sequence[Node]]:
    from hocket.cluster.live.clients import token_of
    from hocket.cluster.live.nodes import lab_nodes, local_nodes

    token_of(folder)  # what else is in the folder is behind its permissions
    if engine == "ray":
        from hocket.cluster.live.ray_nodes import ray_nodes
        from hocket.parallel import ray_cluster

        if lab is not None:
            raise HocketError(
                "--lab runs processes; for Ray start a Ray node in each of the lab's, and run this in node0:"
                f" hocket lab exec node0 --name {lab} -- hocket cluster ... --engine ray --address HOST:PORT"
            )
        with ray_cluster(address) as ray:
            yield ray_nodes(ray, folder, servers)
        return
    if address is not None:
        raise HocketError(f"--address {address} is a Ray cluster's; give --engine ray with it")
    if lab is None:
        yield local_nodes(folder, 1 if servers is None else servers)
        return
    from hocket.lab import Lab

    found = lab_nodes(folder, Lab.find(lab))
    if servers is not None and not 1 <= servers <= len(found):
        raise HocketError(
            f"{servers} servers, and lab '{lab}' has {len(found)} nodes; give 1 to {len(found)}"
        )
    yield found[:servers]


def _cluster(servers: int, gpus_per_server: int, memory: str, network_file: Path | None) -> Cluster:
    from hocket.cli.cluster import make_cluster

    return make_cluster(servers, gpus_per_server, memory, "equation5", 1, 1.0, network_file=network_file)


def _manager(
    folder: Path,
    cluster: Cluster,
    nodes: Sequence[Node],
    placement: str,
    policy: str,
    seed: int,
    chunk: str,
    restarts: int,
    lost_after: str,
) -> Manager:
    from hocket.cluster.live.clients import token_of
    from hocket.cluster.live.driver import warm
    from hocket.cluster.live.manager import Manager
    from hocket.network import parse_bytes, parse_duration

    lost_after_s = parse_duration(lost_after)
    if lost_after_s <= 0:
        raise HocketError(f"--lost-after {lost_after} is over at once; give e.g. 60s")
    # Before there is a manager: from then on its clock runs.
    with progress("loading the engine"):
        warm()
    manager = Manager(
        folder,
        cluster,
        nodes,
        placement=placement,
        policy=policy,
        token=token_of(folder),
        seed=seed,
        chunk_bytes=parse_bytes(chunk),
        restarts=restarts,
        lost_after_s=lost_after_s,
    )
    return manager


async def _served(
    manager: Manager, folder: Path, listen: str, page: str, jobs: Sequence[Any], *, until_idle: bool
) -> None:
    """Run the manager, with its page, and say where both are."""
    import msgspec

    from hocket.cluster.live.clients import Contact, leave_contact, token_of
    from hocket.cluster.live.page import PageServer
    from hocket.launch.job import split_address
    from hocket.report.live_page import render_live

    pages = None
    if page != "off":
        try:
            pages = PageServer(*split_address(page), render_live().encode())
        except OSError as error:
            raise HocketError(f"the page cannot be at {page}: {error.strerror or error}") from None

    async def show() -> None:
        while pages is not None:
            pages.state = msgspec.json.encode(manager.status())
            await asyncio.sleep(0.5)

    def opened() -> None:
        url = "" if pages is None else pages.url
        leave_contact(folder, Contact(address=manager.address, token=token_of(folder), page=url))
        if not until_idle or pages is not None:
            note(f"manager at {manager.address}" + (f", page at {url}" if url else ""))

    shown = asyncio.create_task(show())
    try:
        await manager.run(*split_address(listen), jobs, until_idle=until_idle, opened=opened)
    finally:
        shown.cancel()
        if pages is not None:
            pages.close()


def _until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Run ``work``; what stops this process cancels it, and it cleans up."""
    stopped: list[int] = []

    async def main() -> None:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()

        def stop(number: int) -> Callable[[], None]:
            def do() -> None:
                stopped.append(number)
                task.cancel()

            return do

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, stop(number))
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(main())
    if stopped:
        raise SystemExit(128 + stopped[0])
