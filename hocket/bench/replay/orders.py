"""``bench orders``: one step replayed in turns under several orders or batches, on the same links.

Source: TicTac, section 6 (throughput, 95th percentile and stragglers of enforced orders beside one drawn at
random); iBatch, section 5 (batches beside one and beside layer by layer).

Differs from the papers
-----------------------
* Steps are replayed: operations are slept through, transfers are real (:mod:`hocket.runtime.replay`).
* Each round takes the policies in another order, so a machine that slows down slows all of them, and a ratio
  is of two rows of one round.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hocket.bench.replay.accuracy_request import Configuration, ReplayedRow, Transport
from hocket.bench.replay.replay_request import ReplayRequest, check_list
from hocket.bench.replay.replayed_steps import (
    check_transports,
    cluster_of,
    longest_wait_s,
    measured_network,
    planned,
    predicted,
    replayed,
    scaled,
    written,
)
from hocket.bench.speed.timed_steps import load_target
from hocket.errors import HocketError, UnknownNameError
from hocket.network.file import NetworkFile
from hocket.planner import POLICIES, policies_of
from hocket.sim.lowering.lowered import Floats

_LAB = "orders"


class OrdersRequest(ReplayRequest, frozen=True, kw_only=True):
    """A request of ``bench orders``: ``steps`` under ``policies``, compared with the first of them.

    ``rhos``: what all workers' transfers take on the servers' links over what a worker computes; durations
    are scaled to it. There are ``rounds`` of each row.
    """

    steps: tuple[str, ...] = ("inception_v3", "resnet50_v1")
    policies: tuple[str, ...] = ("random", "tac")
    rhos: tuple[float, ...] = (0.6, 0.9, 1.2)
    workers: int = 4
    servers: int = 1
    transport: Transport = "gloo"
    transfer_s: float = 0.1
    num_steps: int = 12
    skip: int = 2
    rounds: int = 3

    def __post_init__(self) -> None:
        for policy in self.policies:
            if policy not in policies_of("ps"):
                raise UnknownNameError("policy for parameter servers", policy, policies_of("ps"))
        check_list("rho", self.rhos)
        self._check(self.rhos, self.workers, self.servers)
        if len(self.policies) < 2:
            raise HocketError(f"policy '{self.policies[0]}' alone compares with nothing; name two or more")
        if not 1 <= self.rounds <= 1000:
            raise HocketError(f"{self.rounds} rounds are not between 1 and 1000")


class MedianRange(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of several rounds: their median, the least and the largest."""

    median: float
    least: float
    largest: float


class OrderRow(msgspec.Struct, frozen=True, kw_only=True):
    """A policy on one step at one rho.

    ``rate``: examples a second over all workers. ``p95_s``: a step's 95th percentile over all rounds.
    ``straggler``: from the first worker's end of a step to the last one's, over the step; the mean.
    ``rate_ratio`` over the first policy's rate of the same round, ``p95_ratio`` and ``straggler_ratio`` the
    first policy's over this one's; ``predicted_ratio`` of the predicted rates. ``out_of_order``: of pulls the
    fraction that one of a later rank overtook; of the worst worker and round. ``stolen``: the share of
    processor time that other virtual machines had; of the worst round.
    """

    step: str
    rho: float
    policy: str
    rate: MedianRange
    p95_s: float
    straggler: float
    rate_ratio: MedianRange
    p95_ratio: float
    straggler_ratio: float | None
    predicted_ratio: float
    out_of_order: float
    stolen: float


class OrdersMeasured(msgspec.Struct, frozen=True, kw_only=True):
    """A finished ``bench orders``: its request, the measured network, a row for each step, rho and policy."""

    request: OrdersRequest
    network: NetworkFile
    rows: list[OrderRow]
    wall_s: float


