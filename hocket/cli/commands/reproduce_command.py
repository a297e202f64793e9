"""``hocket reproduce``: the papers' tables and figures again, beside what the papers print."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from hocket.cli import options
from hocket.cli.name_options import completion, lowercase
from hocket.cli.panels import GENERAL, OUTPUT, option
from hocket.cli.printing import note, print_json, print_table, progress


def _papers() -> list[str]:
    return ["tictac", "ibatch", "caramel", "prediction", "contention", "all"]


def reproduce(
    papers: Annotated[
        list[str],
        typer.Argument(
            metavar="PAPER...",
            callback=lowercase,
            autocompletion=completion(_papers),
            help="tictac, ibatch, caramel, prediction, contention or all.",
        ),
    ],
    quick: Annotated[
        bool,
        option(
            "--quick",
            panel=GENERAL,
            help="Fewer steps and job sets, and no emulated cluster: 10 minutes, no root.",
        ),
    ] = False,
    output: Annotated[
        Path | None,
        option(
            "-o",
            "--output",
            panel=OUTPUT,
            metavar="DIR",
            help="For index.html, reproduction.md and a JSON a paper.",
        ),
    ] = None,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Regenerate the papers' tables and figures, and say what comes out as published.

    Without --quick the private cluster of the prediction paper is replayed on an emulated one, as root.
    """
    import msgspec

    import hocket.profiler  # noqa: F401  # says in one line where torch is missing
    from hocket.reproduce import FULL, QUICK, papers_of
    from hocket.reproduce import reproduce as run
    from hocket.reproduce.circumstances import circumstances
    from hocket.reproduce.output_folder import PAGE, check_folder, write
    from hocket.reproduce.reproduction import Document
    from hocket.reproduce.terminal import claims_table, heading

    names = papers_of(papers)
    if output is not None:
        check_folder(output, names)
    setting = replace(QUICK if quick else FULL, seed=seed)
    with progress("reproducing") as report:
        made = run(names, setting, report)
    command = shlex.join(["hocket", "reproduce", *papers, *(["--quick"] if quick else [])])
    about = circumstances(command if seed == 0 else f"{command} --seed {seed}", setting)
    if output is not None:
        write(output, made, about)
        note(f"{output / PAGE}: every claim, table and figure")
    if json:
        print_json(msgspec.to_builtins([Document(circumstances=about, reproduction=each) for each in made]))
        return
    for each in made:
        print(heading(each))
        print_table(claims_table(each.claims))
