"""``bench predict``: steps replayed on an emulated cluster beside what the predictor says of each.

A prediction knows the step, as one worker's profile has it, and what ``hocket network measure`` said of the
same links. Nothing is fitted to what was replayed.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hocket.bench.accuracy_figures import Group, Row, groups_of, measured_rate, row_of
from hocket.bench.accuracy_request import (
    Answer,
    Configuration,
    Orders,
    Replayed,
    Request,
    configurations,
)
from hocket.bench.graphs import load_target
from hocket.bench.process import environment_of_ranks
from hocket.bench.train import Ended, check_ended
from hocket.errors import HocketError
from hocket.graph import StepGraph, StepRows, load_plan, save_plan, save_step, step_from_rows
from hocket.graph.io import step_document
from hocket.graph.updates import is_update
from hocket.lab import Lab
from hocket.network import Network, load_network
from hocket.network.file import NetworkFile
from hocket.planner import POLICIES, plan
from hocket.predictor import Machines, Prediction, predict

_FLOAT_BYTES = 4
_SEEDS = 10
_MEASURE = ("--largest", "16MB", "--concurrent", "1")
_SILENT_S = 120.0  # a rank that hears nothing for so long has lost the others


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked, the network that was measured, a row for each configuration, and their errors."""

    request: Request
    network: NetworkFile
    rows: list[Row]
    groups: list[Group]
    wall_s: float


def bench_predict(request: Request) -> Accuracy:
    """Measure a lab's links, predict every configuration of ``request``, and replay it there.

    Progress goes to standard error. All processes have ended when this returns or raises.

    Raises
    ------
    HocketError
        When the request makes no sense, no lab can be made, a rank fails, or it takes too long.
    """
    started_s = time.monotonic()
    asked = configurations(request)
    most_servers = max(configuration.servers for configuration in asked)
    nodes = max(2, most_servers + max(configuration.workers for configuration in asked))
    cluster = Lab(nodes=nodes, rate_bps=request.rate_bps, name="predict")  # refuses what is no lab
    graphs = {
        step: scaled(load_target(step), request.rate_bps, request.transfer_s, request.rho)
        for step in request.steps
    }
    with tempfile.TemporaryDirectory(prefix="hocket-") as name:
        folder = Path(name)
        file = _measured(request, folder)
        # Gloo receives into the parameters themselves: there is nothing to parse.
        network = replace(file.network(), parse_s_per_byte=0.0, parse_s=0.0)
        rows = [_written(asked[k], k, graphs, network, request, folder) for k in range(len(asked))]
        predictions = [predicted(row, graphs, network, request, folder) for row in rows]
        orders = Orders(
            rows=rows,
            most_servers=most_servers,
            num_steps=request.num_steps,
            seed=request.seed,
            wait_s=_SILENT_S,
        )
        (folder / "orders.json").write_bytes(msgspec.json.encode(orders))
        command = [sys.executable, "-P", "-m", "hocket.bench.accuracy_ranks", str(folder)]
        with cluster:
            results = cluster.run_all(
                command, timeout_s=request.timeout_s, env=environment_of_ranks(1), output="prefixed"
            )
        ended = [Ended(result.node.index, result.returncode, result.duration_s) for result in results]
        check_ended(ended, folder, "replaying")
        answer = msgspec.json.decode((folder / "answer.json").read_bytes(), type=Answer)
    found = [
        row_of(
            configuration,
            prediction,
            graphs[configuration.step].batch_size * measured_rate(replayed.ends_s, request.skip),
            replayed.out_of_order,
        )
        for configuration, prediction, replayed in zip(asked, predictions, answer.rows, strict=True)
    ]
    return Accuracy(
        request=request,
        network=file,
        rows=found,
        groups=groups_of(found),
        wall_s=time.monotonic() - started_s,
    )


