"""Processes that measure: started, watched, and ended whatever happens."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from hocket.ending import kill
from hocket.errors import HocketError

_POLL_S = 0.02


class RankRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The orders of one rank.

    ``timeout_s``: for how long all of it may go on; ``deadline_s``: when it has to be over, on this machine's
    ``time.monotonic``. The rank leaves its answer in ``folder``: RANK.joined, then RANK.json or a line in
    RANK.failed.
    """

    rank: int
    workers: int
    init_method: str
    timeout_s: float
    deadline_s: float
    folder: str


class RankWork(NamedTuple):
    """The work of ranks: the module whose ``main`` serves a request, and what messages say of it.

    ``shorter``: what makes it take less time, beside a longer --timeout.
    """

    module: str
    doing: str
    shorter: str = ""


def run_ranks(
    work: RankWork, requests: Sequence[RankRequest], environment: Mapping[str, str], deadline_s: float
) -> bytes | None:
    """Run these ranks until all have ended; rank 0's answer, or None where it is not among them.

    ``deadline_s`` is on ``time.monotonic``'s clock.

    Raises
    ------
    HocketError
        When a rank fails, when the ranks do not all meet in time, or when the work takes too long.
    """
    with _started(work, requests, environment) as processes:
        statuses: list[int | None] = [None]
        while None in statuses and not any(statuses):
            if time.monotonic() > deadline_s:
                raise HocketError(_late(work, requests[0]))
            time.sleep(_POLL_S)
            statuses = [process.poll() for process in processes]
    failed = [(status, request) for status, request in zip(statuses, requests, strict=True) if status]
    if failed:
        # Where one was killed (a negative status), the others only say that it is gone.
        raise HocketError(_failure(work, *min(failed, key=lambda status: (status[0] > 0, status[1].rank))))
    answer = Path(requests[0].folder) / "0.json"
    return answer.read_bytes() if answer.exists() else None


@contextlib.contextmanager
def _started(
    work: RankWork, requests: Sequence[RankRequest], environment: Mapping[str, str]
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """A process for each request, killed at the end: none of them holds anything worth keeping."""
    processes: list[subprocess.Popen[bytes]] = []
    # They import what this process imports, from where it does; -P: not from the working directory.
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    code = f"from {work.module} import main; main()"
    try:
        for request in requests:
            with open(Path(request.folder) / f"{request.rank}.log", "wb") as log:
                processes.append(
                    subprocess.Popen(
                        [sys.executable, "-P", "-c", code, msgspec.json.encode(request).decode()],
                        env={**environment, "PYTHONPATH": path},
                        # Never written to: its end tells the rank that we are gone.
                        stdin=subprocess.PIPE,
                        stdout=log,
                        stderr=log,
                        # A terminal's Ctrl-C is for us; we end them.
                        start_new_session=True,
                    )
                )
        yield processes
    finally:
        kill(processes)
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()


def _late(work: RankWork, request: RankRequest) -> str:
    if not (Path(request.folder) / f"{request.rank}.joined").exists():
        return (
            f"not all {request.workers} workers met within {request.timeout_s:g} s;"
            f" start them all, let them reach each other{_interface(request)}, or raise --timeout"
        )
    shorter = f" or {work.shorter}" if work.shorter else ""
    more_s = 3 * request.timeout_s
    return f"{work.doing} took longer than {request.timeout_s:g} s; give --timeout {more_s:g}s{shorter}"


def _failure(work: RankWork, status: int, request: RankRequest) -> str:
    if status < 0:
        return f"worker {request.rank} was ended by signal {-status} while {work.doing}"
    failed = Path(request.folder) / f"{request.rank}.failed"
    log = Path(request.folder) / f"{request.rank}.log"
    said = (failed if failed.exists() else log).read_text(errors="replace").strip().splitlines()
    reason = said[-1] if said else f"status {status}"
    if "remote=[127." in reason and (
        fix := _interface(request)
    ):  # gloo's choice where a name is the loopback
        reason = f"the other worker is at its own loopback{fix}: {reason}"
    return f"worker {request.rank} failed while {work.doing}: {reason}"


def _interface(request: RankRequest) -> str:
    """The way to choose the interface, where ranks may be on several machines."""
    return " (GLOO_SOCKET_IFNAME names the interface)" if request.init_method == "env://" else ""
