"""``hocket cluster run`` and ``serve``: jobs on a real cluster."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hocket.cli import options
from hocket.cli.answer_settings import heading
from hocket.cli.cluster.cluster_options import JobsFile, LiveSchedulingOptions
from hocket.cli.cluster.cluster_settings import assumed_of_cluster, cluster_settings
from hocket.cli.cluster.live_options import ManagerOptions, NodeOptions, PassingManagerOptions
from hocket.cli.cluster.served_manager import (
    make_manager,
    open_nodes,
    run_until_stopped,
    served,
    state_folder,
    stopped_line,
)
from hocket.cli.option_groups import grouped
from hocket.cli.panels import MANAGER, option
from hocket.cli.printing import note, print_json, print_table, progress
from hocket.errors import HocketError


@grouped
def run(
    context: typer.Context,
    jobs: JobsFile,
    scheduling: LiveSchedulingOptions,
    machines: NodeOptions,
    managing: PassingManagerOptions,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Run a job set under one placement and one policy, for real; the same figures as simulate's.

    Jobs without a command are replayed: computing is slept, transfers are real. Without --state everything is
    ended and forgotten at the end; with it, the same command goes on with what an interrupted one began.
    """
    from hocket.cluster.engine.paces import assumed_numbers
    from hocket.cluster.engine.users import check_users
    from hocket.cluster.live.manager_address import starting
    from hocket.cluster.live.result_row import live_row
    from hocket.cluster.live.runnable_jobs import read_live_jobs
    from hocket.report.cluster_table import cluster_table

    job_set = read_live_jobs(jobs)
    began_s = time.monotonic()
    with ExitStack() as opened, ExitStack() as start:
        folder = opened.enter_context(state_folder(managing.state))
        start.enter_context(starting(folder))
        nodes = opened.enter_context(open_nodes(folder, machines))
        cluster = machines.cluster(nodes)
        chosen = scheduling.scheduling(seed, machines.chunk_bytes())
        check_users(chosen, job_set)
        manager = make_manager(folder, cluster, nodes, chosen, managing)

        async def work() -> None:
            try:
                await served(manager, folder, managing, job_set, until_idle=True, on_open=start.close)
            finally:
                if managing.state is None:
                    await manager.end_ranks()

        with progress("running") as report:
            manager.on_change = lambda: report(sum(r.over for r in manager.records), len(manager.records))
            run_until_stopped(work(), lambda: note(stopped_line(manager.records, managing.state)))
    unsaid = assumed_numbers(job_set)
    row = live_row(
        manager.records,
        cluster,
        chosen,
        source=str(jobs),
        events=manager.events,
        wall_s=time.monotonic() - began_s,
    )
    for record in manager.records:
        if record.state != "finished":
            note(f"{record.job.id}: {record.state}{': ' if record.why else ''}{record.why}")
    if row is None:
        raise HocketError("no job has finished")
    if json:
        print_json({**msgspec.to_builtins(row), "assumed": assumed_of_cluster(context, cluster, [unsaid])})
    else:
        print(heading(cluster_settings(context, cluster)))
        print_table(cluster_table([row]))
        for line in unsaid.values():
            note(line)
    if any(record.state == "failed" for record in manager.records):
        raise typer.Exit(1)


@grouped
def serve(
    scheduling: LiveSchedulingOptions,
    state: Annotated[
        Path, option(panel=MANAGER, metavar="FOLDER", help="The cluster's: jobs, checkpoints, token.")
    ],
    machines: NodeOptions,
    managing: ManagerOptions,
    seed: options.Seed = 0,
) -> None:
    """Manage a cluster until it is stopped; jobs come from submit.

    Jobs go on without their manager, and the next one in the same folder goes on with them.
    """
    from hocket.cluster.live.manager_address import starting

    with ExitStack() as start:
        start.enter_context(starting(state))
        with open_nodes(state, machines) as nodes:
            cluster = machines.cluster(nodes)
            manager = make_manager(
                state, cluster, nodes, scheduling.scheduling(seed, machines.chunk_bytes()), managing
            )
            run_until_stopped(
                served(manager, state, managing, (), until_idle=False, on_open=start.close),
                lambda: note(stopped_line(manager.records, state)),
            )
