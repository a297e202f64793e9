"""``hocket cluster submit``, ``cancel``, ``drain`` and ``status``: what is asked of a cluster's manager."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hocket.cli import options
from hocket.cli.cluster.cluster_options import JobsFile
from hocket.cli.panels import GENERAL, JOBS, option
from hocket.cli.printing import note, print_json, print_table

if TYPE_CHECKING:
    from hocket.cluster.live.manager_messages import FromClient, ManagerAnswer

State = Annotated[
    Path | None,
    option(
        panel=GENERAL,
        metavar="FOLDER",
        help="The cluster's: jobs, checkpoints, token.",
        show_default="HOCKET_CLUSTER and HOCKET_CLUSTER_TOKEN",
    ),
]


JobName = Annotated[str, typer.Argument(metavar="JOB", help="Its id.")]


def submit(
    jobs: JobsFile,
    restarts: Annotated[
        int | None,
        option(
            panel=JOBS,
            metavar="N",
            min=0,
            help="Further tries of jobs that fail by themselves.",
            show_default="as the file says, else 0",
        ),
    ] = None,
    state: State = None,
) -> None:
    """Hand jobs to a cluster's manager; arrival_s counts from now on. A job it knows is not run again."""
    from hocket.cluster.live.manager_messages import Submit
    from hocket.cluster.live.runnable_jobs import read_live_jobs

    for line in ask(state, Submit(read_live_jobs(jobs, restarts))).notes:
        note(line)


def cancel(job: JobName, state: State = None) -> None:
    """End a job, wherever it is."""
    from hocket.cluster.live.manager_messages import Cancel

    note(ask(state, Cancel(job)).notes[0])


def drain(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Its name in status.")],
    undo: Annotated[bool, option("--undo", panel=GENERAL, help="Place jobs there again.")] = False,
    state: State = None,
) -> None:
    """Place no job on a node any more; those that are there stay to their end."""
    from hocket.cluster.live.manager_messages import Drain

    note(ask(state, Drain(node, not undo)).notes[0])


def status(
    state: State = None,
    watch: Annotated[bool, option("--watch", panel=GENERAL, help="Show it until interrupted.")] = False,
    all_: Annotated[bool, option("--all", panel=GENERAL, help="Jobs that were over long ago, too.")] = False,
    json: options.Json = False,
) -> None:
    """Show a cluster's jobs: who queues, computes, transfers, how far everybody is, and why."""
    from hocket.cluster.live.manager_address import contact_of
    from hocket.cluster.live.manager_messages import AskStatus, Status
    from hocket.report.live_table import live_table

    def current_status() -> Status:
        found = ask(state, AskStatus(all=all_)).status
        assert found is not None
        return found

    if json:
        print_json(current_status())
    elif not watch:
        print_table(live_table(current_status(), every=all_))
        if page := contact_of(state).page:
            note(f"the cluster's page: {page}")
    else:
        from rich.live import Live

        with Live(live_table(current_status(), every=all_), auto_refresh=False) as view:
            while True:
                time.sleep(1.0)
                view.update(live_table(current_status(), every=all_), refresh=True)


def ask(state: Path | None, request: FromClient) -> ManagerAnswer:
    """The answer of the manager of the cluster in ``state``, or of the environment's."""
    from hocket.cluster.live.manager_address import ask_manager, contact_of

    return ask_manager(contact_of(state), request, state)
