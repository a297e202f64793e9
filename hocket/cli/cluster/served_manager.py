"""Nodes and a served manager, made of the options of ``hocket cluster run`` and ``serve``."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hocket.cli.cluster.live_options import ManagerOptions, NodeOptions
from hocket.cli.list_options import long_duration
from hocket.cli.printing import note, progress
from hocket.errors import HocketError
from hocket.text import counted, listed

if TYPE_CHECKING:
    from hocket.cluster.cluster import Cluster
    from hocket.cluster.engine.scheduling import Scheduling
    from hocket.cluster.live.job_record import Record
    from hocket.cluster.live.manager import Manager
    from hocket.cluster.live.nodes import LocalNode, Node
    from hocket.cluster.live.runnable_jobs import LiveJob


@contextlib.contextmanager
def state_folder(state: Path | None) -> Iterator[Path]:
    """``state``, or a folder that is gone at the end."""
    if state is not None:
        yield state
        return
    folder = Path(tempfile.mkdtemp(prefix="hocket-cluster-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def open_nodes(folder: Path, machines: NodeOptions) -> Iterator[Sequence[Node]]:
    """The nodes of a cluster in ``folder``: processes of this machine, of a lab, or of a Ray cluster."""
    from hocket.cluster.live.kept_credentials import kept_credentials
    from hocket.cluster.live.manager_address import TOKEN_VARIABLE
    from hocket.cluster.live.nodes import lab_nodes, local_nodes

    os.environ.pop(TOKEN_VARIABLE, None)  # it is for commands; Ray would inherit it
    kept_credentials(folder)  # what else is in the folder is behind its permissions
    servers, address, lab = machines.servers, machines.address, machines.lab
    if machines.engine == "ray":
        from hocket.cluster.live.ray_gpus import hold_gpus, let_gpus_go, tell_apart
        from hocket.cluster.live.ray_machines import wait_for_machines
        from hocket.cluster.live.ray_nodes import ray_nodes
        from hocket.executors import ray_cluster

        if lab is not None:
            raise HocketError(
                "--lab runs processes; for Ray start a Ray node in each of the lab's, and run this in node0:"
                f" hocket lab exec node0 --name {lab} -- hocket cluster ... --engine ray --address HOST:PORT"
            )
        if machines.gpus is not None:
            raise HocketError(
                f"--gpus {machines.gpus} names GPUs of this machine, and Ray's nodes say which they have; "
                "leave it out, or start Ray's nodes with CUDA_VISIBLE_DEVICES"
            )
        with ray_cluster(address) as ray:
            if machines.nodes_within is not None:
                wait_for_machines(ray, servers or 1, long_duration(machines.nodes_within, "--nodes-within"))
            nodes = ray_nodes(ray, folder, servers)
            for line in tell_apart(nodes):
                note(line)
            machines.share_gpus(nodes)
            try:
                hold_gpus(nodes, machines.cluster(nodes).gpus_per_server)
                yield nodes
            finally:
                let_gpus_go(ray, nodes)
        return
    if address is not None:
        raise HocketError(f"--address {address} is a Ray cluster's; give --engine ray with it")
    if lab is None:
        yield _own_machine(local_nodes(folder, 1 if servers is None else servers), machines)
        return
    from hocket.lab import Lab
    from hocket.lab.lab_users import using

    found = lab_nodes(folder, Lab.find(lab))
    if servers is not None and not 1 <= servers <= len(found):
        raise HocketError(
            f"{servers} servers, and lab '{lab}' has {len(found)} nodes; give 1 to {len(found)}"
        )
    with using(lab):
        yield _own_machine(found[:servers], machines)


def _own_machine(nodes: Sequence[LocalNode], machines: NodeOptions) -> Sequence[Node]:
    """``nodes`` of this machine, with the GPUs that are named for them."""
    from hocket.cluster.live.devices import listed_devices

    if machines.gpus is not None:
        for node in nodes:
            node.have_devices(listed_devices(machines.gpus))
    return machines.share_gpus(nodes)


def make_manager(
    folder: Path, cluster: Cluster, nodes: Sequence[Node], scheduling: Scheduling, managing: ManagerOptions
) -> Manager:
    """The manager of a cluster, loaded and ready; its clock runs."""
    from hocket.cluster.engine.awaited_types import check_types_differ
    from hocket.cluster.live.driver import warm
    from hocket.cluster.live.kept_credentials import kept_credentials
    from hocket.cluster.live.manager import Manager

    check_types_differ(scheduling, cluster)
    lost_after_s, retention = managing.lost_after_s(), managing.retention()
    # Before there is a manager: from then on its clock runs.
    with progress("loading the engine"):
        warm()
    manager = Manager(
        folder,
        cluster,
        nodes,
        scheduling,
        credentials=kept_credentials(folder),
        restarts=managing.restarts,
        lost_after_s=lost_after_s,
    )
    manager.set_retention(retention)
    return manager


async def served(
    manager: Manager,
    folder: Path,
    managing: ManagerOptions,
    jobs: Sequence[LiveJob],
    *,
    until_idle: bool,
    on_open: Callable[[], None],
) -> None:
    """Run the manager, with its page, and say where both are; ``on_open`` is called when it listens."""
    from hocket.cluster.live.kept_credentials import kept_credentials
    from hocket.cluster.live.manager_address import Contact, leave_contact
    from hocket.launch.job import split_address
    from hocket.report.live_page import render_live

    if managing.page != "off":
        manager.show_page(*split_address(managing.page), render_live().encode())

    def opened() -> None:
        page = manager.page
        credentials = kept_credentials(folder)
        contact = Contact(
            address=manager.address,
            token=credentials.without_key.text,
            page="" if page is None else page.url,
        )
        leave_contact(folder, contact)
        on_open()
        if not until_idle or page is not None:
            note(f"manager at {manager.address}" + (f", page at {page.url}" if page else ""))
        if page is not None and page.is_open:
            note(
                f"the page opens from other machines, by any name of this one, with the token in"
                f" {folder / 'token'}; browsers warn, as no authority vouches for its certificate: its"
                f" SHA-256 is {credentials.served.certificate_fingerprint}"
            )

    await manager.run(*split_address(managing.listen), jobs, until_idle=until_idle, on_open=opened)


def stopped_line(records: Sequence[Record], state: Path | None) -> str:
    """The line of a manager that was stopped: its jobs that are not over, and how to go on with them."""
    left = [record.state for record in records if not record.over]
    if state is None:
        lost = f"{counted(len(left), 'job')} ended and forgotten" if left else "nothing of it is kept"
        return f"stopped: {lost}; with --state FOLDER jobs go on, and the same command goes on with them"
    if not left:
        return f"stopped: no job is left; the same command starts it again in {state}"
    running, queued = left.count("running"), left.count("queued")
    parts = [f"{running} running without it"] if running else []
    parts += [f"{queued} queued in {state}"] if queued else []
    return f"stopped: {counted(len(left), 'job')} left, {listed(parts)}; the same command goes on with them"


def run_until_stopped(work: Coroutine[Any, Any, None], on_stop: Callable[[], None] = lambda: None) -> None:
    """Run ``work``; what stops this process cancels it, and it cleans up, however often that is asked for.

    ``on_stop`` is called at the end where it was stopped.

    Callers clean up, too: a loop leaves the system's own handlers behind, which would end that. Where nobody
    has asked, the handlers that were there are again; else all stops are taken in.
    """
    stopped: list[int] = []
    earlier = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    if earlier[signal.SIGHUP] is signal.SIG_IGN:  # nohup's wish stays
        del earlier[signal.SIGHUP]

    async def main() -> None:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()

        def stop(number: int) -> Callable[[], None]:
            def do() -> None:
                stopped.append(number)
                if len(stopped) == 1:  # another one would end the cleaning up, and ranks would live on
                    task.cancel()

            return do

        for number in earlier:
            loop.add_signal_handler(number, stop(number))
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        finally:
            for number, handler in earlier.items():
                loop.remove_signal_handler(number)
                signal.signal(number, (lambda *_: None) if stopped else handler)

    asyncio.run(main())
    if stopped:
        with contextlib.suppress(OSError):  # the terminal may be what has gone
            on_stop()
        raise SystemExit(128 + stopped[0])
