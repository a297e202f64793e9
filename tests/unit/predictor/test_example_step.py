"""The step in ``examples/`` that a reader begins with."""

from __future__ import annotations

from pathlib import Path

from hocket import Network, Nodes, load_step, predict

EXAMPLE = Path(__file__).parents[3] / "examples" / "resnet50_h100.step.json.gz"


def test_the_step_in_examples_is_small_and_can_be_predicted_with_at_once() -> None:
    assert EXAMPLE.stat().st_size < 20_000
    step = load_step(EXAMPLE)
    assert (step.device, step.precision, step.batch_size) == ("h100", "amp, channels last", 256)
    assert step.memory is not None
    network = Network(bandwidth_bps=100e9, startup_s=5e-6, nodes=Nodes(gpus=8, intra_bps=450e9 * 8, nics=1))
    eight, many = predict(step, network, workers=[8, 64], steps=20, skip=5)
    assert 35_000 < eight.throughput < 40_000
    assert 7 < many.throughput / eight.throughput < 8
