"""The numbers behind the pictures of a cluster's page, as plain data for its script."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from hocket.cluster.results.run_statistics import PARTS, ClusterRow, JobRow
from hocket.report.step_plot_data import MOST_SPANS, span_times
from hocket.text import TimeUnit

_MOST_POINTS = 2000
# The kinds of spans that say which GPUs a job has, by whether its transfers cross the network.
_KINDS = ("local", "networked")


def cluster_figure(names: Sequence[str], rows: Sequence[ClusterRow], unit: TimeUnit) -> dict[str, Any]:
    """Of each row its name, completion times with the percent of jobs that take no longer, parts, contention.

    ``parts`` and ``contention`` are None where a row has none.
    """
    results = []
    for name, row in zip(names, rows, strict=True):
        parts = [getattr(row, f"average_{part}_s") for part in PARTS]
        contention = row.contention
        results.append(
            {
                "name": name,
                **_distribution(row, unit),
                "parts": None if None in parts else [value * unit.per_second for value in parts],
                "contention": None
                if contention is None
                else {
                    "begin": contention.begin_s * unit.per_second,
                    "bin": contention.bin_s * unit.per_second,
                    "mean": contention.mean,
                    "most": contention.most,
                },
            }
        )
    return {"results": results, "parts": PARTS}


def _distribution(row: ClusterRow, unit: TimeUnit) -> dict[str, list[float]]:
    """Completion times in order and the share of jobs that take no longer; of very many, spread evenly."""
    times = np.sort([job.jct_s for job in row.jobs]) * unit.per_second
    share = 100 * np.arange(1, len(times) + 1) / len(times)
    if len(times) > _MOST_POINTS:
        kept = np.unique(np.linspace(0, len(times) - 1, _MOST_POINTS).round().astype(int))
        times, share = times[kept], share[kept]
    return {"jct": np.round(times, 6).tolist(), "share": np.round(share, 4).tolist()}


class Residence(NamedTuple):
    """A run whose GPUs are drawn, and what it is called on the page."""

    caption: str
    row: ClusterRow


def residence_figure(panels: Iterable[Residence], unit: TimeUnit) -> dict[str, Any]:
    """The GPUs that jobs were on, as timelines are drawn from it; jobs that share one lie in lanes.

    Times begin at 0 with the first arrival. Of very many jobs the first ones are drawn, as the
    caption says.
    """
    names: dict[str, int] = {}
    shown = list(panels)
    drawn = [_panel(panel, MOST_SPANS // len(shown), names, unit) for panel in shown]
    return {"names": list(names), "kinds": _KINDS, "panels": drawn}


def _panel(panel: Residence, most_spans: int, names: dict[str, int], unit: TimeUnit) -> dict[str, Any]:
    caption, row = panel
    begin_s = min(job.arrival_s for job in row.jobs)
    # The end of the last job in each lane of each GPU.
    ends_s: dict[tuple[int, int], list[float]] = {}
    spans = []
    ordered = _first_jobs(row, most_spans)
    for job in ordered:
        kind = int(len({server for server, _ in job.gpus}) > 1)
        name = names.setdefault(_name(job), len(names))
        for gpu in job.gpus:
            lanes = ends_s.setdefault(gpu, [])
            lane = next((k for k, end_s in enumerate(lanes) if end_s <= job.start_s), len(lanes))
            lanes[lane : lane + 1] = [job.finish_s]
            spans.append((gpu, lane, name, kind, job.start_s - begin_s, job.finish_s - begin_s))
    stacked = [(gpu, lane) for gpu in sorted(ends_s) for lane in range(len(ends_s[gpu]))]
    places = {place: i for i, place in enumerate(stacked)}
    edges = np.array([span[4:] for span in spans]).reshape(-1, 2) * unit.per_second
    end = float(edges[:, 1].max(initial=0.0))
    starts, lengths = span_times(edges[:, 0], edges[:, 1], end)
    return {
        "caption": caption + ("" if len(ordered) == len(row.jobs) else f", the first {len(ordered)} jobs"),
        "policy": row.policy,
        "title": "",
        "end": end,
        "lanes": [
            {"process": f"server {server}", "name": f"GPU {gpu}" if lane == 0 else f"shared, {lane + 1}"}
            for (server, gpu), lane in places
        ],
        "lane": [places[gpu, lane] for gpu, lane, *_ in spans],
        "name": [span[2] for span in spans],
        "kind": [span[3] for span in spans],
        "start": starts,
        "length": lengths,
    }


def _name(job: JobRow) -> str:
    model = f", {job.model}" if job.model else ""
    num, most = len(job.gpus), len(job.gpus) if job.gpus_max is None else job.gpus_max
    chosen = "" if job.gpus_min is None else f" of {job.gpus_min} to {most}"
    return f"{job.id}{model}, {num}{chosen} GPU{'' if most == 1 else 's'}"


def _first_jobs(row: ClusterRow, most_spans: int) -> list[JobRow]:
    """The jobs by start, as many as can be drawn."""
    ordered = sorted(row.jobs, key=lambda job: job.start_s)
    drawn = np.cumsum([len(job.gpus) for job in ordered])
    return ordered[: max(1, int(np.searchsorted(drawn, most_spans, side="right")))]
