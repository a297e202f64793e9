"""What transfers cost on a lab, as a cluster's manager sees them: Eq. 5 fitted to when they began and ended.

Jobs that do little else than transfer, several at once on the same two nodes. How long each transfer had how
many others beside it is known, so it does not matter that they do not overlap all the time.
"""

from __future__ import annotations

import contextlib
import functools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from hocket.cluster.live.manager_address import Contact, ask_manager, contact_of
from hocket.cluster.live.manager_messages import AskStatus, Submit
from hocket.cluster.live.runnable_jobs import LiveJob

ITERATIONS = 8
WARM = 2  # of each job; connections are new, and training has yet to take its plan
USUAL = 0.01  # relative; residuals beyond weigh less and less, as of a transfer that something held up

Floats = npt.NDArray[np.float64]
JobOf = Callable[[str, float, int], dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Eq. 5: what a transfer of M bytes takes with k - 1 others, a + (k b + (k - 1) eta) M.

    ``points``: of each measurement k, M, the mean of its seconds and of its residual: by how much more than
    M bytes the fit would have sent in that time, relative to M.
    """

    a_s: float
    b_s_per_byte: float
    eta_s_per_byte: float
    points: tuple[tuple[int, float, float, float], ...]


def measured(
    folder: Path,
    lab: str,
    job_of: JobOf,
    wanted: Sequence[tuple[int, float]],
    *,
    rate_bps: float,
    chunk_bytes: float | None = None,
) -> Cost:
    """The cost of transfers between two nodes of ``lab``; ``wanted``: how many at once, of how many bytes.

    job_of: name, bytes and iterations to a job; chunk_bytes: where the manager may stop them, each chunk has
    a startup then, and only one transfer goes at a time.
    """
    most = max(count for count, _ in wanted)
    policy = f"srsf-{most}" if chunk_bytes is None else "srpt"
    chunk = "64MB" if chunk_bytes is None else f"{chunk_bytes:.0f}B"
    times: list[Floats] = []
    with _manager(folder, lab, policy, chunk) as contact:
        for place, (count, size) in enumerate(wanted):
            rows = [job_of(f"p{place}-{k}", size, ITERATIONS) for k in range(count)]
            times.append(_at_levels(_spans(contact, rows), most))
    sizes = np.concatenate([np.full(len(of), size) for of, (_, size) in zip(times, wanted, strict=True)])
    chunks = np.ones(len(sizes)) if chunk_bytes is None else np.ceil(sizes / chunk_bytes)
    spent, levels, b_s = np.concatenate(times), np.arange(1, most + 1), 8 / rate_bps

    def residuals(a: float, b: float, eta: float) -> Floats:
        rate = 1 / (levels * b + (levels - 1) * eta)
        sent: Floats = spent @ rate * (1 - chunks * a / spent.sum(axis=1))
        return sent / sizes - 1

    # Those alone say a and b, whatever eta is; then the others say eta.
    alone = np.concatenate([np.full(len(of), k == 1) for of, (k, _) in zip(times, wanted, strict=True)])
    fit = functools.partial(least_squares, bounds=(0.0, np.inf), loss="soft_l1", f_scale=USUAL)
    found = fit(lambda x: residuals(x[0] * 1e-3, x[1] * b_s, 0.0)[alone], (1.0, 1.0))
    a_s, b, eta = float(found.x[0]) * 1e-3, float(found.x[1]) * b_s, 0.0
    if most > 1:
        found = fit(lambda x: residuals(a_s, b, x[0] * b_s)[~alone], (0.1,))
        eta = float(found.x[0]) * b_s
    left = np.split(residuals(a_s, b, eta), np.cumsum([len(of) for of in times])[:-1])
    points = [
        (count, size, float(of.sum(axis=1).mean()), float(residual.mean()))
        for (count, size), of, residual in zip(wanted, times, left, strict=True)
    ]
    return Cost(a_s=a_s, b_s_per_byte=b, eta_s_per_byte=eta, points=tuple(points))


@contextlib.contextmanager
def _manager(folder: Path, lab: str, policy: str, chunk: str) -> Iterator[Contact]:
    """A manager of the first two nodes of a lab, which have a slot each that all jobs share."""
    state = folder / f"measured-{policy}"
    command = [
        *(sys.executable, "-m", "hocket", "cluster", "serve", "--placement", "ls", "--policy", policy),
        *("--state", str(state), "--lab", lab, "--servers", "2", "--chunk", chunk, "--page", "off"),
        *("--restarts", "0"),
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as manager:
        assert manager.stderr is not None
        try:
            if not any(line.startswith("manager at") for line in manager.stderr):
                raise SystemExit("the manager did not start")
            yield contact_of(state)
        finally:
            manager.terminate()


def _spans(contact: Contact, rows: Sequence[dict[str, Any]]) -> list[Floats]:
    """When the transfers of each of these jobs, which run at once, began and ended, (n, 2) each."""
    jobs = tuple(msgspec.convert(row, LiveJob) for row in rows)
    ask_manager(contact, Submit(jobs))
    names = [job.id for job in jobs]
    while True:
        status = ask_manager(contact, AskStatus()).status
        assert status is not None
        mine = [job for job in status.jobs if job.id in names]
        if failed := [job for job in mine if job.state == "failed"]:
            raise SystemExit(f"{failed[0].id} failed: {failed[0].why}")
        if all(job.state == "finished" for job in mine):
            break
        time.sleep(0.5)
    found = [[(s.start_s, s.end_s) for s in status.transfers if s.job == name] for name in names]
    return [np.array(spans, np.float64) for spans in found]


def _at_levels(spans: Sequence[Floats], most: int) -> Floats:
    """For how long each transfer was one of k that were under way, (n, ``most``) for k = 1 to ``most``.

    spans: of each job; its first ones count for the others alone.
    """
    every = np.concatenate(spans)
    kept = np.concatenate([np.arange(len(of)) >= WARM for of in spans])
    edges = np.unique(every)
    middles = (edges[1:] + edges[:-1]) / 2
    under_way = (every[:, :1] < middles) & (middles < every[:, 1:])
    level, lasting = under_way.sum(axis=0), under_way * np.diff(edges)
    return np.stack([lasting[kept][:, level == k].sum(axis=1) for k in range(1, most + 1)], axis=1)
