"""The range beside a throughput, the patterns of its all-reduces, and steps that are told to vary."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hocket
from hocket.confidence import interval_95
from hocket.errors import HocketError
from hocket.graph import StepGraph
from hocket.graph.jittered_step import jittered
from hocket.network import Network, Nodes
from hocket.predictor import predict
from hocket.predictor.prediction_range import computing_error, step_range_s
from tests.unit.predictor.test_predictions import layers


def one(graph: StepGraph, bandwidth_bps: float, **options: Any) -> hocket.Prediction:
    network = Network(bandwidth_bps=bandwidth_bps)
    (row,) = predict(graph, network, **{"workers": 4, "steps": 20, "skip": 5, **options})
    return row


@pytest.mark.parametrize("bandwidth_bps", [100.0, 1000.0, 3000.0, 1e6])
@pytest.mark.parametrize("servers", [None, 1])
def test_steps_that_are_off_by_as_much_are_within_the_range(
    bandwidth_bps: float, servers: int | None
) -> None:
    graph = replace(layers(), device="rtx3090", expected_error=0.25)
    options = {"servers": servers, "mode": "sync"}
    row = one(graph, bandwidth_bps, **options)
    assert row.range_of == "derived"
    assert row.throughput_least is not None
    assert row.throughput_most is not None
    for factor in (0.75, 1.25):
        other = one(replace(graph, durations_s=graph.durations_s * factor), bandwidth_bps, **options)
        assert row.throughput_least <= other.throughput * (1 + 1e-9)
        assert other.throughput <= row.throughput_most * (1 + 1e-9)


def test_one_workers_range_is_its_error_and_a_full_networks_is_little() -> None:
    graph = replace(layers(), expected_error=0.2)
    alone = one(graph, 1e6, workers=1)
    assert alone.throughput_least == pytest.approx(alone.throughput / 1.2)
    assert alone.throughput_most == pytest.approx(alone.throughput / 0.8)
    slow = one(graph, 100.0)
    assert slow.throughput_most is not None
    assert slow.throughput_most < 1.2 * slow.throughput


def test_a_profiles_range_is_that_of_the_mean_of_its_steps() -> None:
    graph = layers(samples=8)
    lengths_s = graph.durations_s.sum(axis=0)
    low, _ = interval_95(lengths_s)
    error = computing_error(graph)
    assert error is not None
    assert low is not None
    assert error.source == "recorded"
    assert error.seconds == pytest.approx(float(lengths_s.mean()) - low)
    row = one(graph, 1e6, workers=1, steps=200)
    assert row.throughput_least is not None
    assert row.throughput_least == pytest.approx(10 / (row.step_s + error.seconds))


def test_no_range_is_told_where_none_is_known() -> None:
    assert one(layers(), 1e6).range_of is None
    # Draws of a derived step say nothing of how far it is off.
    assert computing_error(replace(layers(samples=8), device="mi300x")) is None
    assert step_range_s(1.0, 2.0, 0.0) is None
    assert step_range_s(1.0, 2.0, 0.5) == (0.5, 3.0)


def test_rows_name_the_ways_of_their_all_reduces() -> None:
    assert one(layers(), 1e6, workers=1).patterns == ()
    assert one(layers(), 1e6).patterns == ("ring",)
    late = Network(bandwidth_bps=1e6, startup_s=1.0)
    assert predict(layers(), late, workers=16, steps=4, skip=1)[0].patterns == ("tree",)
    nodes = Network(nodes=Nodes(gpus=4, intra_bps=3.6e12), startup_s=10e-6)
    (row,) = predict(layers(), nodes, workers=64, steps=4, skip=1)
    assert row.patterns == ("tree LL",)
    assert one(layers(), 1e6, servers=1).patterns == ()


def test_a_step_of_one_sample_is_told_to_vary() -> None:
    graph = layers()
    varied = jittered(graph, 0.05, 400, seed=1)
    scale = varied.durations_s / graph.durations_s
    assert scale.shape == (graph.num_operations, 400)
    assert np.allclose(scale, scale[0])
    assert float(np.log(scale[0]).std()) == pytest.approx(0.05, rel=0.15)
    assert float(scale[0].mean()) == pytest.approx(1.0, abs=0.01)
    assert one(varied, 1e9).throughput < one(graph, 1e9).throughput
    with pytest.raises(HocketError, match=r"jitter 0\.05: the 400 samples of this step vary by themselves"):
        jittered(varied, 0.05, 2, seed=1)
