"""One page with every paper's claims, tables and figures; complete in itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from hocket import __version__
from hocket.columns import Column, text_column, written_column
from hocket.origin import Origin
from hocket.report.html_page import Tile, render_page
from hocket.reproduce.claim import VERDICTS
from hocket.reproduce.reproduction import Circumstances, PaperTable, Reproduction
from hocket.text import four_digits


def render(made: Sequence[Reproduction], circumstances: Circumstances) -> str:
    """The page of ``made``."""
    counts = Counter(row.verdict for reproduction in made for row in reproduction.claims)
    setup = [hardware_text(circumstances), circumstances.versions, f"seed {circumstances.seed}"]
    figures = [
        {"paper": reproduction.paper, **msgspec.to_builtins(figure)}
        for reproduction in made
        for figure in reproduction.figures
    ]
    return render_page(
        "reproduction.html",
        {"figures": figures},
        made=Origin(command=circumstances.command, date=circumstances.date, version=__version__),
        title="The papers again",
        setup=" · ".join(setup),
        tiles=[Tile(verdict.capitalize(), str(counts[verdict]), "claims") for verdict in VERDICTS],
        papers=made,
        columns_of=_columns,
    )


def _columns(table: PaperTable) -> list[Column]:
    """The columns of a table: names first, then numbers."""
    texts = [[cell_text(row[k]) for row in table.rows] for k in range(len(table.columns))]
    numbers = zip(table.columns[1:], texts[1:], strict=True)
    return [text_column(table.columns[0], texts[0]), *(written_column(*number) for number in numbers)]


def hardware_text(circumstances: Circumstances) -> str:
    """The machine, and how busy it was: what is timed on it depends on that."""
    return f"{circumstances.hardware}, load {circumstances.load:g} over 15 minutes"


def cell_text(value: str | float | None) -> str:
    """A table's cell as it is shown."""
    if value is None:
        return "–"
    return four_digits(value) if isinstance(value, float) else str(value)
