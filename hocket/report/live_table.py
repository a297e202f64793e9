"""A live cluster's jobs as a table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from hocket.cluster.live.manager_messages import JobStatus, Status
from hocket.columns import Column, terminal_table, text_column, written_column

_MOST_OVER = 10


def live_table(status: Status) -> Table:
    """Jobs that run, then those that queue, then the last ones that are over."""
    finished = [job for job in status.jobs if job.state == "finished"]
    parts = [
        f"{status.placement} / {status.policy}",
        f"{len(status.nodes)} nodes x {status.gpus_per_server} GPUs",
    ]
    if status.drained:
        parts.append(f"drained: {', '.join(status.drained)}")
    if status.silent:
        parts.append(f"no answer from {', '.join(status.silent)}")
    if status.average_jct_s is not None:
        parts.append(f"average JCT {status.average_jct_s:.2f} s of {len(finished)} finished")
    running = [job for job in status.jobs if job.state == "running"]
    queued = [job for job in status.jobs if job.state == "queued"]
    over = [job for job in status.jobs if job.state not in ("running", "queued")]
    over.sort(key=lambda job: job.finish_s or 0.0)
    columns = _columns([*running, *queued, *over[-_MOST_OVER:]], status)
    return terminal_table(columns, title=" · ".join(parts), spaced=True)


def _columns(jobs: Sequence[JobStatus], status: Status) -> list[Column]:
    began_s = [status.now_s if job.start_s is None else job.start_s for job in jobs]
    waited_s = [max(0.0, at_s - job.arrival_s) for at_s, job in zip(began_s, jobs, strict=True)]
    return [
        text_column("job", [job.id for job in jobs]),
        text_column("doing", [job.stage for job in jobs]),
        written_column("iteration", [f"{job.iteration}/{job.iterations}" for job in jobs]),
        text_column("GPUs", [_places(job, status) or f"({job.wanted} wanted)" for job in jobs]),
        written_column("waited [s]", [f"{time_s:.1f}" for time_s in waited_s]),
        written_column("JCT [s]", ["" if job.jct_s is None else f"{job.jct_s:.2f}" for job in jobs]),
        written_column("tries", [job.attempt for job in jobs]),
        text_column("", [job.why for job in jobs]),
    ]


def _places(job: JobStatus, status: Status) -> str:
    servers: dict[int, list[int]] = {}
    for server, gpu in job.gpus:
        servers.setdefault(server, []).append(gpu)
    return ", ".join(f"{status.nodes[s]}:{'+'.join(map(str, gpus))}" for s, gpus in servers.items())
