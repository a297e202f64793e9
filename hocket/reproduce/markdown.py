"""Claims and tables as Markdown, for documentation; figures are on the page alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from hocket.reproduce.claim import VERDICTS, ClaimRow
from hocket.reproduce.papers_page import cell_text, hardware_text
from hocket.reproduce.reproduction import Circumstances, PaperTable, Reproduction


def markdown(made: Sequence[Reproduction], circumstances: Circumstances) -> str:
    """The text of ``made``."""
    head = [
        "# The papers again",
        "",
        f"Made by `{circumstances.command}`; do not edit. {circumstances.date}, "
        f"{hardware_text(circumstances)}, {circumstances.versions}; seed {circumstances.seed}. The command "
        "also writes a page with every figure.",
        "",
        *_rows(
            ("Paper", *(verdict.capitalize() for verdict in VERDICTS), "Seconds"),
            ((each.title, *_counts(each.claims), f"{each.wall_s:.0f}") for each in made),
        ),
        "",
        "A number is *reproduced* within 10% of the paper's, or what stands beside that; else it has the "
        "*same direction* if it shows a tenth of the effect or more. A statement in words is counted over "
        "its cases: *reproduced* where it holds in all of them, *in part* where in some. *Not here*: that "
        "takes what is not on this machine.",
    ]
    return "\n".join([*head, *(line for each in made for line in _paper(each))]) + "\n"


def _counts(claims: Sequence[ClaimRow]) -> Iterable[str]:
    counts = Counter(row.verdict for row in claims)
    return (str(counts[verdict]) for verdict in VERDICTS)


def _paper(made: Reproduction) -> list[str]:
    lines = ["", f"## {made.title}", "", *(f"* {sentence}" for sentence in made.assumptions), ""]
    lines += _rows(
        ("Figure", "Claim", "Paper", "Here", "Here / paper", "Verdict"),
        (
            (row.figure, row.what, row.paper_text, row.ours_text, row.ratio_text, row.verdict)
            for row in made.claims
        ),
    )
    reasons: dict[str, list[str]] = {}
    for row in made.claims:
        if row.why:
            reasons.setdefault(row.why, []).append(f"{row.figure} ({row.what})")
    if reasons:
        lines += ["", "Why, as far as known:", ""]
        lines += [f"* {'; '.join(claims)}: {why}." for why, claims in reasons.items()]
    for table in made.tables:
        lines += ["", *_table(table)]
    if made.missing:
        lines += ["", "Not made here:", ""]
        lines += [f"* {each.number}: {each.why}. Instead: {each.instead}." for each in made.missing]
    drawn = ", ".join(figure.number for figure in made.figures)
    return [*lines, "", f"On the page: {drawn}."]


def _table(table: PaperTable) -> list[str]:
    title = f"{table.number}: {table.caption}."
    return [title, "", *_rows(table.columns, ((cell_text(cell) for cell in row) for row in table.rows))]


def _rows(columns: Sequence[str], rows: Iterable[Iterable[str]]) -> list[str]:
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    return lines + [
        "| " + " | ".join(re.sub(r"([|<*])", r"\\\1", cell) for cell in row) + " |" for row in rows
    ]
