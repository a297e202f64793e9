"""Claims for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from hocket.reproduce.claim import VERDICTS, ClaimRow, Verdict
from hocket.reproduce.reproduction import Reproduction

_STYLES: dict[Verdict, str] = {
    "reproduced": "green",
    "same direction": "yellow",
    "in part": "yellow",
    "not reproduced": "red",
    "not here": "dim",
}


def heading(made: Reproduction) -> str:
    """The paper's title and how many of its claims got which verdict."""
    counts = Counter(row.verdict for row in made.claims)
    told = ", ".join(f"{verdict} {counts[verdict]}" for verdict in VERDICTS if counts[verdict])
    return f"\n{made.title}\n{told}"


def claims_table(claims: Sequence[ClaimRow]) -> Table:
    """A row for each claim; below those that did not come out the reason, once where several share it."""
    table = Table(box=None, pad_edge=False, collapse_padding=True, header_style="bold")
    for name in ("Figure", "Claim", "Paper", "Here", "Ratio", "Verdict"):
        numeric = name in ("Paper", "Here", "Ratio")
        table.add_column(name, justify="right" if numeric else "left", overflow="fold", no_wrap=numeric)
    told = ""
    for row in claims:
        verdict = Text(row.verdict, style=_STYLES[row.verdict])
        table.add_row(
            Text(row.figure), Text(row.what), row.paper_text, row.ours_text, row.ratio_text, verdict
        )
        if row.why and row.why != told:
            table.add_row("", Text(row.why, style="dim"), "", "", "", "")
        told = row.why
    return table
