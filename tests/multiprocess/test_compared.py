"""A training run of two processes beside the simulation of its plan: names match by parameter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import hocket
from hocket.graph import Plan, StepGraph, Timeline, save_plan
from hocket.interop import load_timeline
from hocket.report.comparison import compare
from hocket.report.pages import render_results
from hocket.report.result_files import load_results
from tests.multiprocess.compare_cases import batch, network
from tests.multiprocess.launch import run

pytestmark = pytest.mark.slow

NETWORK = hocket.Network(num_workers=2, num_servers=1, bandwidth_bps=1e8)


@pytest.fixture(scope="module")
def step() -> StepGraph:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return hocket.profile(model, batch(), torch.nn.functional.cross_entropy, optimizer, steps=2)


@pytest.fixture(scope="module", params=["ddp", "bytescheduler"])
def runs(request: pytest.FixtureRequest, step: StepGraph, tmp_path_factory: Any) -> tuple[Timeline, Path]:
    """What was simulated under a policy's plan, and the file of what was measured under it."""
    folder = tmp_path_factory.mktemp(request.param)
    plan: Plan = hocket.plan(step, NETWORK, request.param, architecture="allreduce")
    save_plan(plan, folder / "a.plan.json")
    run(
        "tests.multiprocess.compare_cases:recorded",
        plan=str(folder / "a.plan.json"),
        timeline=str(folder / "measured.json"),
    )
    simulated = hocket.simulate(step, plan, NETWORK, timeline=True).timeline
    assert simulated is not None
    return simulated, folder / "measured.json"


def test_operations_match_by_parameter(runs: tuple[Timeline, Path]) -> None:
    simulated, path = runs
    measured, _ = load_timeline(path)
    found = compare(simulated, measured)
    names = {(span.kind, span.name) for span in found.spans}
    modules = ("0", "1", "4", "8", "10")
    assert {("forward", f"forward {module}") for module in modules} <= names
    assert {("backward", f"backward {module}") for module in modules} <= names
    assert any(kind == "update" for kind, _ in names)
    assert any(kind == "reduce" for kind, _ in names)
    # An operation that starts the backward pass may stand apart; all else of the simulation is matched.
    alone = [name for reason in found.only_predicted.reasons for _, name in reason.examples]
    assert set(alone) <= {"backward/ones_like"}
    assert {kind for reason in found.only_measured.reasons for kind, _ in reason.examples} <= {
        *("wait", "forward", "backward")
    }
    assert all(
        kind == "wait" or name in ("forward start", "backward between steps")
        for reason in found.only_measured.reasons
        for kind, name in reason.examples
    )


def test_a_training_runs_timeline_has_a_page_of_its_own(runs: tuple[Timeline, Path]) -> None:
    page = render_results(load_results([runs[1]]))
    assert "Waits by parameter" in page
    assert "2 workers" in page
    assert "Where the results come from" in page
