"""Steps replayed on an emulated cluster: scaled to its links, planned for them as measured, predicted.

A prediction knows the step, as one worker's profile has it, and what ``hocket network measure`` said of the
same links. Nothing is fitted to what was replayed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hocket.bench.rank_process import environment_of_ranks
from hocket.bench.replay.accuracy_request import (
    Configuration,
    Orders,
    Replayed,
    ReplayedRow,
    ReplayedRows,
    Transport,
)
from hocket.bench.replay.async_rounds import rate_of_rounds
from hocket.bench.training.train import Ended, check_ended
from hocket.errors import HocketError
from hocket.graph import Plan, StepGraph, StepRows, save_plan, save_step, step_from_rows
from hocket.graph.io import step_document
from hocket.graph.update_operations import is_update
from hocket.lab import Lab
from hocket.launch.job import MOST_WINDOW_BYTES
from hocket.network import Network, load_network
from hocket.network.file import NetworkFile
from hocket.planner import POLICIES, plan
from hocket.predictor import Prediction, predict
from hocket.predictor.prediction_request import Request
from hocket.predictor.prepared import WINDOW_BYTES

_FLOAT_BYTES = 4
_SEEDS = 10
_MEASURE = ("--largest", "16MB", "--concurrent", "1")
_SILENT_S = 120.0  # beyond what its row may take: who hears nothing for longer has lost the others
_SLOWER = 4.0  # than predicted, that a row may be


def check_transports(transports: Sequence[Transport]) -> None:
    """Refuse what is not installed."""
    if "grpc" in transports and find_spec("grpc") is None:
        raise HocketError("transport 'grpc' needs grpcio; pip install '.[grpc]' in a clone of Hocket")


def cluster_of(asked: Sequence[Configuration], rate_bps: float, name: str) -> Lab:
    """A lab of that name with a node for each server and worker of the largest configuration."""
    nodes = most_servers(asked) + max(configuration.workers for configuration in asked)
    return Lab(nodes=max(2, nodes), rate_bps=rate_bps, name=name)


def most_servers(asked: Sequence[Configuration]) -> int:
    """The servers of the configuration with most of them."""
    return max(configuration.servers for configuration in asked)


def scaled(graph: StepGraph, rate_bps: float, transfer_s: float, rho: float) -> StepGraph:
    """``graph`` without updates, as large and as long as is asked for.

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


def measured_network(rate_bps: float, timeout_s: float, folder: Path, name: str) -> NetworkFile:
    """The links of a lab ``name`` of two nodes with that rate, as ``hocket network measure`` has them."""
    path = folder / "network.json"
    command = [sys.executable, "-P", "-m", "hocket", "network", "measure", "-o", str(path), *_MEASURE]
    command += ["--timeout", f"{min(timeout_s, 86_400.0):g}s"]
    with Lab(nodes=2, rate_bps=rate_bps, name=name) as lab:
        ranks = lab.run_all(command, timeout_s=timeout_s, env=environment_of_ranks(1))
    failed = [rank for rank in ranks if rank.returncode]
    if failed:
        said = failed[0].stderr.strip().splitlines()[-1:]
        raise HocketError(f"measuring the lab's network failed on {failed[0].node.name}: {''.join(said)}")
    return load_network(path)


def network_of(file: NetworkFile, transport: Transport) -> Network:
    """The measured network with the costs of transfers by ``transport``."""
    if transport == "grpc":
        return file.network()
    # Gloo receives into the parameters themselves: there is nothing to parse.
    return replace(file.network(), parse_s_per_byte=0.0, parse_s=0.0)


@dataclass(frozen=True, eq=False, kw_only=True)
class PlannedReplay:
    """A configuration of ``graph``, planned for ``network``; ``name``: of the graph's file."""

    configuration: Configuration
    graph: StepGraph
    plan: Plan
    network: Network
    name: str

    @property
    def drawn_anew(self) -> bool:
        """True if pulls go in a new random order each step."""
        return POLICIES[self.configuration.policy].drawn_anew


def planned(asked: Configuration, graph: StepGraph, name: str, file: NetworkFile, seed: int) -> PlannedReplay:
    """``asked`` planned for as many workers and servers as it has."""
    network = network_of(file, asked.transport)
    sized = replace(network, num_workers=asked.workers, num_servers=max(1, asked.servers))
    made = plan(graph, sized, asked.policy, seed=seed)
    return PlannedReplay(configuration=asked, graph=graph, plan=made, network=network, name=name)


