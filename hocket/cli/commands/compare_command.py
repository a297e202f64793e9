"""``hocket compare``: what was predicted, beside what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hocket.cli import options
from hocket.cli.panels import OUTPUT, option
from hocket.cli.printing import note, print_json
from hocket.cli.screen import MORE, Sheet, show


def compare(
    predicted: Annotated[
        Path,
        typer.Argument(
            metavar="PREDICTED", help="A timeline that simulate --timeline wrote (hocket.timeline/1)."
        ),
    ],
    measured: Annotated[Path, typer.Argument(metavar="MEASURED", help="The same, of a training run.")],
    top: Annotated[
        int, option(panel=OUTPUT, metavar="N", min=0, help="Names to show, those that differ most.")
    ] = 10,
    wide: options.Wide = False,
    output: Annotated[
        Path | None,
        option(
            "-o",
            "--output",
            panel=OUTPUT,
            metavar="FILE",
            help="An HTML page to write: both steps on one axis.",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Compare two timelines: step time, waiting and overlap, and which operations and transfers differ."""
    import msgspec

    from hocket.columns import in_one_line, narrow
    from hocket.document import read_document, write_whole
    from hocket.interop import timeline_from_document
    from hocket.origin import origin_of
    from hocket.report.comparison import compare as run
    from hocket.report.comparison_page import render_comparison
    from hocket.report.comparison_table import (
        figures_columns,
        figures_legend,
        matched_line,
        one_sided_lines,
        spans_columns,
    )
    from hocket.report.verdicts import comparison_verdict

    options.check_printed(json, wide)
    if output is not None:
        options.check_written(output, predicted, measured)
    documents = [read_document(path) for path in (predicted, measured)]
    sources = (str(predicted), str(measured))
    (expected, _), (happened, _) = map(timeline_from_document, documents, sources)
    found = run(expected, happened)
    if output is not None:
        page = render_comparison(expected, happened, origins=list(map(origin_of, documents, sources)))
        write_whole(page.encode(), output)
    if json:
        print_json(msgspec.to_builtins(found))
    else:
        shown = found.spans[:top]
        figures, spans = figures_columns(found), spans_columns(shown)
        bold = [figure.name == "step" for figure in found.figures]
        sheets = [Sheet("", in_one_line(figures), bold)]
        if shown:
            title = "Operations and transfers that differ most; their durations"
            sheets.append(Sheet(title, in_one_line(spans if wide else narrow(spans))))
        remarks = [figures_legend(found), *([] if wide or not shown else [MORE])]
        show([comparison_verdict(found)], sheets=sheets, remarks=remarks)
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
    if output is not None:
        note(f"{output}: open it in a browser")
