"""``hocket cluster salvage``: what runs of a cluster whose database is damaged, ended or taken over."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hocket.cli.panels import GENERAL, option
from hocket.cli.printing import note
from hocket.errors import HocketError
from hocket.text import counted


def salvage(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The cluster's --state.")],
    take_over: Annotated[
        bool, option("--take-over", panel=GENERAL, help="Make a database of the jobs that can be read.")
    ] = False,
    end: Annotated[
        bool, option("--end", panel=GENERAL, help="End the ranks that run on this machine.")
    ] = False,
) -> None:
    """List what still runs of a cluster whose database is damaged, and end it or take it over.

    The next manager in the folder goes on with what was taken over, and ends ranks of jobs that were not.
    """
    from hocket.cluster.live import salvage as salvaging

    if end and take_over:
        raise HocketError("--end and --take-over: give one of them")
    remains = salvaging.remains_of(folder)
    names = {record.number: record.job.id for record in remains.records}
    for rank in remains.ranks:
        job = names.get(rank.number, f"a job that cannot be read (number {rank.number})")
        print(f"{rank.folder.name}: rank {rank.rank} of {job}, attempt {rank.attempt}, runs")
    whole = "the database is whole" if remains.is_whole else "the database is damaged"
    print(
        f"{whole}; {counted(len(remains.records), 'job')} can be read, {remains.unreadable} cannot; "
        f"{counted(len(remains.ranks), 'rank')} run{'s' if len(remains.ranks) == 1 else ''} on this machine"
    )
    if end:
        salvaging.end_ranks_of(remains)
        note("they have ended")
    elif remains.is_whole:
        note(f"nothing is to be salvaged: hocket cluster serve --state {folder} goes on with it")
    elif take_over:
        kept = salvaging.take_over(folder, remains)
        note(f"taken over: hocket cluster serve --state {folder} goes on; what was damaged is in {kept.name}")
    else:
        note("give --take-over to go on with the jobs that can be read, or --end to end what runs")
