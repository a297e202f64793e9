"""``bench shard``: fully sharded training on an emulated cluster, plain FSDP2 and hocket's plan in turn."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import msgspec

from hocket.bench.rank_process import environment_of_ranks
from hocket.bench.sharding.sharding_request import COMPUTE, HOCKET, PLAIN, ShardingRequest, TimedSharding
from hocket.bench.training.timed_models import check_name
from hocket.bench.training.train import Ended, check_ended
from hocket.bench.training.training_statistics import Quartiles, spread
from hocket.lab import TSO_BYTES, Lab
from hocket.network.file import Line

_ENDING_S = 60.0


class ShardingRow(msgspec.Struct, frozen=True, kw_only=True):
    """One variant: seconds a step, ``rounds_s`` one figure a round, and the share of time that others had.

    ``speedup``: in each round, the time of plain FSDP2 over this one's; null for computing alone.
    ``predicted_s``: a step by the simulator, ``difference``: that over the median of what was measured, less
    1; ``full_bytes``: the most bytes of full parameters that rank 0 held at once, or that were on their way
    to it, ``predicted_full_bytes``: the same by the simulator; null where there is none.
    """

    variant: str
    step_s: Quartiles
    predicted_s: float | None
    difference: float | None
    full_bytes: int | None
    predicted_full_bytes: int | None
    speedup: Quartiles | None
    rounds_s: list[float]
    stolen: float


class ShardingBenchmark(msgspec.Struct, frozen=True, kw_only=True):
    """A finished ``bench shard``: request, place (``rate_bps``: of the lab's links) and results.

    ``held_bytes``: the most that rank 0 holds beside its shards under hocket's plan, full parameters and
    buffers of transfers; ``predicted_held_bytes``: by the simulator, with gradients while they are copied;
    ``limit_bytes``: what "auto" allows, null for plans that are given; ``collectives``: what each kind was
    measured to cost, which forecasts go by.
    """

    request: ShardingRequest
    nodes: int
    rate_bps: float
    torch: str
    parameter_bytes: int
    plan: str
    units: int
    explained: list[str]
    held_bytes: int
    predicted_held_bytes: int | None
    limit_bytes: float | None
    collectives: dict[str, Line]
    rows: list[ShardingRow]
    wall_s: float


def bench_shard(request: ShardingRequest, *, nodes: int, rate_bps: float) -> ShardingBenchmark:
    """Time fully sharded training side by side, as ``request`` says, on an emulated cluster.

    Progress goes to standard error. All processes have ended when this returns or raises.

    Raises
    ------
    HocketError
        When the request makes no sense, a rank fails, or it takes longer than ``request.timeout_s``.
    """
    started_s = time.monotonic()
    check_name(request.model)
    with tempfile.TemporaryDirectory(prefix="hocket-") as folder:
        command = [sys.executable, "-P", "-m", "hocket.bench.sharding.sharding_ranks"]
        command += [msgspec.json.encode(request).decode(), folder]
        apart = request.threads <= max(1, len(os.sched_getaffinity(0)) // nodes)
        with Lab(nodes=nodes, rate_bps=rate_bps, name="shard", tso_bytes=TSO_BYTES) as lab:
            results = lab.run_all(
                command,
                timeout_s=request.timeout_s + _ENDING_S,
                env=environment_of_ranks(request.threads),
                output="prefixed",
                own_processors=apart,
            )
        check_ended([Ended(r.node.index, r.returncode, r.duration_s) for r in results], Path(folder))
        timed = msgspec.json.decode(Path(folder, "answer.json").read_bytes(), type=TimedSharding)
    return ShardingBenchmark(
        request=request,
        nodes=nodes,
        rate_bps=rate_bps,
        torch=timed.torch,
        parameter_bytes=timed.parameter_bytes,
        plan=timed.plan,
        units=timed.units,
        explained=timed.explained,
        held_bytes=timed.held_bytes,
        predicted_held_bytes=timed.forecasts[HOCKET].held_bytes if HOCKET in timed.forecasts else None,
        limit_bytes=timed.limit_bytes,
        collectives=timed.collectives,
        rows=rows_of(timed),
        wall_s=time.monotonic() - started_s,
    )


def rows_of(timed: TimedSharding) -> list[ShardingRow]:
    """A row for each variant, compared with plain FSDP2 round by round, and with its forecast."""
    plain = timed.steps_s[PLAIN]
    rows = []
    for name, rounds_s in timed.steps_s.items():
        forecast, step_s = timed.forecasts.get(name), spread(rounds_s)
        gains = [before / own for before, own in zip(plain, rounds_s, strict=True)]
        rows.append(
            ShardingRow(
                variant=name,
                step_s=step_s,
                predicted_s=None if forecast is None else forecast.step_s,
                difference=None if forecast is None else forecast.step_s / step_s.median - 1,
                full_bytes=timed.full_bytes.get(name),
                predicted_full_bytes=None if forecast is None else forecast.full_bytes,
                speedup=None if name == COMPUTE else spread(gains),
                rounds_s=rounds_s,
                stolen=median(timed.stolen[name]),
            )
        )
    return rows
