"""The files of ``hocket report RESULT...``, read into one list of results."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from hocket.cluster.results.recorded import cluster_row_from_document, is_recorded, recorded_from_document
from hocket.cluster.results.run_statistics import ClusterRow
from hocket.document import convert_document, read_document
from hocket.errors import FormatError, HocketError
from hocket.graph.result import ResultRow, check_row
from hocket.graph.timeline import Timeline
from hocket.interop import timeline_from_document
from hocket.origin import Origin, origin_of


class Entry(NamedTuple):
    """One result and, where they were recorded, the timeline of its run and where it comes from."""

    row: ResultRow
    timeline: Timeline | None = None
    origin: Origin | None = None


class ClusterEntry(NamedTuple):
    """One run of a shared cluster and, where they were recorded, its timeline and where it comes from."""

    row: ClusterRow
    timeline: Timeline | None = None
    origin: Origin | None = None


class TrainingEntry(NamedTuple):
    """The timeline of a training run, which no result comes with."""

    timeline: Timeline
    origin: Origin | None = None


Entries = list[Entry] | list[ClusterEntry] | list[TrainingEntry]


def load_results(paths: Iterable[str | Path]) -> Entries:
    """Read result files: what ``--json`` and ``--timeline`` of simulations and training runs write.

    A file holds one row, a list of rows, ``{"ranked": rows}`` (``tune --json``) or a ``hocket.timeline/1``
    document. A row that also comes with a timeline is listed once, with it. All are of steps, or all of
    clusters; a training run's timeline, which has no row, comes alone.

    Raises
    ------
    FormatError, HocketError
        Naming the file, the field and the rule.
    """
    steps: dict[ResultRow, Entry] = {}
    clusters: dict[ClusterRow, ClusterEntry] = {}
    runs: list[TrainingEntry] = []
    of_kind: dict[type[Entry | ClusterEntry | TrainingEntry], str] = {}
    for path in paths:
        for entry in _entries(read_document(path), str(path)):
            of_kind.setdefault(type(entry), str(path))
            if isinstance(entry, TrainingEntry):
                runs.append(entry)
                continue
            # The simulator's effort differs between two runs that give the same result.
            if isinstance(entry, ClusterEntry):
                cluster = msgspec.structs.replace(entry.row, wall_s=0.0, events=0, contention=None)
                if cluster not in clusters or _detail_key(entry) > _detail_key(clusters[cluster]):
                    clusters[cluster] = entry
            else:
                step = msgspec.structs.replace(entry.row, wall_s=0.0)
                if step not in steps or steps[step].timeline is None:
                    steps[step] = entry
    if runs and len(runs) + len(steps) + len(clusters) > 1:
        rule = "is of a training run, which has a page of its own; hocket compare shows two beside each other"
        raise HocketError(f"{of_kind[TrainingEntry]} {rule}")
    if runs:
        return runs
    if len(of_kind) == 2:
        rule = "a page shows steps or clusters; make two pages"
        raise HocketError(f"{of_kind[ClusterEntry]} is of a cluster and {of_kind[Entry]} of a step: {rule}")
    return list(clusters.values()) if clusters else list(steps.values())


def _entries(document: Any, source: str) -> Entries:
    made = origin_of(document, source)
    if _is_cluster(document):
        return [_cluster_entry(document, source)]
    if isinstance(document, dict) and "format" in document:
        timeline, row = timeline_from_document(document, source)
        return [TrainingEntry(timeline, made)] if row is None else [Entry(row, timeline, made)]
    if isinstance(document, list) and document and all(_is_cluster(each) for each in document):
        return [_cluster_entry(each, source, f"[{i}]") for i, each in enumerate(document)]
    if isinstance(document, dict) and "ranked" in document:
        rows, field = convert_document(document, _Ranked, source).ranked, "ranked"
    elif isinstance(document, list):
        rows, field = convert_document(document, list[ResultRow], source), ""
    else:
        row = convert_document(document, ResultRow, source)
        check_row(row, source)
        return [Entry(row, origin=made)]
    if not rows:
        raise FormatError(source, field, "holds no result")
    for i, row in enumerate(rows):
        check_row(row, source, f"{field}[{i}]")
    return [Entry(row, origin=made) for row in rows]


class _Ranked(msgspec.Struct, frozen=True):
    ranked: list[ResultRow]


def _detail_key(entry: ClusterEntry) -> tuple[bool, bool]:
    """A key that is greater the more of a run was written down."""
    return entry.timeline is not None, entry.row.contention is not None


def _is_cluster(document: Any) -> bool:
    """True if it is what ``cluster simulate`` prints, or a timeline that it wrote."""
    return is_recorded(document) or (isinstance(document, dict) and "placement" in document)


def _cluster_entry(document: Any, source: str, field: str = "") -> ClusterEntry:
    if is_recorded(document):
        timeline, row = recorded_from_document(document, source)
        return ClusterEntry(row, timeline, origin_of(document, source))
    return ClusterEntry(
        cluster_row_from_document(document, source, field), origin=origin_of(document, source)
    )
