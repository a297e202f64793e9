"""The page of a shared cluster: completion times, where jobs' time goes, contention, who had which GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hocket.cluster.results.run_statistics import PARTS, ClusterRow, SimulatedCluster
from hocket.columns import Column
from hocket.errors import HocketError
from hocket.graph.result import is_level
from hocket.report.alternatives import (
    busy_columns,
    cluster_texts,
    residence_text,
    timeline_text,
)
from hocket.report.cluster_plot_data import Residence, cluster_figure, residence_figure
from hocket.report.cluster_table import PART_NAMES, chunk_text, cluster_columns
from hocket.report.html_page import Tile, render_page
from hocket.report.result_files import ClusterEntry
from hocket.report.step_plot_data import TimelinePanel, timeline_figure
from hocket.text import TimeUnit, counted, duration_text, listed, time_text, time_unit


def render_cluster(entries: Sequence[ClusterEntry], *, title: str = "Hocket: a shared cluster") -> str:
    """The page of ``entries``: the lowest average completion time first.

    Raises
    ------
    HocketError
        Without any result.
    """
    if not entries:
        raise HocketError("a page of a cluster needs at least one result")
    ranking = sorted(entries, key=lambda entry: entry.row.average_jct_s)
    rows = [entry.row for entry in ranking]
    unit = time_unit(row.average_jct_s for row in rows)
    names, drawn = _names(rows), _timelines(ranking, unit)
    data = {
        "unit": unit._asdict(),
        **cluster_figure(names, rows, unit),
        "part_names": {part: PART_NAMES[part][0] for part in PARTS},
        "timelines": drawn.figure,
    }
    return render_page(
        "cluster.html",
        data,
        origins=[entry.origin for entry in ranking],
        title=title,
        setup=_setup(rows),
        tiles=_tiles(rows, unit),
        columns=cluster_columns(rows),
        highlighted=[i == 0 for i in range(len(rows))],
        has_parts=any(result["parts"] is not None for result in data["results"]),
        has_contention=any(row.contention is not None for row in rows),
        recorded=any(entry.timeline is not None for entry in ranking),
        texts=cluster_texts(names, rows, unit) | {"timeline": drawn.text},
        busy=drawn.busy,
        one_job_set=len({_job_set(row) for row in rows}) == 1,
    )


class _Drawn(NamedTuple):
    """The timelines of a page: their figure, the same in words, and its lanes in numbers."""

    figure: dict[str, Any] | None
    text: str
    busy: list[Column]


def _job_set(row: ClusterRow) -> tuple[tuple[str, float], ...]:
    """Ids and arrivals in seconds of a run's jobs, which tell job sets apart."""
    return tuple((job.id, job.arrival_s) for job in row.jobs)


def _names(rows: Sequence[ClusterRow]) -> list[str]:
    """The name of each row in pictures: its setting, and its job set where there are several."""
    sources, chunks = {row.source for row in rows}, {chunk_text(row) for row in rows}
    names = [row.name if len(chunks) == 1 else f"{row.name}, {chunk_text(row)}" for row in rows]
    return [
        name if len(sources) == 1 else f"{name}, {row.source}" for name, row in zip(names, rows, strict=True)
    ]


def _setup(rows: Sequence[ClusterRow]) -> str:
    clusters = {(row.servers, row.gpus_per_server) for row in rows}
    counts = {len(row.jobs) for row in rows}
    parts = [f"{counts.pop()} jobs" if len(counts) == 1 else f"{len(rows)} results of several job sets"]
    servers, gpus = clusters.pop() if len(clusters) == 1 else (None, None)
    if servers is not None and gpus is not None:
        parts.append(f"{servers} servers of {gpus} GPUs")
    elif clusters:
        parts.append("several clusters")
    sources = {row.source for row in rows}
    if len(sources) == 1 and (source := sources.pop()):
        parts.append(source)
    settings = {row.setting for row in rows}
    if len(settings) == 1 and (setting := settings.pop()) is not None:
        parts.append(_setting_text(setting))
        seeds = {row.seed for row in rows}
        parts.append(f"seed {seeds.pop()}" if len(seeds) == 1 else f"{len(seeds)} seeds")
    elif len(settings) > 1:
        parts.append("several settings")
    overlapping = {row.overlapping for row in rows}
    if overlapping != {0}:
        parts.append(f"{max(overlapping)} jobs overlap" if len(overlapping) == 1 else "some with overlap")
    return " · ".join(parts)


