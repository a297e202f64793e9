"""``hocket.distribute`` and replayed steps under a cluster's manager: their transfers pass its gate."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hocket.graph import save_plan, save_step
from hocket.network import Network
from hocket.planner.named_planners import plan
from tests.strategies import operation, parameter, step
from tests.unit.cluster.live.clusters import live_job, running

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_training_passes_the_gate(tmp_path: Path) -> None:
    steps = 30
    command = (sys.executable, "-m", "tests.multiprocess.gated_case", str(steps))
    job = live_job("a", 2, iterations=steps, command=command, folder=str(ROOT))
    with running(tmp_path, [job], servers=2, gpus=1, restarts=0) as cluster:
        record = cluster.join(100.0)["a"]
        transfers = cluster.manager._commands.status().transfers
    said = [(tmp_path / f"node{k}" / "ended" / f"1-1-{k}.out").read_text() for k in (0, 1)]
    assert (record.state, record.iteration) == ("finished", steps), said
    assert transfers
    assert cluster.manager.events >= 4 * steps  # each rank says when it computes, rank 0 what it transfers
    assert record.parts[2] > 0
    assert "weights" in said[0]
    assert said[0] == said[1]


@pytest.mark.slow
@pytest.mark.long
def test_steps_are_replayed_through_the_gate(tmp_path: Path) -> None:
    graph = step(
        [parameter("p", 4000), parameter("q", 80000)],
        [
            operation("forward p", 0.01, reads=["p"]),
            operation("forward q", 0.01, inputs=["forward p"], reads=["q"]),
            operation("backward q", 0.01, inputs=["forward q"], produces=["q"], phase="backward"),
            operation("backward p", 0.01, inputs=["backward q"], produces=["p"], phase="backward"),
        ],
    )
    save_step(graph, tmp_path / "step.json")
    save_plan(plan(graph, Network(num_workers=2), "caramel"), tmp_path / "plan.json")
    files = {key: str(tmp_path / f"{key}.json") for key in ("step", "plan")}
    job = live_job("a", 2, iterations=5, **files)
    with running(tmp_path, [job], servers=2, gpus=1, restarts=0) as cluster:
        record = cluster.join(100.0)["a"]
        transfers = cluster.manager._commands.status().transfers
    said = (tmp_path / "node0" / "ended" / "1-1-0.out").read_text()
    assert (record.state, record.why) == ("finished", ""), said
    assert len(transfers) == 5
    assert "goes on" not in said
