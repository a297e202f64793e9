"""A step that sends nothing is refused wherever something would be planned or predicted for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hocket
from hocket.errors import HocketError
from hocket.graph import Plan, StepGraph
from hocket.network import Network
from tests.strategies import operation, parameter, step
from tests.unit.cli.test_commands import hocket as run
from tests.unit.cli.test_commands import refused

BARE = step([], [operation("forward"), operation("backward", inputs=["forward"], phase="backward")])
INFERENCE = step([parameter("p", 125)], [operation("forward", reads=["p"])])
NO_PARAMETERS = "the step of 'toy' has no parameters, so nothing is sent and nothing can be planned"
NO_GRADIENT = "the step of 'toy' completes no gradient, so all-reduce has nothing to send"


def simulated(graph: StepGraph, network: Network, policy: str) -> Any:
    architecture: Any = "ps" if policy == "fifo" else "allreduce"
    return hocket.simulate(
        graph, Plan(policy=policy, model="toy", architecture=architecture, compute_order=None), network
    )


def tuned(graph: StepGraph, network: Network, policy: str) -> Any:
    return hocket.tune(graph, network, architecture="ps" if policy == "fifo" else "allreduce", budget_s=0.1)


def predicted(graph: StepGraph, network: Network, policy: str) -> Any:
    return hocket.predict(graph, network, workers=[1, 64], policy=policy)


@pytest.mark.parametrize("call", [hocket.plan, simulated, tuned, predicted])
@pytest.mark.parametrize(
    ("graph", "policy", "message"),
    [(BARE, "fifo", NO_PARAMETERS), (BARE, "ddp", NO_PARAMETERS), (INFERENCE, "ddp", NO_GRADIENT)],
)
@pytest.mark.parametrize("workers", [1, 4])
def test_functions_refuse_a_step_that_sends_nothing(
    call: Callable[..., Any], graph: StepGraph, policy: str, message: str, workers: int
) -> None:
    with pytest.raises(HocketError, match=message) as error:
        call(graph, Network(num_workers=workers), policy)
    assert "\n" not in str(error.value)


def test_inference_from_parameter_servers_is_not_nothing() -> None:
    assert hocket.predict(INFERENCE, Network(), policy="fifo", steps=20, skip=0)


COMMANDS = [
    ("plan", "--policy", "ddp"),
    ("simulate", "--policy", "fifo"),
    ("tune",),
    ("predict", "--workers", "1,64"),
    ("predict", "--architecture", "allreduce"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_commands_refuse_a_step_that_sends_nothing(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    hocket.save_step(BARE, "step.json")
    line = refused(run(command[0], "step.json", *command[1:]))
    assert NO_PARAMETERS in line
    assert "record_shapes=True" in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step.json"]
