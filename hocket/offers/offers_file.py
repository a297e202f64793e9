"""Offers as a CSV file: a line each, comments behind ``#``."""

from __future__ import annotations

import csv
import difflib
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from hocket.document import read_bytes
from hocket.errors import FormatError, HocketError
from hocket.network import parse_bandwidth, parse_duration
from hocket.offers.offer import Offer, check_offers, is_count

_NEEDED = ("name", "device", "gpus", "price_per_hour", "most_nodes")
_OPTIONAL = ("currency", "nics", "bandwidth", "intra_bandwidth", "latency")
COLUMNS = (*_NEEDED, *_OPTIONAL)
_SLIP = 0.75  # likeness of a column's name to one of ours, from which it is taken for a slip


def example_offers() -> str:
    """The text of the example that is shipped: made-up prices, to be replaced."""
    return resources.files("hocket.offers").joinpath("offers.csv").read_text(encoding="utf-8")


def load_offers(path: str | Path) -> list[Offer]:
    """Read offers from a CSV file with the columns name, device, gpus, price_per_hour and most_nodes.

    Columns that may be there: currency, nics (1), bandwidth (of each NIC), intra_bandwidth (of each card to
    those of its node) and latency, which have units. Other columns are not read, unless they look like one
    of these.

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
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise FormatError(source, "", "is not UTF-8 text; save it as CSV in UTF-8") from None
    lines = [
        (number, line)
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not lines:
        raise FormatError(source, "", f"holds no offer; begin with a line {','.join(COLUMNS)}")
    try:
        rows = list(csv.reader([line for _, line in lines], strict=True))
    except csv.Error as error:
        raise FormatError(source, "", f"is not CSV: {error}") from None
    if len(rows) != len(lines):
        raise FormatError(source, "", "has a cell of several lines; write each offer on one line")
    numbers = [number for number, _ in lines]
    header = _header(rows[0], f"line {numbers[0]}", source)
    if len(rows) == 1:
        raise FormatError(source, "", "holds no offer below its header; add a line for each")
    offers = []
    for number, cells in zip(numbers[1:], rows[1:], strict=True):
        line = f"line {number}"
        if len(cells) != len(header):
            raise FormatError(source, line, f"has {len(cells)} cells, its header {len(header)}")
        named = dict(zip(header, (cell.strip() for cell in cells), strict=True))
        offers.append(_offer(named, line, source))
    try:
        check_offers(offers)
    except HocketError as error:
        raise FormatError(source, "", str(error)) from None
    return offers


def _header(cells: Sequence[str], line: str, source: str) -> list[str]:
    """The names of columns, in lower case; refused where one is missing, twice there, or misspelt."""
    header = [cell.strip().lower().replace(" ", "_") for cell in cells]
    others = [name for name in header if name not in COLUMNS]
    for name in COLUMNS:
        if header.count(name) > 1:
            raise FormatError(source, line, f"has the column '{name}' twice; leave one out")
        near = difflib.get_close_matches(name, others, n=1, cutoff=_SLIP if name in _OPTIONAL else 0.5)
        if name not in header and name in _NEEDED:
            hint = f"is '{near[0]}' it? call it so" if near else f"columns are {', '.join(COLUMNS)}"
            raise FormatError(source, line, f"needs a column '{name}'; {hint}")
        if name not in header and near:
            raise FormatError(source, line, f"column '{near[0]}': call it '{name}', or otherwise")
    return header


def _offer(cells: dict[str, str], line: str, source: str) -> Offer:
    values: dict[str, Any] = {}
    for column, (key, read) in _READ.items():
        text = cells.get(column, "")
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
        raise FormatError(source, line, f"{column} '{text}' is not a number; give e.g. 8") from None
    except HocketError as error:
        raise FormatError(source, line, f"{column}: {error}") from None


def _count(text: str) -> int | float:
    """A count as such; what is none as the number that it is, which an offer refuses."""
    value = float(text)
    return int(value) if is_count(value) else value


_READ: dict[str, tuple[str, Callable[[str], Any]]] = {
    "name": ("name", str),
    "device": ("device", str),
    "gpus": ("gpus", _count),
    "price_per_hour": ("price_per_hour", float),
    "most_nodes": ("most_nodes", _count),
    "currency": ("currency", str),
    "nics": ("nics", _count),
    "bandwidth": ("bandwidth_bps", parse_bandwidth),
    "intra_bandwidth": ("intra_bps", parse_bandwidth),
    "latency": ("latency_s", parse_duration),
}
"""Of each column: the offer's field, and how its text is read."""
