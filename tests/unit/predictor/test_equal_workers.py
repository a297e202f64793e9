"""One worker that stands for all equal ones: beside the event loop with all of them."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest

from hocket.graph import StepGraph
from hocket.network import Network, Nodes
from hocket.predictor import Machines, Prediction, predict, run_outcome
from hocket.predictor.equal_workers import are_equal
from hocket.predictor.prediction_request import Request
from hocket.predictor.prepared import prepare
from tests.unit.predictor.test_predictions import layers

SLOW = Network(bandwidth_bps=2000.0, startup_s=0.02)
H100S = Network(bandwidth_bps=4000.0, startup_s=0.02, nodes=Nodes(gpus=4, intra_bps=1e5, nics=2))


def rows(graph: StepGraph, network: Network, policy: str, machines: Machines) -> list[Prediction]:
    return predict(
        graph,
        network,
        workers=[1, 2, 5, 9],
        policy=policy,
        machines=machines,
        steps=60,
        skip=10,
        fusion_bytes=0,
    )


@pytest.mark.parametrize("policy", ["ddp", "wfbp", "caramel", "bytescheduler"])
@pytest.mark.parametrize("network", [SLOW, H100S])
@pytest.mark.parametrize("speed", [1.0, 0.5])
def test_one_worker_stands_for_all(
    policy: str, network: Network, speed: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, machines = layers(), Machines(speeds=(speed,))
    fast = rows(graph, network, policy, machines)
    monkeypatch.setattr(run_outcome, "are_equal", lambda prepared: False)
    slow = rows(graph, network, policy, machines)
    for one, all_of_them in zip(fast, slow, strict=True):
        assert one.step_s == pytest.approx(all_of_them.step_s, rel=1e-9)
        assert one.bottleneck_utilization == pytest.approx(all_of_them.bottleneck_utilization, rel=1e-9)
        assert one.events <= all_of_them.events
        same = ("bottleneck", "policy", "workers", "steps", "steady", "lockstep")
        assert [getattr(one, name) for name in same] == [getattr(all_of_them, name) for name in same]


def test_who_is_equal() -> None:
    def equal(graph: StepGraph, **fields: object) -> bool:
        return are_equal(prepare(Request(graph=graph, network=SLOW, **fields), 4, 1))  # type: ignore[arg-type]

    assert equal(layers())
    assert equal(dataclasses.replace(layers(samples=3), durations_s=np.ones((6, 3))))
    assert not equal(layers(samples=3))
    assert not equal(layers(), machines=Machines(speeds=(1.0, 1.0, 1.0, 0.5)))
    assert not equal(layers(), architecture="ps")
    assert not equal(layers(), policy="random")


def test_many_equal_workers_take_no_longer_than_a_few() -> None:
    predict(layers(), SLOW, workers=[2])
    began_s = time.process_time()
    many = predict(layers(), SLOW, workers=[1000, 100_000])
    assert time.process_time() - began_s < 5.0
    assert all(row.step_s > 0 for row in many)