def scaled(graph: StepGraph, rate_bps: float, transfer_s: float, rho: float) -> StepGraph:
    """``graph`` without updates, as large and as long as the request has it.

    All parameters together take ``transfer_s`` at ``rate_bps``; they are whole floats, at least one each. The
    transfers of a step, pulls and pushes, take ``rho`` times as long as its operations on the average.

    Raises
    ------
    HocketError
        For a step without bytes, or without time.
    """
    rows = msgspec.convert(step_document(graph), StepRows)
    update = is_update(graph)
    kept = [row for row, left_out in zip(rows.operations, update.tolist(), strict=True) if not left_out]
    compute_s = float(graph.durations_s[~update].sum(axis=0).mean())
    num_bytes = int(graph.parameter_bytes.sum())
    if num_bytes == 0 or compute_s == 0:
        raise HocketError(f"step '{graph.model}' transfers or computes nothing; there is nothing to replay")
    smaller = transfer_s * rate_bps / 8 / num_bytes
    floats = np.maximum(1, np.round(graph.parameter_bytes * smaller / _FLOAT_BYTES)).astype(int)
    travelling = _FLOAT_BYTES * int(floats.sum() + floats[graph.produced].sum())
    faster = travelling * 8 / rate_bps / rho / compute_s
    return step_from_rows(
        msgspec.structs.replace(
            rows,
            parameters=[
                msgspec.structs.replace(
                    row, shape=[int(size)], dtype="float32", bytes=_FLOAT_BYTES * int(size)
                )
                for row, size in zip(rows.parameters, floats, strict=True)
            ],
            operations=[
                msgspec.structs.replace(row, duration_s=[faster * s for s in _seconds(row.duration_s)])
                for row in kept
            ],
        )
    )


def _seconds(duration_s: float | list[float]) -> list[float]:
    return duration_s if isinstance(duration_s, list) else [duration_s]


def _measured(request: Request, folder: Path) -> NetworkFile:
    """The links of a lab of two nodes with the request's rate."""
    path = folder / "network.json"
    command = [sys.executable, "-P", "-m", "hocket", "network", "measure", "-o", str(path), *_MEASURE]
    command += ["--timeout", f"{min(request.timeout_s, 86_400.0):g}s"]
    with Lab(nodes=2, rate_bps=request.rate_bps, name="predict") as lab:
        ranks = lab.run_all(command, timeout_s=request.timeout_s, env=environment_of_ranks(1))
    failed = [rank for rank in ranks if rank.returncode]
    if failed:
        said = failed[0].stderr.strip().splitlines()[-1:]
        raise HocketError(f"measuring the lab's network failed on {failed[0].node.name}: {''.join(said)}")
    return load_network(path)


def _written(
    asked: Configuration,
    number: int,
    graphs: dict[str, StepGraph],
    network: Network,
    request: Request,
    folder: Path,
) -> Replayed:
    """Plan ``asked`` and leave step and plan in ``folder``."""
    graph = graphs[asked.step]
    sized = replace(network, num_workers=asked.workers, num_servers=max(1, asked.servers))
    made = plan(graph, sized, asked.policy, seed=request.seed)
    names = f"step-{request.steps.index(asked.step)}.json", f"plan-{number}.json"
    save_step(graph, folder / names[0])
    save_plan(made, folder / names[1])
    return Replayed(
        configuration=asked,
        graph=names[0],
        plan=names[1],
        drawn_anew=POLICIES[asked.policy].drawn_anew,
    )


def predicted(
    row: Replayed, graphs: dict[str, StepGraph], network: Network, request: Request, folder: Path
) -> Prediction:
    """What the predictor says of ``row``: whole messages in the plan's order, workers that begin apart.

    As many steps as are replayed: asynchronous workers come closer to each other for hundreds of them.
    """
    asked = row.configuration
    given: dict[str, Any] = (
        {"policy": asked.policy} if row.drawn_anew else {"plan": load_plan(folder / row.plan)}
    )
    (prediction,) = predict(
        graphs[asked.step],
        network,
        workers=[asked.workers],
        servers=[asked.servers] if asked.servers else None,
        mode=asked.mode,
        window_bytes=0.0,
        machines=Machines(spread=asked.mode == "async"),
        steps=request.num_steps,
        skip=request.skip,
        repeats=_SEEDS,
        seed=request.seed,
        **given,
    )
    return prediction


def accuracy_document(accuracy: Accuracy) -> dict[str, Any]:
    """The one document of ``bench predict --json``, as plain data; docs/formats.md tells its keys."""
    document: dict[str, Any] = msgspec.to_builtins(accuracy)
    return document
