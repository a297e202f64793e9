"""Nodes of several GPUs beside published figures: bus bandwidths, and a node's scaling where the data is."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.published_scaling import BUS_BANDWIDTHS, BusBandwidth, scalings

DATA = Path(__file__).parents[4] / "shared" / "data"
NAME = "published_training_throughput.csv"


@pytest.mark.parametrize("published", BUS_BANDWIDTHS, ids=lambda bus: bus.machines)
def test_bus_bandwidths_are_the_published_ones(published: BusBandwidth) -> None:
    assert published.predicted() == pytest.approx(published.published, rel=0.05)


@pytest.mark.skipif(not (DATA / NAME).exists(), reason="needs published_training_throughput.csv")
def test_eight_gpus_of_a_node_scale_as_published() -> None:
    rows = [row for row in scalings(DATA, ["resnet50"]) if row.gpus > 1]
    # Of these eight H100 no figure of one is published; they are compared with one elsewhere.
    rows = [row for row in rows if row.machine != "LambdaCloud 8x H100 80GB SXM5"]
    assert sum(row.gpus == 8 for row in rows) == 6
    assert all(row.predicted == pytest.approx(row.published, rel=0.1) for row in rows), rows
