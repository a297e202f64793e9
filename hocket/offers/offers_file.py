"""Offers as a CSV file: a line each, comments behind ``#``."""

from __future__ import annotations

import csv
import difflib
import io
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from hocket.document import read_bytes
from hocket.errors import FormatError, HocketError
from hocket.network import parse_bandwidth, parse_duration
from hocket.offers.offer import Offer, check_offers, is_count
from hocket.text import counted

_NEEDED = ("name", "device", "gpus", "price_per_hour", "most_nodes")
_OPTIONAL = ("currency", "nics", "bandwidth", "intra_bandwidth", "latency")
COLUMNS = (*_NEEDED, *_OPTIONAL)
_MOST_OFFERS = 10_000
_SLIP = 0.75  # likeness of a column's name to one of ours, from which it is taken for a slip


def example_offers() -> str:
    """The text of the example that is shipped: made-up prices, to be replaced."""
    return resources.files("hocket.offers").joinpath("offers.csv").read_text(encoding="utf-8")


def load_offers(path: str | Path) -> list[Offer]:
    """Read offers from a CSV file with the columns name, device, gpus, price_per_hour and most_nodes.

    Columns that may be there: currency, nics (1), bandwidth (of each NIC), intra_bandwidth (of each card to
    those of its node) and latency, which have units. Other columns are not read, unless they look like one
    of these. Lines that begin with ``#`` are comments; a name that does stands in quotes.

    Parameters
    ----------
    path
        The file; "-" for standard input.

    Returns
    -------
    The offers, in the file's order.

    Raises
    ------
    FormatError
        Naming the file, the line, the column and the rule.

    Examples
    --------
    >>> import hocket
    >>> from hocket.offers.offers_file import example_offers
    >>> _ = open("offers.csv", "w").write(example_offers())
    >>> hocket.load_offers("offers.csv")[0].gpus
    8
    """
    source = str(path)
    try:
        text = read_bytes(path, "hocket rent --example-offers prints one").decode("utf-8-sig")
    except UnicodeDecodeError:
        raise FormatError(source, "", "is not UTF-8 text; save it as CSV in UTF-8") from None
    return parse_offers(text, source)


def parse_offers(text: str, source: str) -> list[Offer]:
    """Offers from a file's ``text``, as :func:`load_offers` reads them; ``source`` names it in errors."""
    # Other ends of a line than these, as U+2028, are characters of a cell, which an offer refuses.
    lines = list(enumerate(io.StringIO(text, newline=None), start=1))
    rows = [
        (number, _cells(line, number, source))
        for number, line in lines
        if line.strip() and not _is_comment(line)
    ]
    if not rows:
        raise FormatError(source, "", f"holds no offer; begin with a line {','.join(COLUMNS)}")
    (first, named), *others = rows
    header = _header(named, f"line {first}", source)
    _check_comments([each for each in lines if each[0] > first], len(header), source)
    if not others:
        raise FormatError(source, "", "holds no offer below its header; add a line for each")
    if len(others) > _MOST_OFFERS:
        raise FormatError(
            source, "", f"holds {len(others)} offers, and may hold {_MOST_OFFERS}; leave the others out"
        )
    offers = [_offer(cells, header, f"line {number}", source) for number, cells in others]
    try:
        check_offers(offers)
    except HocketError as error:
        raise FormatError(source, "", str(error)) from None
    return offers


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")


def _cells(line: str, number: int, source: str) -> list[str]:
    try:
        (cells,) = csv.reader([line.rstrip("\n")], strict=True)
    except csv.Error as error:
        fix = "close each quote on its line, and write one inside a cell twice"
        raise FormatError(source, f"line {number}", f"is not CSV: {error}; {fix}") from None
    return [cell.strip() for cell in cells]


