"""Write the golden files anew: ``python -m tests.golden.make``; look at the difference before committing."""

from __future__ import annotations

from pathlib import Path

from hocket.graph import StepGraph, save_plan, save_step
from hocket.network import Network
from hocket.planner import plan
from tests.strategies import operation, parameter, step

FOLDER = Path(__file__).parent


def figure_1() -> StepGraph:
    """op1 needs recv1, op2 needs op1 and recv2; everything takes one second."""
    return step(
        [parameter("recv1", 125), parameter("recv2", 125)],
        [operation("op1", reads=["recv1"]), operation("op2", inputs=["op1"], reads=["recv2"])],
    )


def figure_5a() -> StepGraph:
    """Case 1: A enables the longer operation, so it goes first although B is listed before it."""
    return step(
        [parameter("recvB", 250), parameter("recvA", 125)],
        [
            operation("op1", 3.0, reads=["recvA"]),
            operation("op2", 1.0, reads=["recvB"]),
            operation("op3", 1.0, inputs=["op1", "op2"]),
        ],
    )


def figure_5b() -> StepGraph:
    """Case 2: no pull enables anything alone; A and B together enable op1 before C and D matter."""
    return step(
        [parameter("recvD", 125), parameter("recvC", 125), parameter("recvB", 125), parameter("recvA", 125)],
        [
            operation("op1", reads=["recvA", "recvB"]),
            operation("op2", inputs=["op1"], reads=["recvC"]),
            operation("op3", inputs=["op2"], reads=["recvD"]),
        ],
    )


if __name__ == "__main__":
    network = Network(bandwidth_bps=1000.0)
    for figure in (figure_1, figure_5a, figure_5b):
        stem = f"tictac_{figure.__name__.replace('figure_', 'fig')}"
        save_step(figure(), FOLDER / f"{stem}.step.json")
        for policy in ("tic", "tac", "layerwise"):
            save_plan(plan(figure(), network, policy), FOLDER / f"{stem}.{policy}.plan.json")
