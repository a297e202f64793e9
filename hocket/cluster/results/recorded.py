"""A recorded run of a cluster: a timeline of its tasks in a file, with the row of its run as ``cluster``."""

from __future__ import annotations

from typing import Any

import msgspec

from hocket.cluster.results.run_statistics import ClusterRow, check_cluster_row
from hocket.document import convert_document
from hocket.graph import Timeline
from hocket.interop import timeline_document, timeline_from_document


def recorded_document(timeline: Timeline, row: ClusterRow) -> dict[str, Any]:
    """The ``hocket.timeline/1`` document of a run, as plain data."""
    return timeline_document(timeline) | {"cluster": msgspec.to_builtins(row)}


def is_recorded(document: Any) -> bool:
    """True if a document is the timeline of a cluster; a step's has its row under ``result``."""
    return isinstance(document, dict) and "cluster" in document


def recorded_from_document(document: dict[str, Any], source: str) -> tuple[Timeline, ClusterRow]:
    """The timeline and the row of a document that :func:`is_recorded`, read from ``source``.

    Raises
    ------
    FormatError
        Naming ``source``, the field and the rule.
    """
    timeline, _ = timeline_from_document(document, source)
    return timeline, cluster_row_from_document(document["cluster"], source, "cluster")


def cluster_row_from_document(document: Any, source: str, field: str = "") -> ClusterRow:
    """The row that ``cluster simulate --json`` prints, found in ``field`` of ``source``; see above."""
    row = convert_document(document, ClusterRow, f"{source}: {field}" if field else source)
    check_cluster_row(row, source, field)
    return row
