"""``bench predict``: steps replayed on an emulated cluster beside what the predictor says of each."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from hocket.bench.replay.accuracy_request import AccuracyRequest, configurations
from hocket.bench.replay.accuracy_statistics import (
    AccuracyGroup,
    AccuracyRow,
    groups_of,
    measured_rate,
    row_of,
)
from hocket.bench.replay.async_rounds import drawn_begins_s
from hocket.bench.replay.replayed_steps import (
    PlannedReplay,
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
from hocket.network.file import NetworkFile

_LAB = "predict"


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    """A finished ``bench predict``: its request, the measured network, a row a configuration, the errors."""

    request: AccuracyRequest
    network: NetworkFile
    rows: list[AccuracyRow]
    groups: list[AccuracyGroup]
    wall_s: float


def bench_predict(request: AccuracyRequest) -> Accuracy:
    """Measure a lab's links, predict every configuration of ``request``, and replay it there.

    Progress goes to standard error. All processes have ended when this returns or raises.

    Raises
    ------
    HocketError
        When the request makes no sense, no lab can be made, a rank fails, or it takes too long.
    """
    started_s = time.monotonic()
    check_transports(request.transports)
    asked = configurations(request)
    cluster = cluster_of(asked, request.rate_bps, _LAB)  # refuses what is no lab
    graphs = {
        step: scaled(load_target(step), request.rate_bps, request.transfer_s, request.rho)
        for step in request.steps
    }
    with tempfile.TemporaryDirectory(prefix="hocket-") as name:
        folder = Path(name)
        file = measured_network(request.rate_bps, request.timeout_s, folder, _LAB)
        rows = [
            planned(each, graphs[each.step], str(request.steps.index(each.step)), file, request.seed)
            for each in asked
        ]
        begins_s = [_begins_s(request, row) for row in rows]
        predictions = [
            predicted(
                row,
                num_steps=request.num_steps,
                skip=request.skip,
                seed=request.seed,
                window_bytes=request.window_bytes,
                begins_s=each_s,
            )
            for row, each_s in zip(rows, begins_s, strict=True)
        ]
        answers = replayed(
            [written(row, k, request.seed, folder, begins_s[k]) for k, row in enumerate(rows)],
            cluster,
            num_steps=request.num_steps,
            wait_s=longest_wait_s(predictions, request.num_steps),
            timeout_s=request.timeout_s,
            folder=folder,
            window_bytes=request.window_bytes,
        )
    found = [
        row_of(
            row.configuration,
            prediction,
            [row.graph.batch_size * measured_rate(ends_s, request.skip) for ends_s in answer.ends_s],
            out_of_order=answer.out_of_order,
            stolen=answer.stolen,
        )
        for row, prediction, answer in zip(rows, predictions, answers, strict=True)
    ]
    return Accuracy(
        request=request,
        network=file,
        rows=found,
        groups=groups_of(found),
        wall_s=time.monotonic() - started_s,
    )


def _begins_s(request: AccuracyRequest, row: PlannedReplay) -> list[list[float]] | None:
    """Of each round, when the workers of an asynchronous row begin; None where they begin together."""
    asked = row.configuration
    if asked.mode == "sync":
        return None
    return drawn_begins_s(
        row.graph,
        workers=asked.workers,
        rounds=request.rounds,
        transfer_s=request.transfer_s,
        rho=request.rho,
        seed=request.seed,
    )


def accuracy_document(accuracy: Accuracy) -> dict[str, Any]:
    """The one document of ``bench predict --json``, as plain data; docs/formats.md tells its keys."""
    document: dict[str, Any] = msgspec.to_builtins(accuracy)
    return document
