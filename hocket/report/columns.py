"""Tables built by the column, for the terminal and the page alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from hocket.report.ranking_table import UNDEFINED, RankingCell, decimals_for, number_text


class Column(NamedTuple):
    """One column: its name, its name in the terminal, its unit (or nothing), what it means, and its cells."""

    heading: str
    short: str
    unit: str
    meaning: str
    cells: list[RankingCell]

    @property
    def numeric(self) -> bool:
        """True if its cells line up on the right."""
        return not any(isinstance(cell.value, str) for cell in self.cells)


def text_column(heading: str, short: str, meaning: str, values: Sequence[str]) -> Column:
    """A column of names."""
    return Column(heading, short, "", meaning, [RankingCell(value, value) for value in values])


def number_column(
    heading: str,
    short: str,
    unit: str,
    meaning: str,
    values: Sequence[float | None],
    decimals: int | None = None,
) -> Column:
    """A column of numbers with so many decimals; None: such that the largest has four digits.

    Numbers too small for that have digits of their own, unless they are percentages: 0.0% says enough.
    """
    if decimals is None:
        decimals = decimals_for(value for value in values if value is not None)

    def text(value: float) -> str:
        return f"{value:z.{decimals}f}" if unit == "%" else number_text(value, decimals)

    cells = [RankingCell(UNDEFINED if value is None else text(value), value) for value in values]
    return Column(heading, short, unit, meaning, cells)


def terminal_columns(columns: Sequence[Column], bold: Sequence[bool]) -> Table:
    """``columns`` for the terminal, the rows marked in ``bold`` standing out."""
    table = Table(box=None, pad_edge=False, collapse_padding=True, header_style="bold")
    for column, heading in zip(columns, _headings(columns), strict=True):
        justify = "right" if column.numeric else "left"
        table.add_column(Text(heading), justify=justify, overflow="fold")  # type: ignore[arg-type]
    for i, stands_out in enumerate(bold):
        texts = (Text(column.cells[i].text) for column in columns)
        table.add_row(*texts, style="bold" if stands_out else "")
    return table


def in_one_line(columns: Sequence[Column]) -> list[Column]:
    """``columns`` with their units beside their names, for tables of few columns."""
    return [
        column._replace(short=f"{column.short} [{column.unit}]", unit="") if column.unit else column
        for column in columns
    ]


def fitting(columns: Sequence[Column], width: int) -> list[Column]:
    """The first of ``columns`` that fit beside each other without a line's break; at least two."""
    kept = list(columns)
    while len(kept) > 2 and sum(_widths(kept)) + len(kept) - 1 > width:
        kept.pop()
    return kept


def legend(columns: Sequence[Column]) -> str:
    """Explanations of ``columns``, in one line."""
    return " ".join(f"{column.short.partition(' [')[0]}: {_within(column.meaning)}" for column in columns)


def _headings(columns: Sequence[Column]) -> list[str]:
    """Names, and units below them where any column has one."""
    below = any(column.unit for column in columns)
    return [
        column.short + (f"\n[{column.unit}]" if column.unit else "\n" * (below and column.numeric))
        for column in columns
    ]


def _widths(columns: Sequence[Column]) -> list[int]:
    found = []
    for column, heading in zip(columns, _headings(columns), strict=True):
        lines = [
            line for text in (heading, *(cell.text for cell in column.cells)) for line in text.split("\n")
        ]
        found.append(max(map(len, lines)))
    return found


def _within(meaning: str) -> str:
    """A meaning behind a colon: without its capital, unless that is a symbol's."""
    return meaning[0].lower() + meaning[1:] if meaning[1:2].islower() else meaning
