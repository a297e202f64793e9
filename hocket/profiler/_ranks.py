"""Processes that measure: started, watched, and ended whatever happens."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from hocket.ending import kill
from hocket.errors import HocketError
from hocket.profiler._exchange import ExchangeRequest, MeasuredExchanges

_POLL_S = 0.02
_CODE = "from hocket.profiler._exchange import main; main()"


def run_ranks(
    requests: Sequence[ExchangeRequest], environment: Mapping[str, str], deadline_s: float
) -> MeasuredExchanges | None:
    """Run these ranks until all have ended; what rank 0 measured, or None where it is not among them.

    ``deadline_s`` is on ``time.monotonic``'s clock.

    Raises
    ------
    HocketError
        When a rank fails, when the ranks do not all meet in time, or when measuring takes too long.
    """
    with _started(requests, environment) as processes:
        statuses: list[int | None] = [None]
        while None in statuses and not any(statuses):
            if time.monotonic() > deadline_s:
                raise HocketError(_late(requests[0]))
            time.sleep(_POLL_S)
            statuses = [process.poll() for process in processes]
    failed = [(status, request) for status, request in zip(statuses, requests, strict=True) if status]
    if failed:
        # Where one was killed (a negative status), the others only say that it is gone.
        raise HocketError(_failure(*min(failed, key=lambda status: (status[0] > 0, status[1].rank))))
    answer = Path(requests[0].folder) / "0.json"
    return msgspec.json.decode(answer.read_bytes(), type=MeasuredExchanges) if answer.exists() else None


@contextlib.contextmanager
def _started(
    requests: Sequence[ExchangeRequest], environment: Mapping[str, str]
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """A process for each request, killed at the end: none of them holds anything worth keeping."""
    processes: list[subprocess.Popen[bytes]] = []
    # They import what this process imports, from where it does; -P: not from the working directory.
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    try:
        for request in requests:
            with open(Path(request.folder) / f"{request.rank}.log", "wb") as log:
                processes.append(
                    subprocess.Popen(
                        [sys.executable, "-P", "-c", _CODE, msgspec.json.encode(request).decode()],
                        env={**environment, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
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


def _late(request: ExchangeRequest) -> str:
    if not (Path(request.folder) / f"{request.rank}.joined").exists():
        return (
            f"not all {request.workers} workers met within {request.timeout_s:g} s;"
            f" start them all, let them reach each other{_interface(request)}, or raise --timeout"
        )
    return (
        f"measuring took longer than {request.timeout_s:g} s; raise --timeout or lower --largest or --repeats"
    )


def _failure(status: int, request: ExchangeRequest) -> str:
    if status < 0:
        return f"worker {request.rank} was ended by signal {-status} while measuring"
    failed = Path(request.folder) / f"{request.rank}.failed"
    log = Path(request.folder) / f"{request.rank}.log"
    said = (failed if failed.exists() else log).read_text(errors="replace").strip().splitlines()
    reason = said[-1] if said else f"status {status}"
    if "remote=[127." in reason and (
        fix := _interface(request)
    ):  # gloo's choice where a name is the loopback
        reason = f"the other worker is at its own loopback{fix}: {reason}"
    return f"worker {request.rank} failed while measuring: {reason}"


def _interface(request: ExchangeRequest) -> str:
    """The way to choose the interface, where ranks may be on several machines."""
    return " (GLOO_SOCKET_IFNAME names the interface)" if request.init_method == "env://" else ""
