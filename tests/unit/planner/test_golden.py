"""The toy graphs of TicTac's Figures 1 and 5, step and plans as files."""

from __future__ import annotations

from pathlib import Path

import pytest

from hocket.graph import load_plan, load_step
from hocket.network import Network
from hocket.planner import plan
from hocket.sim import simulate
from hocket.tuner import make_plan
from tests.golden.make import BLOCKS_NETWORK, BLOCKS_POLICIES, BRANCHES_NETWORK, BRANCHES_POLICIES

GOLDEN = Path(__file__).parents[2] / "golden"
# One second for 125 bytes, so that sizes in the files read as seconds.
NETWORK = Network(bandwidth_bps=1000.0)


@pytest.mark.parametrize("figure", ["tictac_fig1", "tictac_fig5a", "tictac_fig5b"])
@pytest.mark.parametrize("policy", ["tic", "tac", "layerwise"])
def test_toy_graphs_have_their_plans(figure: str, policy: str) -> None:
    graph = load_step(GOLDEN / f"{figure}.step.json")
    assert plan(graph, NETWORK, policy) == load_plan(GOLDEN / f"{figure}.{policy}.plan.json")


@pytest.mark.parametrize("policy", BRANCHES_POLICIES)
def test_a_branched_training_step_has_its_plans(policy: str) -> None:
    graph = load_step(GOLDEN / "branches.step.json")
    assert plan(graph, BRANCHES_NETWORK, policy) == load_plan(GOLDEN / f"branches.{policy}.plan.json")


@pytest.mark.parametrize("policy", BLOCKS_POLICIES)
def test_a_sharded_step_has_its_plans(policy: str) -> None:
    graph = load_step(GOLDEN / "blocks.step.json")
    assert make_plan(graph, BLOCKS_NETWORK, policy).plan == load_plan(GOLDEN / f"blocks.{policy}.plan.json")


def test_figure_1_good_order_hides_what_the_bad_one_does_not() -> None:
    graph = load_step(GOLDEN / "tictac_fig1.step.json")
    good = simulate(graph, plan(graph, NETWORK, "tac"), NETWORK, iterations=1).row
    bad = simulate(graph, plan(graph, NETWORK, "reverse"), NETWORK, iterations=1).row
    assert (good.iteration_s, bad.iteration_s) == (3.0, 4.0)
    assert good.bound_s == 3.0