def written(
    row: PlannedReplay, number: int, seed: int, folder: Path, begins_s: list[list[float]] | None = None
) -> Replayed:
    """Leave step and plan in ``folder`` for the ranks; ``begins_s``: of rounds that workers begin apart."""
    names = f"step-{row.name}.json", f"plan-{number}.json"
    if not (folder / names[0]).exists():
        save_step(row.graph, folder / names[0])
    save_plan(row.plan, folder / names[1])
    return Replayed(
        configuration=row.configuration,
        graph=names[0],
        plan=names[1],
        drawn_anew=row.drawn_anew,
        seed=seed,
        begins_s=begins_s or [[0.0] * row.configuration.workers],
    )


def predicted(
    row: PlannedReplay,
    *,
    num_steps: int,
    skip: int,
    seed: int,
    window_bytes: float | None = None,
    begins_s: list[list[float]] | None = None,
) -> Prediction:
    """The prediction for ``row``, whose workers begin together, or as ``begins_s`` says.

    As many steps as are replayed: asynchronous workers come closer to each other for hundreds of them. With
    gloo whole messages go in the plan's order; gRPC has HTTP/2's window, ``window_bytes`` (0: it is as large
    as it can be) or the predictor's own.
    """
    asked = row.configuration
    given: dict[str, Any] = {"policy": asked.policy} if row.drawn_anew else {"plan": row.plan}
    largest = WINDOW_BYTES if window_bytes is None else window_bytes
    own_window = largest if asked.transport == "grpc" else 0.0
    (prediction,) = predict(
        row.graph,
        row.network,
        workers=[asked.workers],
        servers=[asked.servers] if asked.servers else None,
        mode=asked.mode,
        updates="commit" if asked.mode == "async" else "arrival",
        window_bytes=own_window,
        steps=num_steps,
        skip=skip,
        repeats=_SEEDS,
        seed=seed,
        **given,
    )
    if begins_s is None:
        return prediction
    request = Request(
        graph=row.graph,
        network=row.network,
        mode="async",
        updates="commit",
        window_bytes=own_window,
        steps=num_steps,
        skip=skip,
        **given,
    )
    rate = rate_of_rounds(request, begins_s, servers=asked.servers, seed=seed)
    return msgspec.structs.replace(
        prediction, throughput=rate * row.graph.batch_size, throughput_low=None, throughput_high=None
    )


def longest_wait_s(predictions: Sequence[Prediction], num_steps: int) -> float:
    """For how long a rank waits for the others before it takes them for lost: for whole rows of theirs."""
    longest_s = max(prediction.step_s for prediction in predictions) * num_steps
    return _SILENT_S + _SLOWER * longest_s


def replayed(
    rows: Sequence[Replayed],
    cluster: Lab,
    *,
    num_steps: int,
    wait_s: float,
    timeout_s: float,
    folder: Path,
    window_bytes: float | None = None,
) -> list[ReplayedRow]:
    """Replay ``rows`` on ``cluster``, one after the other; their files are in ``folder``.

    ``window_bytes``: as :func:`predicted` takes it; gRPC has it in truth.

    Raises
    ------
    HocketError
        When no lab can be made, a rank fails, or it takes too long.
    """
    servers = most_servers([row.configuration for row in rows])
    orders = Orders(
        rows=list(rows),
        most_servers=servers,
        num_steps=num_steps,
        wait_s=min(wait_s, timeout_s),
        window_bytes=int(WINDOW_BYTES if window_bytes is None else window_bytes) or MOST_WINDOW_BYTES,
    )
    (folder / "orders.json").write_bytes(msgspec.json.encode(orders))
    command = [sys.executable, "-P", "-m", "hocket.bench.replay.accuracy_ranks", str(folder)]
    with cluster:
        results = cluster.run_all(
            command, timeout_s=timeout_s, env=environment_of_ranks(1), output="prefixed"
        )
    ended = [Ended(result.node.index, result.returncode, result.duration_s) for result in results]
    check_ended(ended, folder, "replaying")
    return msgspec.json.decode((folder / "answer.json").read_bytes(), type=ReplayedRows).rows
