"""``bench train``: real training on an emulated cluster, or between the processes that torchrun started."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from hocket.bench.rank_process import LOST, environment_of_ranks
from hocket.bench.training.timed_models import check_name
from hocket.bench.training.training_request import TimedCells, TrainingRequest
from hocket.bench.training.training_statistics import TrainingCell, TrainingSummary, cell_of, summary_of
from hocket.ending import kill
from hocket.errors import HocketError
from hocket.lab import TSO_BYTES, Lab
from hocket.profiler import launched
from hocket.tuner.distribute import resolve_plan

_NODES = 2
_RATE_BPS = 250e6
# Memory that a step frees is kept for the next, as usual allocators do. Given back, it comes as new
# pages, and zeroing those takes up to a third of a step, now more, now less.
_ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
_ENDING_S = 60.0  # what starting and ending takes beyond the timing


class Benchmark(msgspec.Struct, frozen=True, kw_only=True):
    """A finished ``bench train``: request, place (``rate_bps``: of a lab's links), results and duration."""

    request: TrainingRequest
    workers: int
    rate_bps: float | None
    where: str
    torch: str
    cells: list[TrainingCell]
    summary: TrainingSummary
    wall_s: float


class Ended(NamedTuple):
    """The end of a rank; ``status`` is negative for one that a signal ended."""

    rank: int
    status: int
    duration_s: float


def bench_train(
    request: TrainingRequest, *, nodes: int | None = None, rate_bps: float | None = None
) -> Benchmark | None:
    """Time training side by side, as ``request`` says, and say how far it is from what is possible.

    Started by torchrun it runs between torchrun's processes, else on an emulated cluster of ``nodes`` (2)
    whose links take ``rate_bps`` (250e6). Progress goes to standard error. All processes have ended when this
    returns or raises.

    Returns
    -------
    The benchmark, on rank 0; None on torchrun's other ranks.

    Raises
    ------
    HocketError
        When the request makes no sense, a rank fails, or it takes longer than ``request.timeout_s``.
    """
    started_s = time.monotonic()
    for model in request.models:
        check_name(model)
    given, _ = resolve_plan(request.plan)
    if given is not None:
        raise HocketError(
            f"{request.plan} is a plan of one model; give auto or a policy, which plan for each"
        )
    place = launched()
    if place is not None and (nodes is not None or rate_bps is not None):
        raise HocketError("torchrun's processes have their own nodes and links; leave --nodes and --rate out")
    with tempfile.TemporaryDirectory(prefix="hocket-") as folder:
        command = [sys.executable, "-P", "-m", "hocket.bench.training.training_ranks"]
        command += [msgspec.json.encode(request).decode(), folder]
        environment = {**_ALLOCATOR, **environment_of_ranks(request.threads)}
        limit_s = request.timeout_s + _ENDING_S
        if place is None:
            rate_bps = rate_bps or _RATE_BPS
            # A ring's links serve one connection each, and large packets leave processors to computing.
            lab = Lab(nodes=nodes or _NODES, rate_bps=rate_bps, name="bench", tso_bytes=TSO_BYTES)
            # More threads than a node has processors are better off anywhere.
            apart = request.threads <= max(1, len(os.sched_getaffinity(0)) // len(lab.nodes))
            with lab:
                results = lab.run_all(
                    command, timeout_s=limit_s, env=environment, output="prefixed", own_processors=apart
                )
            ended = [Ended(result.node.index, result.returncode, result.duration_s) for result in results]
        else:
            ended = [Ended(place.rank, _run_here(command, environment, limit_s), 0.0)]
        check_ended(ended, Path(folder))
        if place is not None and place.rank > 0:
            return None
        answer = msgspec.json.decode(Path(folder, "answer.json").read_bytes(), type=TimedCells)
    cells = [cell_of(measured) for measured in answer.cells]
    return Benchmark(
        request=request,
        workers=answer.workers,
        rate_bps=rate_bps,
        where="an emulated cluster" if place is None else ", ".join(answer.hosts),
        torch=answer.torch,
        cells=cells,
        summary=summary_of(cells),
        wall_s=time.monotonic() - started_s,
    )


def _run_here(command: Sequence[str], environment: dict[str, str], limit_s: float) -> int:
    """Run torchrun's rank in a process of its own, which can be ended while it waits; its status."""
    process = subprocess.Popen(
        command,
        env={**os.environ, **environment},
        # A terminal's Ctrl-C is for us; we end it.
        start_new_session=True,
    )
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        raise HocketError(f"this rank had not ended after {limit_s:g} s; raise --timeout") from None
    finally:
        kill([process])


def check_ended(ended: Sequence[Ended], folder: Path, doing: str = "training") -> None:
    """Refuse ranks that failed, naming the one that the others failed with; it said why in ``folder``.

    Raises
    ------
    HocketError
        With the rank and what it said, or the signal that ended it.
    """
    failed = [one for one in ended if one.status]
    if not failed:
        return
    # A rank that lost another is not at fault, and the first to end was not ended for the others' sake.
    rank, status, _ = min(failed, key=lambda one: (one.status == LOST, one.duration_s))
    if status < 0:
        raise HocketError(f"rank {rank} was ended by signal {-status} while {doing}")
    said = folder / f"{rank}.failed"
    line = said.read_text() if said.exists() else f"status {status}; standard error says more"
    why = ": another rank is gone" if status == LOST else ""
    raise HocketError(f"rank {rank} failed while {doing}{why}: {line}")


def benchmark_document(benchmark: Benchmark) -> dict[str, Any]:
    """The one document of ``bench train --json``, as plain data; docs/formats.md tells its keys."""
    document: dict[str, Any] = msgspec.to_builtins(benchmark)
    return document
