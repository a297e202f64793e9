"""What ``hocket report RESULT...`` is given, read into one list of results."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from hocket.document import convert_document, read_document
from hocket.errors import FormatError
from hocket.graph.result import ResultRow, check_row
from hocket.graph.timeline import Timeline
from hocket.interop import timeline_from_document


class Entry(NamedTuple):
    """One result and, where one was recorded, the timeline of its run."""

    row: ResultRow
    timeline: Timeline | None = None


def load_results(paths: Iterable[str | Path]) -> list[Entry]:
    """Read result files: what ``simulate --json``, ``simulate --timeline`` and ``tune --json`` write.

    A file holds one row, a list of rows, ``{"ranked": rows}`` or a ``hocket.timeline/1`` document. A row that
    also comes with a timeline is listed once, with it.

    Raises
    ------
    FormatError
        Naming the file, the field and the rule.
    """
    entries: dict[ResultRow, Entry] = {}
    for path in paths:
        for entry in _entries(read_document(path), str(path)):
            # How long the simulator took differs between two runs that give the same result.
            key = msgspec.structs.replace(entry.row, wall_s=0.0)
            if key not in entries or entries[key].timeline is None:
                entries[key] = entry
    return list(entries.values())


def _entries(document: Any, source: str) -> list[Entry]:
    if isinstance(document, dict) and "format" in document:
        timeline, row = timeline_from_document(document, source)
        if row is None:
            raise FormatError(source, "result", "is missing; a report ranks the timeline's run by it")
        return [Entry(row, timeline)]
    if isinstance(document, dict) and "ranked" in document:
        rows, field = convert_document(document, _Ranked, source).ranked, "ranked"
    elif isinstance(document, list):
        rows, field = convert_document(document, list[ResultRow], source), ""
    else:
        row = convert_document(document, ResultRow, source)
        check_row(row, source)
        return [Entry(row)]
    if not rows:
        raise FormatError(source, field, "holds no result")
    for i, row in enumerate(rows):
        check_row(row, source, f"{field}[{i}]")
    return [Entry(row) for row in rows]


class _Ranked(msgspec.Struct, frozen=True):
    ranked: list[ResultRow]
