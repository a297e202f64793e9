"""The line on a step's exchange: its bytes and rho are those of the step and of the simulator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hocket.graph import load_step
from hocket.network import Network
from hocket.predictor import predict
from hocket.predictor.step_exchange import exchange_line
from hocket.sim import simulate
from hocket.text import rho_text, scaled_text
from hocket.tuner import Exchange, make_plan
from tests.unit.cli.test_commands import GOLDEN

STEP = load_step(GOLDEN / "branches.step.json")
NETWORK = Network(bandwidth_bps=1e3)
SIZE = scaled_text(float(STEP.parameter_bytes[STEP.produced].sum()), "B")
USUAL = {"allreduce": "ddp", "fsdp": "fsdp", "ps": "fifo"}


def line(workers: int, **changes: Any) -> str:
    asked: dict[str, Any] = {"mode": "sync", "steps": 20, "skip": 5, "policy": None, **changes}
    servers = 1 if asked["architecture"] == "ps" else None
    (row,) = predict(STEP, NETWORK, workers=workers, servers=servers, **asked)
    return exchange_line(STEP, NETWORK, asked, row)


@pytest.mark.parametrize("architecture", USUAL)
def test_rho_is_that_of_a_single_simulated_step(architecture: Any) -> None:
    network = replace(NETWORK, num_workers=3)
    planned = make_plan(STEP, network, USUAL[architecture], Exchange(architecture=architecture))
    row = simulate(STEP, planned.plan, network, iterations=20).row
    said = line(3, architecture=architecture)
    assert (
        f"by {USUAL[architecture]}, take {rho_text(row.communication_s / row.compute_s)} times as long"
        in said
    )
    assert SIZE in said


def test_one_worker_alone_exchanges_nothing_and_one_with_a_server_does() -> None:
    assert line(1, architecture="allreduce") == ""
    assert line(1, architecture="ps").startswith(
        f"each step pulls {SIZE} to each worker and pushes {SIZE} from"
    )


def test_a_planner_that_takes_its_time_is_not_asked_again() -> None:
    assert "by ddp, take" in line(2, architecture="allreduce", policy="search", budget_s=0.1)
