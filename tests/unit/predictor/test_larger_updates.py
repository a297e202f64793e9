"""Larger updates: said where they decide by the simulation, with what it says of them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hocket.graph import Phase, StepGraph, load_step
from hocket.graph.accumulated_step import accumulated
from hocket.network import Network
from hocket.predictor import predict
from hocket.predictor.larger_updates import larger_update, update_clause, update_sizes
from hocket.text import rate_text
from tests.unit.cli.test_commands import GOLDEN

STEP = load_step(GOLDEN / "branches.step.json")
ASKED: dict[str, Any] = {"architecture": "allreduce", "steps": 60, "skip": 10}


def advice(bits_s: float, workers: int = 4, graph: StepGraph = STEP, **changes: Any) -> str:
    network, asked = Network(bandwidth_bps=bits_s), {**ASKED, **changes}
    return larger_update(graph, network, asked, predict(graph, network, workers=[1, workers], **asked))


def test_what_is_said_is_what_the_simulation_of_as_many_batches_says() -> None:
    said = advice(500.0)
    batches = int(re.search(r"gradients of (\d+) batches", said).group(1))  # type: ignore[union-attr]
    (row,) = predict(accumulated(STEP, batches), Network(bandwidth_bps=500.0), workers=4, **ASKED)
    assert (row.efficiency or 0) >= 0.9
    assert f"4 workers reach {rate_text(row.throughput)}, " in said
    assert f" Updates are then of {16 * batches} examples instead of 16;" in said
    (fewer,) = predict(accumulated(STEP, batches // 2), Network(bandwidth_bps=500.0), workers=4, **ASKED)
    assert (fewer.efficiency or 0) < 0.9


@pytest.mark.parametrize(("bits_s", "workers"), [(1e9, 4), (500.0, 1)])
def test_nothing_is_said_where_the_network_does_not_decide(bits_s: float, workers: int) -> None:
    assert advice(bits_s, workers) == ""


def test_nothing_is_said_of_servers_and_of_steps_without_a_backward_pass() -> None:
    assert advice(500.0, architecture="ps", servers=1, mode="sync") == ""
    assert advice(500.0, graph=replace(STEP, phases=np.full_like(STEP.phases, Phase.FORWARD))) == ""


def test_on_a_hopeless_network_the_most_batches_are_said_with_what_they_reach() -> None:
    said = advice(10.0)
    assert "gradients of 64 batches" in said
    (row,) = predict(accumulated(STEP, 64), Network(bandwidth_bps=10.0), workers=4, **ASKED)
    assert f"4 workers reach {rate_text(row.throughput)}, " in said
    assert (row.efficiency or 0) < 0.9


@pytest.mark.parametrize("architecture", ["allreduce", "ps", "fsdp"])
def test_an_update_is_of_a_batch_of_each_worker(architecture: str) -> None:
    step = load_step(GOLDEN / "branches.step.json")
    network = Network(bandwidth_bps=1e9)
    asked: dict[str, Any] = {"architecture": architecture, "mode": "sync", "steps": 4, "skip": 1}
    one, four = (predict(step, network, workers=[count], **asked) for count in (1, 4))
    several = [*one, *four]
    assert update_sizes(step, several).startswith("with 4 workers an update is of 16 examples, with 1 of 4 (")
    assert update_clause(step, four) == "; an update: 4 examples a worker, so 16 with 4 workers"
    assert update_sizes(step, four) == update_clause(step, several) == update_clause(step, one) == ""


def test_asynchronous_and_pulling_steps_have_no_updates_that_grow() -> None:
    step, network = load_step(GOLDEN / "branches.step.json"), Network(bandwidth_bps=1e9)
    pulling = replace(step, phases=np.full_like(step.phases, Phase.FORWARD))
    asked: dict[str, Any] = {"architecture": "ps", "workers": [1, 4], "steps": 4, "skip": 1}
    together, apart = (predict(step, network, mode=mode, **asked) for mode in ("sync", "async"))
    assert update_sizes(step, together)
    assert update_sizes(step, apart) == update_sizes(pulling, together) == ""
    assert update_clause(pulling, together[1:]) == ""
