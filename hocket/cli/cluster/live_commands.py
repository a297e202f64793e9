"""``hocket cluster run`` and ``serve``: jobs on a real cluster."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer

from hocket.cli import options
from hocket.cli.answer_settings import heading
from hocket.cli.cluster.cluster_settings import assumed_of_cluster, cluster_settings
from hocket.cli.cluster.manager_options import (
    cluster_of,
    make_manager,
    open_nodes,
    run_until_stopped,
    served,
    state_folder,
)
from hocket.cli.name_options import complete_cluster_policy, complete_placement, lowercase
from hocket.cli.panels import MACHINES, MANAGER, SCHEDULING, option
from hocket.cli.printing import note, print_json, print_table, progress
from hocket.errors import HocketError

Placement = Annotated[
    str,
    option(
        panel=SCHEDULING,
        metavar="NAME",
        callback=lowercase,
        autocompletion=complete_placement,
        help="rand, ff, ls, lwf-K, ...; an unknown name lists them.",
    ),
]
PolicyName = Annotated[
    str,
    option(
        panel=SCHEDULING,
        metavar="NAME",
        callback=lowercase,
        autocompletion=complete_cluster_policy,
        help="srsf-N, ada-srsf, ...; an unknown name lists them.",
    ),
]
Servers = Annotated[
    int | None,
    option(
        panel=MACHINES,
        metavar="N",
        help="Nodes; else all of the lab or the Ray cluster, or 1 on this machine.",
    ),
]
Gpus = Annotated[
    int,
    option(
        "--gpus-per-server",
        panel=MACHINES,
        metavar="N",
        help="GPUs of each node, or slots for processes where it has none.",
    ),
]
Memory = Annotated[
    str, option(panel=MACHINES, metavar="SIZE", help="Of each GPU; jobs share GPUs as far as it goes.")
]
Chunk = Annotated[
    str,
    option(
        panel=SCHEDULING,
        rare=True,
        metavar="SIZE",
        help="At whose end psrsf and srpt may give the network to another.",
    ),
]
NetworkPath = Annotated[
    Path | None,
    option(
        "--network",
        panel=MACHINES,
        rare=True,
        metavar="FILE",
        help="A hocket.network/1 file with a measured all-reduce.",
    ),
]
EngineName = Annotated[
    Literal["processes", "ray"],
    option(panel=MACHINES, help="Processes of this machine, or of a Ray cluster's."),
]
Address = Annotated[
    str | None,
    option(
        panel=MACHINES,
        rare=True,
        metavar="HOST:PORT",
        help="Of the Ray cluster to join, with --engine ray.",
        show_default="one is started",
    ),
]
LabName = Annotated[
    str | None,
    option("--lab", panel=MACHINES, metavar="NAME", help="Run in the nodes of this lab (hocket lab up)."),
]
Listen = Annotated[
    str,
    option(
        panel=MANAGER,
        metavar="HOST:PORT",
        help="Where ranks on other machines and commands reach the manager.",
    ),
]
PageAt = Annotated[
    str,
    option(
        "--page",
        panel=MANAGER,
        metavar="HOST:PORT",
        help="Where browsers find the cluster's page; off: nowhere.",
    ),
]
Restarts = Annotated[
    int, option(panel=MANAGER, metavar="N", min=0, help="How often a job that fails is tried again.")
]
LostAfter = Annotated[
    str,
    option(
        panel=MANAGER,
        rare=True,
        metavar="TIME",
        help="Of silence of a node, until its jobs are tried again elsewhere.",
    ),
]


def run(
    context: typer.Context,
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
        Path | None,
        option(panel=MANAGER, metavar="FOLDER", help="Keep the cluster there, and go on if it is there."),
    ] = None,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Run a job set under one placement and one policy, for real; the same figures as simulate's.

    Jobs without a command are replayed: computing is slept, transfers are real. Without --state everything is
    ended and forgotten at the end; with it, the same command goes on with what an interrupted one began.
    """
    from hocket.cluster.live.result_row import live_row
    from hocket.cluster.live.runnable_jobs import read_live_jobs
    from hocket.report.cluster_table import cluster_table

    job_set = read_live_jobs(jobs)
    began_s = time.monotonic()
    with state_folder(state) as folder, open_nodes(folder, servers, engine, address, lab) as nodes:
        cluster = cluster_of(len(nodes), gpus_per_server, memory, network_file)
        manager = make_manager(folder, cluster, nodes, placement, policy, seed, chunk, restarts, lost_after)

        async def work() -> None:
            try:
                await served(manager, folder, listen, page, job_set, until_idle=True)
            finally:
                if state is None:
                    await manager.end_ranks()

        with progress("running") as report:
            manager.on_change = lambda: report(sum(r.over for r in manager.records), len(manager.records))
            run_until_stopped(work())
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
        print_json({**msgspec.to_builtins(row), "assumed": assumed_of_cluster(context, cluster)})
    else:
        print(heading(cluster_settings(context, cluster)))
        print_table(cluster_table([row]))
    if any(record.state == "failed" for record in manager.records):
        raise typer.Exit(1)


def serve(
    placement: Placement,
    policy: PolicyName,
    state: Annotated[
        Path, option(panel=MANAGER, metavar="FOLDER", help="The cluster's: jobs, checkpoints, token.")
    ],
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
    with open_nodes(state, servers, engine, address, lab) as nodes:
        cluster = cluster_of(len(nodes), gpus_per_server, memory, network_file)
        manager = make_manager(state, cluster, nodes, placement, policy, seed, chunk, restarts, lost_after)
        run_until_stopped(served(manager, state, listen, page, (), until_idle=False))
