"""A live cluster's jobs as a table for the terminal."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from hocket.cluster.live.manager_messages import JobStatus, Status

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
    table = Table(title=Text(" · ".join(parts)), box=None)
    for heading, justify in (
        ("job", "left"),
        ("doing", "left"),
        ("iteration", "right"),
        ("GPUs", "left"),
        ("waited [s]", "right"),
        ("JCT [s]", "right"),
        ("tries", "right"),
        ("", "left"),
    ):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    running = [job for job in status.jobs if job.state == "running"]
    queued = [job for job in status.jobs if job.state == "queued"]
    over = [job for job in status.jobs if job.state not in ("running", "queued")]
    over.sort(key=lambda job: job.finish_s or 0.0)
    for job in (*running, *queued, *over[-_MOST_OVER:]):
        table.add_row(*map(Text, _cells(job, status)))  # brackets in names are no markup
    return table


def _cells(job: JobStatus, status: Status) -> tuple[str, ...]:
    servers: dict[int, list[int]] = {}
    for server, gpu in job.gpus:
        servers.setdefault(server, []).append(gpu)
    places = ", ".join(f"{status.nodes[s]}:{'+'.join(map(str, gpus))}" for s, gpus in servers.items())
    began_s = status.now_s if job.start_s is None else job.start_s
    return (
        job.id,
        job.stage,
        f"{job.iteration}/{job.iterations}",
        places or f"({job.wanted} wanted)",
        f"{max(0.0, began_s - job.arrival_s):.1f}",
        "" if job.jct_s is None else f"{job.jct_s:.2f}",
        str(job.attempt),
        job.why,
    )
