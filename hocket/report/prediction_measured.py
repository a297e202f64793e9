"""Throughput that was measured somewhere, beside what was predicted for the same machines."""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from hocket.document import read_bytes
from hocket.errors import FormatError
from hocket.predictor.prediction import Prediction
from hocket.text import counted

_MOST = 1e18


class MeasuredThroughput(NamedTuple):
    """A measured configuration: ``throughput`` in examples a second over all workers."""

    workers: int
    servers: int
    throughput: float


class ModelError(NamedTuple):
    """A model's |predicted - measured| / measured over the measured points: the mean and the largest."""

    model: str
    mean: float
    largest: float


def load_points(path: str | Path, predicted: Collection[tuple[int, int]]) -> list[MeasuredThroughput]:
    """Read a CSV file with the columns ``workers``, ``throughput`` and, where it matters, ``servers``.

    asked : the (workers, servers) that are predicted; servers is 0 for all-reduce. Without a column, servers
        are those of all of ``predicted``.

    Raises
    ------
    FormatError
        Naming the file, the line and the rule; also for a configuration that is not asked for.
    """
    source = str(path)
    try:
        text = read_bytes(path).decode("utf-8-sig")
        lines = list(csv.reader(text.splitlines(), strict=True))
    except UnicodeDecodeError:
        raise FormatError(source, "", "is not UTF-8 text; save it as CSV in UTF-8") from None
    except csv.Error as error:
        raise FormatError(source, "", f"is not CSV: {error}") from None
    header = [name.strip() for name in lines[0]] if lines else []
    for name in ("workers", "throughput"):
        if header.count(name) != 1:
            raise FormatError(source, "line 1", f"needs one column '{name}'; begin with workers,throughput")
    common = {servers for _, servers in predicted}
    if "servers" not in header and len(common) > 1:
        raise FormatError(source, "line 1", "needs a column 'servers': several numbers of them are asked for")
    points = []
    for number, cells in enumerate(lines[1:], start=2):
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(header):
            raise FormatError(source, f"line {number}", f"has {len(cells)} cells, its header {len(header)}")
        points.append(_point(dict(zip(header, cells, strict=True)), common, f"line {number}", source))
        if points[-1][:2] not in predicted:
            raise FormatError(
                source, f"line {number}", f"{_point_name(points[-1])} are not asked for; add them"
            )
    if not points:
        raise FormatError(source, "", "holds no measured point below its header")
    return points


def _point(cells: dict[str, str], common: set[int], line: str, source: str) -> MeasuredThroughput:
    def number(name: str) -> float:
        try:
            value = float(cells[name])
        except ValueError:
            raise FormatError(source, line, f"{name} '{cells[name].strip()}' is not a number") from None
        if not 0 <= value <= _MOST or (name != "throughput" and not value.is_integer()):
            rule = "from above 0 to 1e18 examples/s" if name == "throughput" else "a count"
            raise FormatError(source, line, f"{name} {value:g} is not {rule}")
        return value

    throughput = number("throughput")
    if throughput == 0:
        raise FormatError(source, line, "throughput 0 is no measurement; leave the line out")
    servers = number("servers") if "servers" in cells else min(common)
    return MeasuredThroughput(int(number("workers")), int(servers), throughput)


def _point_name(point: MeasuredThroughput) -> str:
    servers = f" and {counted(point.servers, 'server')}" if point.servers else ""
    return counted(point.workers, "worker") + servers


def model_errors(rows: Iterable[Prediction], points: Sequence[MeasuredThroughput]) -> list[ModelError]:
    """The errors of our prediction and of the models beside it; each of ``points`` is one of ``rows``."""
    row_of = {(row.workers, row.servers): row for row in rows}
    found = []
    for model, key in (("Hocket", "throughput"), ("lin", "lin"), ("cynthia", "cynthia")):
        predicted = [getattr(row_of[point[:2]], key) for point in points]
        if points and None not in predicted:
            errors = [abs(p / point.throughput - 1) for p, point in zip(predicted, points, strict=True)]
            found.append(ModelError(model, math.fsum(errors) / len(errors), max(errors)))
    return found
