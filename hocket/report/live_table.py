"""A live cluster's jobs as a table for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.table import Table

from hocket.cluster.live.manager_messages import JobStatus, Status
from hocket.columns import Column, terminal_table, text_column, written_column
from hocket.errors import one_line
from hocket.report.short_ids import short_ids
from hocket.text import UNDEFINED, counted, listed

_MOST_OVER = 10
_MOST_NAMED = 3


def live_table(status: Status, *, every: bool = False) -> Table:
    """Jobs that run, those that queue, then those that are over: the last ones, or ``every`` one."""
    finished = sum(job.state == "finished" for job in status.jobs)
    if status.num_finished is not None:
        finished = status.num_finished
    parts = [f"{status.placement} / {status.policy}", _machines(status)]
    if status.drained:
        parts.append(f"drained: {', '.join(status.drained)}")
    if status.silent:
        parts.append(f"no answer from {', '.join(status.silent)}")
    if status.average_jct_s is not None:
        parts.append(f"average JCT {status.average_jct_s:.2f} s of {finished} finished")
    running = [job for job in status.jobs if job.state == "running"]
    queued = [job for job in status.jobs if job.state == "queued"]
    over = [job for job in status.jobs if job.state not in ("running", "queued")]
    over.sort(key=lambda job: job.finish_s or 0.0)
    shown = over if every else over[-_MOST_OVER:]
    if left_out := status.left_out + len(over) - len(shown):
        parts.append(f"{left_out} more are over (--all)")
    jobs = [*running, *queued, *shown]
    short = short_ids(job.id for job in jobs)
    if any(len(cut) < len(full) for full, cut in short.items()):
        parts.append("long ids are cut (--json has them in full)")
    columns = _columns(jobs, status, short)
    return terminal_table(columns, title=" · ".join(parts), spaced=True)


def _machines(status: Status) -> str:
    if status.gpu_types:
        return _typed_machines(status)
    if not status.gpus_of_node:
        return f"{len(status.nodes)} nodes x {status.gpus_per_server} GPUs"
    nodes = zip(status.nodes, status.gpus_of_node, strict=True)
    return ", ".join(f"{name}: {counted(gpus, 'GPU')}" for name, gpus in nodes)


def _typed_machines(status: Status) -> str:
    """The nodes with their GPUs by type, those with the same ones together."""
    alike: dict[str, list[str]] = {}
    for name, kinds in zip(status.nodes, status.gpu_types, strict=True):
        text = " + ".join(f"{count} {kind}" for kind, count in Counter(kinds).items())
        alike.setdefault(text or "no GPU", []).append(name)
    return ", ".join(
        f"{' '.join(names) if len(names) <= _MOST_NAMED else f'{len(names)} nodes'}: {text}"
        for text, names in alike.items()
    )


def _columns(jobs: Sequence[JobStatus], status: Status, short: Mapping[str, str]) -> list[Column]:
    """The columns of a table of ``jobs``; ``short``: what is shown of long ids, in reasons as well."""
    return [
        text_column("job", [one_line(short.get(job.id, job.id)) for job in jobs]),
        text_column("doing", [job.stage for job in jobs]),
        written_column(
            "iteration", [f"{job.iteration}/{job.iterations}" if job.reports else UNDEFINED for job in jobs]
        ),
        text_column("GPUs", [_gpus(job, status) for job in jobs]),
        *([text_column("type", [_type(job) for job in jobs])] if status.gpu_types else []),
        written_column("waited [s]", [f"{_waited_s(job, status):.1f}" for job in jobs]),
        written_column("JCT [s]", ["" if job.jct_s is None else f"{job.jct_s:.2f}" for job in jobs]),
        written_column("tries", [job.attempt for job in jobs]),
        text_column("reason", [one_line(_with_short(job.reason or job.why, short)) for job in jobs]),
    ]


def _with_short(reason: str, short: Mapping[str, str]) -> str:
    """``reason`` with what is shown of the jobs that it names; of two, one may begin with the other's id."""
    for full in sorted(short, key=len, reverse=True):
        reason = reason.replace(full, short[full])
    return reason


def _type(job: JobStatus) -> str:
    """The type that a job has, and in brackets what it may have beside that."""
    others = listed([kind for kind in job.accepted_types if kind != job.gpu_type] or ["any"], "or")
    if not job.gpu_type:
        return f"({others})"
    return job.gpu_type if job.accepted_types == (job.gpu_type,) else f"{job.gpu_type} (or {others})"


def _waited_s(job: JobStatus, status: Status) -> float:
    if job.waited_s is not None:
        return job.waited_s
    return max(0.0, (status.now_s if job.start_s is None else job.start_s) - job.arrival_s)


def _gpus(job: JobStatus, status: Status) -> str:
    """The GPUs of a job; how many of how many, where that was chosen."""
    wanted = f"{job.wanted}" if job.wanted_min is None else f"{job.wanted_min} to {job.wanted}"
    if not job.gpus:
        return f"({wanted} wanted)"
    chosen = "" if job.wanted_min is None else f" ({len(job.gpus)} of {wanted})"
    return _places(job, status) + chosen


def _places(job: JobStatus, status: Status) -> str:
    servers: dict[int, list[str]] = {}
    for server, gpu in job.gpus:
        servers.setdefault(server, []).append(_device(server, gpu, status))
    return ", ".join(f"{status.nodes[s]}:{'+'.join(gpus)}" for s, gpus in servers.items())


def _device(server: int, gpu: int, status: Status) -> str:
    ids = status.devices[server] if status.devices else ()
    return ids[gpu] if gpu < len(ids) else str(gpu)
