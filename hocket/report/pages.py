"""The page that results call for."""

from __future__ import annotations

from hocket.report.cluster_page import render_cluster
from hocket.report.result_files import ClusterEntry, Entries, Entry, TrainingEntry
from hocket.report.step_page import render
from hocket.report.training_page import render_training


def render_results(entries: Entries) -> str:
    """The page of steps, of a shared cluster, or of a training run.

    Raises
    ------
    HocketError
        Without any result.
    """
    for entry in entries:
        if isinstance(entry, TrainingEntry):
            return render_training(entry)
    clusters = [entry for entry in entries if isinstance(entry, ClusterEntry)]
    return render_cluster(clusters) if clusters else render([e for e in entries if isinstance(e, Entry)])