def _check_comments(lines: Sequence[tuple[int, str]], columns: int, source: str) -> None:
    """Refuse a comment that may be meant as an offer whose name begins with ``#``: it would go unnoticed."""
    for number, line in lines:
        text = line.strip()
        if text.startswith("#") and not text[1:2].isspace() and text.count(",") >= columns - 1:
            name = text.partition(",")[0].strip()
            fix = f'write "{name}" in quotes for an offer called so, or # and a space for a comment'
            raise FormatError(source, f"line {number}", f"'{name}' may begin an offer or a comment; {fix}")


def _header(cells: Sequence[str], line: str, source: str) -> list[str]:
    """The names of columns, in lower case; refused where one is missing, twice there, or misspelt."""
    header = [cell.lower().replace(" ", "_") for cell in cells]
    others = [name for name in header if name not in COLUMNS]
    for name in COLUMNS:
        if header.count(name) > 1:
            raise FormatError(source, line, f"has the column '{name}' twice; leave one out")
        near = difflib.get_close_matches(name, others, n=1, cutoff=_SLIP if name in _OPTIONAL else 0.5)
        if name not in header and name in _NEEDED:
            hint = f"is '{near[0]}' it? call it so" if near else f"columns are {', '.join(COLUMNS)}"
            hint = _other_separator(cells) or hint
            raise FormatError(source, line, f"needs a column '{name}'; {hint}")
        if name not in header and near:
            raise FormatError(source, line, f"column '{near[0]}': call it '{name}', or otherwise")
    return header


def _other_separator(cells: Sequence[str]) -> str:
    """A clause on what separates a header's cells in place of commas; "" where nothing does."""
    marks = {";": "semicolons", "\t": "tabs", "|": "bars"}
    found = [called for mark, called in marks.items() if len(cells) == 1 and mark in cells[0]]
    return f"separate cells by commas, not by {found[0]}" if found else ""


def _offer(cells: Sequence[str], header: Sequence[str], line: str, source: str) -> Offer:
    if len(cells) != len(header):
        rule = f"has {counted(len(cells), 'cell')}, its header {len(header)}"
        fix = "separate cells by commas, quote one that has a comma, and write numbers without"
        raise FormatError(source, line, f"{rule}; {fix}")
    named = dict(zip(header, cells, strict=True))
    values: dict[str, Any] = {}
    for column, (key, read) in _READ.items():
        text = named.get(column, "")
        if text or column in _NEEDED:
            values[key] = _read(read, column, text, line, source)
    try:
        return Offer(**values)
    except HocketError as error:
        raise FormatError(source, line, str(error)) from None


def _read(read: Callable[[str], Any], column: str, text: str, line: str, source: str) -> Any:
    try:
        return read(text)
    except ValueError:
        fix = "give e.g. 24.0, without a currency" if column == "price_per_hour" else "give e.g. 8"
        fix = "leave out the comma; decimals follow a point, as in 24.5" if "," in text else fix
        raise FormatError(source, line, f"{column} '{text}' is not a number; {fix}") from None
    except HocketError as error:
        raise FormatError(source, line, f"{column}: {error}") from None


def _number(text: str) -> float:
    """A number in ASCII digits alone, as those with units are read."""
    if not text.isascii() or "_" in text:
        raise ValueError(text)
    return float(text)


def _count(text: str) -> int | float:
    """A count as such; what is none as the number that it is, which an offer refuses."""
    value = _number(text)
    return int(value) if is_count(value) else value


_READ: dict[str, tuple[str, Callable[[str], Any]]] = {
    "name": ("name", str),
    "device": ("device", str),
    "gpus": ("gpus", _count),
    "price_per_hour": ("price_per_hour", _number),
    "most_nodes": ("most_nodes", _count),
    "currency": ("currency", str),
    "nics": ("nics", _count),
    "bandwidth": ("bandwidth_bps", parse_bandwidth),
    "intra_bandwidth": ("intra_bps", parse_bandwidth),
    "latency": ("latency_s", parse_duration),
}
"""Of each column: the offer's field, and how its text is read."""
