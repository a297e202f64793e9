"""Many numbers of workers at once: as each is simulated by itself, or on lines between those that are."""

from __future__ import annotations

import time
from typing import Any
from unittest.mock import PropertyMock

import pytest

from hocket.network import Network, Nodes
from hocket.predictor import Machines, Prediction, interpolation, predict
from hocket.predictor.answer import caveats
from hocket.predictor.prepared import Prepared
from tests.unit.predictor.test_predictions import layers

SLOW = Network(bandwidth_bps=2000.0, startup_s=0.02)
H100S = Network(bandwidth_bps=4000.0, startup_s=0.02, nodes=Nodes(gpus=4, intra_bps=1e5, nics=2))


@pytest.mark.parametrize("policy", ["ddp", "wfbp"])
@pytest.mark.parametrize("network", [SLOW, H100S])
@pytest.mark.parametrize("speeds", [(1.0,), (1.0, 0.5, 1.0, 1.0, 2.0, 1.0, 1.0, 1.0, 1.0)])
def test_all_reduces_of_unlike_steps_are_those_of_the_event_loop(
    policy: str, network: Network, speeds: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows() -> list[Prediction]:
        machines = Machines(speeds=speeds)
        options: dict[str, Any] = {
            "policy": policy,
            "machines": machines,
            "steps": 60,
            "skip": 10,
            "repeats": 2,
        }
        return predict(layers(samples=5), network, workers=[1, 2, 5, 9], **options)

    quick = rows()
    monkeypatch.setattr(Prepared, "barrier_step", PropertyMock(return_value=None))
    for one, simulated in zip(quick, rows(), strict=True):
        assert one.step_s == pytest.approx(simulated.step_s, rel=1e-9)
        assert one.throughput_low == pytest.approx(simulated.throughput_low, rel=1e-9)
        assert one.bottleneck_utilization == pytest.approx(simulated.bottleneck_utilization, rel=1e-9)
        same = ("bottleneck", "workers", "steps", "steady", "interpolated", "patterns")
        assert [getattr(one, name) for name in same] == [getattr(simulated, name) for name in same]


def test_hundreds_of_numbers_of_workers_take_seconds() -> None:
    graph = layers(samples=5)
    predict(graph, SLOW, workers=[2])
    began_s = time.process_time()
    rows = predict(graph, SLOW, workers=[*range(1, 257), 1000])
    assert time.process_time() - began_s < 10.0
    assert all(row.interpolated is None for row in rows)


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_rows_between_simulated_ones_are_as_simulated_ones(
    mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows() -> list[Prediction]:
        options: dict[str, Any] = {"mode": mode, "steps": 200, "skip": 20, "repeats": 3}
        return predict(layers(samples=5), Network(bandwidth_bps=2e4), workers=range(20, 0, -1), **options)

    simulated = rows()
    assert all(row.interpolated is None for row in simulated)
    monkeypatch.setattr(interpolation, "_LONG_S", 0.0)
    some = rows()
    assert [row.workers for row in some] == [row.workers for row in simulated]
    between = {row.workers: row.interpolated for row in some if row.interpolated}
    assert between == {
        9: (8, 10),
        11: (10, 12),
        **dict.fromkeys((13, 14), (12, 15)),
        **dict.fromkeys((16, 17), (15, 18)),
        19: (18, 20),
    }
    for row, alike in zip(some, simulated, strict=True):
        assert row.throughput == pytest.approx(alike.throughput, rel=0.03 if row.interpolated else 1e-12)
        assert row.bottleneck_utilization == pytest.approx(alike.bottleneck_utilization, abs=0.05)
        assert (row.events == 0) == (row.interpolated is not None)
    assert not any("interpolated" in note for note in caveats(simulated))
    (note,) = [note for note in caveats(some) if note.startswith("interpolated")]
    assert "interpolated: 7 of 20 rows" in note
    assert "7, 8, 10, 12, 15, 18 and 20 workers" in note


def test_rows_of_unlike_machines_are_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpolation, "_LONG_S", 0.0)
    for unlike in (
        {"machines": Machines(racks=2, oversubscription=2.0)},
        {"machines": Machines(speeds=(1.0, 0.5) * 6)},
        {"network": H100S, "policy": "bytescheduler"},
    ):
        options: dict[str, Any] = {"network": SLOW, "steps": 10, "skip": 2, **unlike}
        if "policy" not in unlike:
            options["architecture"] = "ps"
        rows = predict(layers(samples=2), workers=range(8, 12), **options)
        assert all(row.interpolated is None for row in rows)
