"""Write the golden files anew: ``python -m tests.golden.make``; look at the difference before committing."""

from __future__ import annotations

from pathlib import Path

from hocket.graph import StepGraph, save_plan, save_step
from hocket.network import Network
from hocket.planner import plan
from hocket.tuner import make_plan
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


def branches() -> StepGraph:
    """Two branches that meet in a loss, backward and updates: a layer big, one small, one fast to reach."""
    return step(
        [parameter("stem", 250), parameter("left", 1000), parameter("right", 125), parameter("head", 125)],
        [
            operation("stem", 1.0, reads=["stem"]),
            operation("left", 2.0, inputs=["stem"], reads=["left"]),
            operation("right", 1.0, inputs=["stem"], reads=["right"]),
            operation("head", 1.0, inputs=["left", "right"], reads=["head"]),
            operation("head back", 1.0, inputs=["head"], produces=["head"], phase="backward"),
            operation("left back", 4.0, inputs=["head back", "left"], produces=["left"], phase="backward"),
            operation("right back", 2.0, inputs=["head back", "right"], produces=["right"], phase="backward"),
            operation(
                "stem back", 2.0, inputs=["left back", "right back"], produces=["stem"], phase="backward"
            ),
            operation("head update", 0.5, inputs=["head back"], reads=["head"], phase="update"),
            operation("left update", 0.5, inputs=["left back"], reads=["left"], phase="update"),
            operation("right update", 0.5, inputs=["right back"], reads=["right"], phase="update"),
            operation("stem update", 0.5, inputs=["stem back"], reads=["stem"], phase="update"),
        ],
        batch_size=4,
    )


def blocks() -> StepGraph:
    """An embedding, blocks of different sizes and a head."""
    names = ["embed.weight", *(f"layers.{k}.weight" for k in range(6)), "head.weight"]
    operations = []
    last: list[str] = []
    for k, name in enumerate(names):
        operations.append(operation(name, 1.0 + k % 3, inputs=last, reads=[name]))
        last = [name]
    for k, name in enumerate(reversed(names)):
        back = f"{name} back"
        operations.append(
            operation(back, 2.0 + k % 2, inputs=last, reads=[name], produces=[name], phase="backward")
        )
        last = [back]
    operations.append(operation("update", 0.5, inputs=last, reads=names, phase="update"))
    return step([parameter(name, 125 * (1 + k % 4)) for k, name in enumerate(names)], operations)


BLOCKS_POLICIES = ("fsdp", "fsdp-zero2", "fsdp-tic", "fsdp-tac", "fsdp-ibatch", "simplefsdp")
BLOCKS_NETWORK = Network(bandwidth_bps=1000.0, startup_s=0.5, num_workers=4)
BRANCHES_POLICIES = (
    "p3",
    "ibatch",
    "ibatch-greedy",
    "poseidon",
    "caramel",
    "ddp",
    "horovod",
    "wfbp",
    "bytescheduler",
)
# Startup and parse costs that make batches, chunks and windows matter; patterns as Caramel chooses them.
BRANCHES_NETWORK = Network(
    bandwidth_bps=1000.0,
    startup_s=0.25,
    num_workers=2,
    parse_s_per_byte=0.002,
    parse_s=0.125,
    pattern="cheapest",
)


if __name__ == "__main__":
    network = Network(bandwidth_bps=1000.0)
    for figure in (figure_1, figure_5a, figure_5b):
        stem = f"tictac_{figure.__name__.replace('figure_', 'fig')}"
        save_step(figure(), FOLDER / f"{stem}.step.json")
        for policy in ("tic", "tac", "layerwise"):
            save_plan(plan(figure(), network, policy), FOLDER / f"{stem}.{policy}.plan.json")
    save_step(branches(), FOLDER / "branches.step.json")
    for policy in BRANCHES_POLICIES:
        save_plan(plan(branches(), BRANCHES_NETWORK, policy), FOLDER / f"branches.{policy}.plan.json")
    save_step(blocks(), FOLDER / "blocks.step.json")
    for policy in BLOCKS_POLICIES:
        save_plan(make_plan(blocks(), BLOCKS_NETWORK, policy).plan, FOLDER / f"blocks.{policy}.plan.json")
