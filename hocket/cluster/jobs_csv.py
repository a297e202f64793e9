"""Job sets as CSV: a column a field of ``hocket.jobs/1``, in its units, a line a job.

Texts are written as they are, numbers as JSON writes them. A field that is neither (``batches``) is JSON in
one cell. A cell that is empty says nothing: the field has its default, if it has one.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hocket.errors import FormatError, HocketError, UnknownNameError

_PACKED = (".gz", ".zst")
_EXACT = 2.0**53


def is_csv(path: str | Path) -> bool:
    """True if a file's name ends in ``.csv``, ``.csv.gz`` or ``.csv.zst``."""
    name = Path(path).name.lower()
    return next((name.removesuffix(end) for end in _PACKED if name.endswith(end)), name).endswith(".csv")


def rows_of_csv(data: bytes, source: str, fields: Mapping[str, bool]) -> list[tuple[str, dict[str, Any]]]:
    """The lines of a CSV file: of each where it is, as ``line 2``, and its cells by column.

    fields : those that may be columns; whether each is a text, and else JSON.

    Raises
    ------
    FormatError, UnknownNameError
        Naming ``source``, the line, the column and the rule; for a column that is no field.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(source, "", f"is not text in UTF-8: {error}") from None
    # A job's batches are one cell; the module's own limit is 131,072 characters.
    csv.field_size_limit(max(csv.field_size_limit(), len(text) + 1))
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    columns: list[str] = []
    rows = []
    try:
        for cells in reader:
            line = f"line {reader.line_num}"
            if not any(cells):
                continue
            if not columns:
                columns = _columns(cells, source, fields)
                continue
            if len(cells) != len(columns):
                rule = f"has {len(cells)} cells where {len(columns)} columns are named"
                raise FormatError(source, line, rule)
            named = zip(columns, cells, strict=True)
            values = {c: _value(cell, fields[c], source, f"{line}, {c}") for c, cell in named if cell}
            rows.append((line, values))
    except csv.Error as error:
        raise FormatError(source, f"line {reader.line_num}", f"is not CSV: {error}") from None
    return rows


def _columns(cells: Sequence[str], source: str, fields: Mapping[str, bool]) -> list[str]:
    columns = [cell.strip() for cell in cells]
    for place, column in enumerate(columns):
        if column not in fields:
            raise UnknownNameError(f"{source}: line 1: column", column, list(fields))
        if column in columns[:place]:
            raise FormatError(source, "line 1", f"'{column}' is a duplicate; a field has one column")
    return columns


def _value(cell: str, is_text: bool, source: str, where: str) -> Any:
    if is_text:
        return cell
    try:
        value = msgspec.json.decode(cell.encode())
        # Spreadsheets and dataframes write a count as 4.0.
        return int(value) if isinstance(value, float) and value.is_integer() and value < _EXACT else value
    except (msgspec.MsgspecError, RecursionError):
        raise FormatError(source, where, f"'{cell}' is not a number, or JSON, as 0.025 or 4 is") from None


def csv_of_rows(rows: Sequence[Mapping[str, Any]], fields: Mapping[str, bool]) -> bytes:
    """``rows`` as CSV, in the columns of ``fields`` that some row has; see :func:`rows_of_csv`.

    Raises
    ------
    HocketError
        For a text that CSV cannot hold: an empty one is no text there.
    """
    columns = [name for name in fields if any(name in row for row in rows)]
    text = io.StringIO(newline="")
    # A cell that holds a line's end of any kind is quoted where lines end so.
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(columns)
    for row in rows:
        cells = {name: row[name] for name in columns if name in row}
        writer.writerow([_cell(name, cells[name], fields[name]) if name in cells else "" for name in columns])
    return text.getvalue().encode()


def _cell(name: str, value: Any, is_text: bool) -> str:
    if not is_text:
        return msgspec.json.encode(value).decode()
    if not value:
        raise HocketError(f"a job's {name} is empty, and an empty cell of CSV says nothing; write JSON")
    return str(value)
