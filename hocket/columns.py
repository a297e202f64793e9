"""Tables, declared once by the column: for the terminal, few columns or all of them, and for a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from hocket.text import UNDEFINED, TimeUnit, decimals_for, number_text

Value = str | int | float | None


class Cell(NamedTuple):
    """One cell: the text to show and the value to sort by."""

    text: str
    value: Value


class Column(NamedTuple):
    """One column: its heading on a page, its cells and what they mean, its unit, its heading in the terminal.

    ``clear``: true if its heading, or what stands beside the table, says enough. ``only_wide``: true if the
    terminal shows it with ``--wide`` alone.
    """

    heading: str
    cells: list[Cell]
    meaning: str = ""
    unit: str = ""
    short: str = ""
    clear: bool = False
    only_wide: bool = False

    @property
    def numeric(self) -> bool:
        """True if its cells line up on the right."""
        return not any(isinstance(cell.value, str) for cell in self.cells)

    @property
    def title(self) -> str:
        """Its heading in the terminal."""
        return self.short or self.heading

    @property
    def needs_word(self) -> bool:
        """True if a word on what it means belongs below the table."""
        return bool(self.meaning) and not self.clear

    def as_clear(self) -> Column:
        """The column as one that needs no word on what it means."""
        return self._replace(clear=True)

    def as_wide(self) -> Column:
        """The column as one that only ``--wide`` shows."""
        return self._replace(only_wide=True)


def text_column(heading: str, values: Iterable[str], meaning: str = "", *, short: str = "") -> Column:
    """A column of names."""
    return Column(heading, [Cell(value, value) for value in values], meaning, "", short)


def number_column(
    heading: str,
    values: Sequence[float | None],
    meaning: str = "",
    *,
    unit: str = "",
    short: str = "",
    decimals: int | None = None,
) -> Column:
    """A column of numbers with so many decimals; None: such that the largest has four digits.

    Numbers too small for that have digits of their own, unless they are percentages: 0.0% says enough.
    """
    if decimals is None:
        decimals = decimals_for(value for value in values if value is not None)

    def text(value: float) -> str:
        return f"{value:z.{decimals}f}" if unit == "%" else number_text(value, decimals)

    cells = [Cell(UNDEFINED if value is None else text(value), value) for value in values]
    return Column(heading, cells, meaning, unit, short)


def time_column(
    heading: str, times_s: Sequence[float | None], unit: TimeUnit, meaning: str = "", *, short: str = ""
) -> Column:
    """A column of times in ``unit``, such that the longest has four digits."""
    scaled = [None if time_s is None else time_s * unit.per_second for time_s in times_s]
    return number_column(heading, scaled, meaning, unit=unit.symbol, short=short)


def percent_column(
    heading: str,
    fractions: Sequence[float | None],
    meaning: str = "",
    *,
    short: str = "",
    decimals: int = 1,
) -> Column:
    """A column of fractions as percentages."""
    percentages = [None if fraction is None else 100 * fraction for fraction in fractions]
    return number_column(heading, percentages, meaning, unit="%", short=short, decimals=decimals)


def written_column(heading: str, texts: Iterable[object], meaning: str = "") -> Column:
    """A column of numbers that are written already, each in its own way."""
    return Column(heading, [Cell(str(text), None) for text in texts], meaning)


def narrow(columns: Sequence[Column]) -> list[Column]:
    """Those of ``columns`` that the terminal shows without ``--wide``."""
    return [column for column in columns if not column.only_wide]


def known(columns: Sequence[Column]) -> list[Column]:
    """Those of ``columns`` in which any row has a value."""
    return [column for column in columns if any(cell.value is not None for cell in column.cells)]


def led_by(columns: Sequence[Column], *headings: str) -> list[Column]:
    """``columns``, those with ``headings`` first: a phone shows these without a move to the side."""
    found = {column.heading: column for column in columns}
    first = [found.pop(heading) for heading in headings]
    return [*first, *found.values()]


def terminal_table(
    columns: Sequence[Column], bold: Sequence[bool] = (), *, title: str = "", spaced: bool = False
) -> Table:
    """``columns`` for the terminal, the rows marked in ``bold`` standing out.

    ``spaced``: with more between columns, for headings of several words without a unit below them.
    """
    table = Table(
        title=Text(title) if title else None,
        box=None,
        pad_edge=spaced,
        collapse_padding=not spaced,
        header_style="bold",
    )
    for column, heading in zip(columns, _headings(columns), strict=True):
        table.add_column(Text(heading), justify="right" if column.numeric else "left", overflow="fold")
    for i in range(len(columns[0].cells)):
        texts = (Text(column.cells[i].text) for column in columns)
        table.add_row(*texts, style="bold" if bold and bold[i] else "")
    return table


def in_one_line(columns: Sequence[Column]) -> list[Column]:
    """``columns`` with their units beside their names, for tables of few columns."""
    return [
        column._replace(short=f"{column.title} [{column.unit}]", unit="") if column.unit else column
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
    return " ".join(f"{column.title.partition(' [')[0]}: {_within(column.meaning)}" for column in columns)


def _headings(columns: Sequence[Column]) -> list[str]:
    """Names, and units below them where any column has one."""
    below = any(column.unit for column in columns)
    return [
        column.title + (f"\n[{column.unit}]" if column.unit else "\n" * (below and column.numeric))
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