def bench_orders(request: OrdersRequest) -> OrdersMeasured:
    """Measure a lab's links, plan for them, and replay every policy of ``request`` in turns.

    Progress goes to standard error. All processes have ended when this returns or raises.

    Raises
    ------
    HocketError
        When no lab can be made, a rank fails, or it takes too long.
    """
    started_s = time.monotonic()
    check_transports([request.transport])
    cells = [(step, rho) for step in request.steps for rho in request.rhos]
    asked = [configuration(request, step, policy) for step, _ in cells for policy in request.policies]
    cluster = cluster_of(asked, request.rate_bps, _LAB)  # refuses what is no lab
    # A worker's own transfers are that much of what all of them put on a server's link.
    alone = request.servers / request.workers
    graphs = [
        scaled(load_target(step), request.rate_bps, request.transfer_s, rho * alone) for step, rho in cells
    ]
    with tempfile.TemporaryDirectory(prefix="hocket-") as name:
        folder = Path(name)
        file = measured_network(request.rate_bps, request.timeout_s, folder, _LAB)
        rows = [
            [
                planned(configuration(request, step, policy), graphs[k], str(k), file, request.seed)
                for policy in request.policies
            ]
            for k, (step, _) in enumerate(cells)
        ]
        predictions = [
            [
                predicted(row, num_steps=request.num_steps, skip=request.skip, seed=request.seed)
                for row in cell
            ]
            for cell in rows
        ]
        turns = [
            (k, (p + turn) % len(request.policies), turn)
            for turn in range(request.rounds)
            for k in range(len(cells))
            for p in range(len(request.policies))
        ]
        answers = replayed(
            [
                written(rows[k][p], k * len(request.policies) + p, request.seed + turn, folder)
                for k, p, turn in turns
            ],
            cluster,
            num_steps=request.num_steps,
            wait_s=longest_wait_s([each for cell in predictions for each in cell], request.num_steps),
            timeout_s=request.timeout_s,
            folder=folder,
        )
    replays: dict[tuple[int, int], list[ReplayedRow]] = {}
    for (k, p, _), answer in zip(turns, answers, strict=True):
        replays.setdefault((k, p), []).append(answer)
    found = [
        order_row(
            cells[k],
            request.policies[p],
            rows[k][p].graph.batch_size * request.workers,
            (replays[k, p], replays[k, 0]),
            predictions[k][p].throughput / predictions[k][0].throughput,
            request.skip,
        )
        for k in range(len(cells))
        for p in range(len(request.policies))
    ]
    return OrdersMeasured(request=request, network=file, rows=found, wall_s=time.monotonic() - started_s)


def configuration(request: OrdersRequest, step: str, policy: str) -> Configuration:
    """A synchronous row of ``request``."""
    return Configuration(
        step=step,
        policy=policy,
        architecture=POLICIES[policy].architecture,
        mode="sync",
        workers=request.workers,
        servers=request.servers,
        transport=request.transport,
    )


def order_row(
    cell: tuple[str, float],
    policy: str,
    examples: int,
    rounds: tuple[list[ReplayedRow], list[ReplayedRow]],
    predicted_ratio: float,
    skip: int,
) -> OrderRow:
    """The row of ``policy``, whose steps take ``examples``; ``rounds``: its own and the first policy's."""
    own, first = ([steps_of(row, skip) for row in each] for each in rounds)
    rates, first_rates = ([examples / float(seconds.mean()) for seconds, _ in each] for each in (own, first))
    p95, first_p95 = (
        float(np.percentile(np.concatenate([seconds for seconds, _ in each]), 95)) for each in (own, first)
    )
    straggler, first_straggler = (
        float(np.concatenate([spreads / seconds for seconds, spreads in each]).mean())
        for each in (own, first)
    )
    return OrderRow(
        step=cell[0],
        rho=cell[1],
        policy=policy,
        rate=_spread(rates),
        p95_s=p95,
        straggler=straggler,
        rate_ratio=_spread([mine / theirs for mine, theirs in zip(rates, first_rates, strict=True)]),
        p95_ratio=first_p95 / p95,
        straggler_ratio=first_straggler / straggler if straggler > 0 else None,
        predicted_ratio=predicted_ratio,
        out_of_order=max(row.out_of_order for row in rounds[0]),
        stolen=max(row.stolen for row in rounds[0]),
    )


def steps_of(row: ReplayedRow, skip: int) -> tuple[Floats, Floats]:
    """Of each step that counts, (s,): seconds between the last worker's end and that of the step before, and
    between its first worker's end and its last one's.
    """
    (ends_s,) = np.array(row.ends_s)
    last_s = ends_s.max(axis=0)
    return np.diff(last_s)[skip - 1 :], (last_s - ends_s.min(axis=0))[skip:]


def _spread(figures: list[float]) -> MedianRange:
    return MedianRange(median=float(np.median(figures)), least=min(figures), largest=max(figures))


def orders_document(measured: OrdersMeasured) -> dict[str, Any]:
    """The one document of ``bench orders --json``, as plain data; docs/formats.md tells its keys."""
    document: dict[str, Any] = msgspec.to_builtins(measured)
    return document
