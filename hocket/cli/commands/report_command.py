"""``hocket report``: results on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hocket.cli import options
from hocket.cli.panels import OUTPUT, option
from hocket.cli.printing import note


def report(
    results: Annotated[
        list[Path],
        typer.Argument(
            metavar="RESULT...",
            help="Files that --json or --timeline of simulate, tune, cluster simulate or train wrote.",
        ),
    ],
    output: Annotated[
        Path, option("-o", "--output", panel=OUTPUT, metavar="FILE", help="The HTML page to write.")
    ],
) -> None:
    """Rank results on one self-contained HTML page, or show a training run: its steps and its waits."""
    from hocket.document import write_whole
    from hocket.report.pages import render_results
    from hocket.report.result_files import load_results

    options.check_written(output, *results)
    write_whole(render_results(load_results(results)).encode(), output)
    note(f"{output}: open it in a browser")
