"""The page that results call for."""

from __future__ import annotations

from hocket.report.cluster_page import render_cluster
from hocket.report.load import ClusterEntry, Entry
from hocket.report.page import render


def render_results(entries: list[Entry] | list[ClusterEntry]) -> str:
    """The page of steps, or of a shared cluster.

    Raises
    ------
    HocketError
        Without any result.
    """
    clusters = [entry for entry in entries if isinstance(entry, ClusterEntry)]
    return render_cluster(clusters) if clusters else render([e for e in entries if isinstance(e, Entry)])
