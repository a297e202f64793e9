"""Rows of delimited text, strictly: a line at a time, and one line for whatever is wrong with a cell."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, NoReturn

from hocket.cluster.workloads.trace_text import open_text
from hocket.cluster.workloads.trace_times import TraceClock
from hocket.errors import FormatError

# One way to match each text: digits that two parts of a pattern could take make it quadratic.
_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
_MOST = 1e18
NOT_SAID = ("", "None", "Unknown", "N/A", "nan", "NaN", "null", "NULL")
"""Cells of numbers and times that say nothing."""


class TraceRow(NamedTuple):
    """One line of a trace: its cells by column, and the clock that its times are of."""

    source: str
    line: int
    cells: dict[str, str]
    clock: TraceClock

    def refuse(self, column: str, rule: str) -> NoReturn:
        """Raise FormatError for a cell."""
        raise FormatError(self.source, f"line {self.line}, {column}", rule)

    def says(self, column: str) -> bool:
        """True if there is such a column and its cell is not empty, None or the like."""
        return self.cells.get(column, "") not in NOT_SAID

    def number(self, column: str) -> float:
        """A number from 0 to 1e18."""
        text = self.cells[column]
        value = float(text) if _NUMBER.fullmatch(text) else math.nan
        if not 0 <= value <= _MOST:
            self.refuse(column, f"'{text}' is not a number of 0 or more, up to {_MOST:g}")
        return value

    def number_or_zero(self, column: str) -> float:
        """A number, 0 where the trace does not say it."""
        return self.number(column) if self.says(column) else 0.0

    def whole(self, column: str, least: int = 0) -> int:
        """A whole number of ``least`` or more."""
        value = self.number(column)
        if value < least or value != int(value):
            self.refuse(column, f"'{self.cells[column]}' is not a whole number of {least} or more")
        return int(value)

    def moment(self, column: str) -> float:
        """Seconds since 1970, of a time such as 2020-06-09 18:41:01."""
        try:
            return self.clock.seconds(self.cells[column])
        except ValueError as error:
            self.refuse(column, str(error))

    def new_id(self, column: str, lines: dict[str, int]) -> str:
        """The id in a cell, which no line of ``lines`` has yet; this one is added to them."""
        name = self.cells[column]
        if not name:
            self.refuse(column, "is empty; name the job")
        if lines.setdefault(name, self.line) != self.line:
            rule = f"'{name}' is a duplicate, of line {lines[name]}; ids are unique: leave one of the two out"
            self.refuse(column, rule)
        return name


class Table(NamedTuple):
    """A kind of table: its columns, and how they are named.

    ``delimiter``: what is between cells. ``header``: True: the first line names the columns, False: there is
    none and ``columns`` are all of them, None: there is one if its first cell is the first column's name.
    ``needed``: the columns that a header has to name, all of them unless given. ``older``: the columns of
    lines without a header that have as many cells as these.
    """

    columns: Sequence[str]
    delimiter: str = ","
    header: bool | None = True
    needed: Sequence[str] | None = None
    older: Sequence[str] = ()


def read_rows(path: Path, table: Table) -> Iterator[TraceRow]:
    """The rows of delimited text that has at least the columns of ``table``.

    Raises
    ------
    FormatError
        Naming the file, the line and the rule.
    """
    source = str(path)
    # Commands in Gavel's cells, and Slurm's names of jobs, have quotes that mean nothing.
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if table.delimiter == "," else csv.QUOTE_NONE
    with open_text(path) as file:
        reader = csv.reader(file, delimiter=table.delimiter, quoting=quoting, strict=True)
        try:
            yield from _rows(((reader.line_num, cells) for cells in reader), table, source)
        except csv.Error as error:
            rule = f"is not delimited text: {error}"
            raise FormatError(source, f"line {reader.line_num}", rule) from None
        except UnicodeDecodeError as error:
            rule = f"is not text in UTF-8 behind line {reader.line_num}: {error}"
            raise FormatError(source, "", rule) from None


def _rows(lines: Iterator[tuple[int, list[str]]], table: Table, source: str) -> Iterator[TraceRow]:
    names: Sequence[str] = ()
    clock = TraceClock()
    for line, raw in lines:
        cells = [cell.strip() for cell in raw]
        if not any(cells):
            continue
        if not names:
            if table.header or (table.header is None and cells[0] == table.columns[0]):
                names = _column_names(cells, table.needed or table.columns, source)
                continue
            names = table.older if len(cells) == len(table.older) else table.columns
        if len(cells) != len(names):
            rule = f"has {len(cells)} cells where {len(names)} columns are expected: {', '.join(names)}"
            raise FormatError(source, f"line {line}", rule)
        yield TraceRow(source, line, dict(zip(names, cells, strict=True)), clock)


def _column_names(names: list[str], needed: Sequence[str], source: str) -> list[str]:
    missing = [column for column in needed if column not in names]
    if missing:
        rule = f"has no column '{missing[0]}'; needed are {', '.join(needed)}"
        raise FormatError(source, "line 1", rule)
    if len(set(names)) < len(names):
        name = next(name for name in names if names.count(name) > 1)
        raise FormatError(source, "line 1", f"'{name}' is a duplicate; each column has a name of its own")
    return names
