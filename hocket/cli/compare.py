"""``hocket compare``: what was predicted, beside what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hocket.cli import options
from hocket.cli.commands import OUTPUT, option
from hocket.cli.output import note, print_json, print_table


def compare(
    predicted: Annotated[
        Path, typer.Argument(metavar="PREDICTED", help="What simulate --timeline wrote (hocket.timeline/1).")
    ],
    measured: Annotated[Path, typer.Argument(metavar="MEASURED", help="The same, of a training run.")],
    top: Annotated[
        int, option(panel=OUTPUT, metavar="N", min=0, help="How many names to show, those that differ most.")
    ] = 10,
    json: options.Json = False,
) -> None:
    """Compare two timelines: step time, waiting and overlap, and which operations and transfers differ."""
    import msgspec

    from hocket.interop import load_timeline
    from hocket.report.comparison import compare as run
    from hocket.report.comparison_table import figures_table, matched_line, one_sided_lines, spans_table

    expected, _ = load_timeline(predicted)
    happened, _ = load_timeline(measured)
    found = run(expected, happened)
    if json:
        print_json(msgspec.to_builtins(found))
    else:
        print_table(figures_table(found))
        if shown := found.spans[:top]:
            print_table(spans_table(shown))
    ours, theirs = found.predicted, found.measured
    note(f"predicted: {ours.title}; workers: {ours.workers}, steps: {ours.steps}")
    note(f"measured: {theirs.title}; workers: {theirs.workers}, steps: {theirs.steps}")
    if ours.workers != theirs.workers:
        note(f"{ours.workers} workers were predicted and {theirs.workers} measured: figures are their means")
    if ours.anchor != theirs.anchor:
        note(f"steps begin with '{ours.anchor}' and '{theirs.anchor}': starts do not compare, durations do")
    note(matched_line(found))
    for side, names in (("predicted", found.only_predicted), ("measured", found.only_measured)):
        for line in one_sided_lines(side, names):
            note(line)