def _setting_text(setting: SimulatedCluster) -> str:
    network = f"a {setting.startup_s:.3g} s, b {setting.per_byte_s:.3g} s/B"
    if setting.sharing == "equation5":
        shared = f"Eq. 5, {network}, eta {setting.contention_per_byte_s:.3g} s/B"
    else:
        shared = f"{setting.sharing}, {network}"
    if setting.racks > 1:
        shared += f", {setting.racks} racks, oversubscribed {setting.oversubscription:g} times"
    parts = [f"{setting.gpu_memory_bytes / 1e9:g} GB a GPU", f"chunks of {setting.chunk_bytes / 1e6:g} MB"]
    if setting.gpu_types:
        parts.append(listed([f"{each.num_gpus} of {each.name}" for each in setting.gpu_types]))
    if setting.jobs_per_gpu is not None:
        parts.append(f"at most {counted(setting.jobs_per_gpu, 'job')} on each")
    if setting.wait_for_faster:
        parts.append("jobs wait for faster types")
    if setting.resize:
        parts.append("jobs shrink and grow")
    if setting.starvation_s is not None:
        parts.append(f"GPUs are held after {duration_text(setting.starvation_s)}")
    for name, numbers in (("quotas", setting.quotas), ("shares", setting.shares)):
        if numbers is not None:
            parts.append(f"{name} {','.join(f'{user}={number}' for user, number in numbers)}")
    if setting.half_life_s is not None:
        parts.append(f"what users had {duration_text(setting.half_life_s)} ago counts half")
    return ", ".join([*parts, shared])


def _tiles(rows: Sequence[ClusterRow], unit: TimeUnit) -> list[Tile]:
    best = rows[0]
    alike = [row for row in rows if _job_set(row) == _job_set(best)]
    highest = alike[-1]
    level = sum(is_level(row.average_jct_s, best.average_jct_s) for row in alike) - 1
    tied = f", level with {counted(level, 'other')}" if level else ""
    tiles = [
        Tile("Lowest average", best.policy, f"placed by {best.placement}{tied}"),
        Tile(
            "Average JCT", time_text(best.average_jct_s, unit), f"median {time_text(best.median_jct_s, unit)}"
        ),
        Tile("95th percentile", time_text(best.p95_jct_s, unit), "19 of 20 jobs take no longer"),
        Tile(
            "GPU utilization", f"{best.gpu_utilization:.1%}", f"makespan {time_text(best.makespan_s, unit)}"
        ),
    ]
    if level < len(alike) - 1 and highest.average_jct_s > 0:
        saved = 1 - best.average_jct_s / highest.average_jct_s
        note = f"{highest.name}: {time_text(highest.average_jct_s, unit)}"
        tiles.append(Tile("Below the highest", f"{saved:z.1%}", note))
    return tiles


def _timelines(ranking: Sequence[ClusterEntry], unit: TimeUnit) -> _Drawn:
    """Timelines of the highest and the lowest that were recorded; else the GPUs that jobs had in those two.

    Both have the jobs of the lowest.
    """
    recorded = [entry for entry in ranking if entry.timeline is not None]
    shown = recorded or list(ranking)
    alike = [entry for entry in shown if _job_set(entry.row) == _job_set(shown[0].row)]
    chosen = [alike[-1], alike[0]] if len(alike) > 1 else alike
    captions = [f"{entry.row.name}, average {time_text(entry.row.average_jct_s, unit)}" for entry in chosen]
    if recorded:
        panels = [
            TimelinePanel(caption, entry.row.policy, entry.timeline)
            for caption, entry in zip(captions, chosen, strict=True)
            if entry.timeline is not None
        ]
        return _Drawn(timeline_figure(panels, unit), timeline_text(panels, unit), busy_columns(panels))
    figure = residence_figure(
        (Residence(caption, entry.row) for caption, entry in zip(captions, chosen, strict=True)), unit
    )
    return _Drawn(figure, residence_text(figure, unit), [])
