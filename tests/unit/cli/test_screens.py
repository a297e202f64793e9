"""First screens, as they are in ``screens/``; ``HOCKET_SCREENS=write`` writes them anew.

A screen is a row of :data:`SCREENS`: its file, the command that a user types, and commands before it. They
run in a folder that holds the steps and plans of ``tests/golden``. What goes to standard error is left out.
"""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from hocket.graph import load_step
from hocket.profiler.torch_step import Profile
from tests.unit.cli.test_commands import GOLDEN, hocket, in_tmp
from tests.unit.doctor.test_examination import examined
from tests.unit.network.test_measured import some_file

__all__ = ["in_tmp"]

FOLDER = Path(__file__).parent / "screens"
OFFERS = """\
name,device,gpus,price_per_hour,currency,nics,bandwidth,intra_bandwidth,most_nodes
v100-8,V100,8,12,USD,1,25Gbit/s,,8
v100-1,V100,1,1.8,USD,1,10Gbit/s,,16
h100-8,H100,8,24,USD,8,400Gbit/s,450GB/s,4
"""
SLOW = "--bandwidth 1kbit/s --latency 250ms --workers 2"


class Screen(NamedTuple):
    name: str
    command: str
    before: tuple[str, ...] = ()


SCREENS = (
    Screen("predict", "predict v100.json --latency 50us --workers 1-4,8", before=("profile v100",)),
    Screen("predict-servers", "predict branches.step.json --mode async --bandwidth 1kbit/s --workers 1-6"),
    Screen(
        "predict-range",
        "predict branches.step.json --bandwidth 10kbit/s --gpus-per-node 8 --intra-bandwidth 1MB/s"
        " --workers 8-128",
    ),
    Screen("predict-wide", "predict branches.step.json --bandwidth 1kbit/s --workers 1-3 --wide"),
    Screen(
        "rent", "rent v100.json --offers offers.csv --examples 90M --deadline 24h", before=("profile v100",)
    ),
    Screen("tune", f"tune branches.step.json {SLOW} --budget 8s"),
    Screen("tune-clip", f"tune branches.step.json {SLOW} --clip --budget 2s"),
    Screen("predict-clip", "predict branches.step.json --bandwidth 1kbit/s --workers 1-3 --clip"),
    Screen("tune-nothing-to-gain", "tune branches.step.json --budget 1s"),
    Screen("tune-servers", f"tune tictac_fig1.step.json --architecture ps {SLOW} --budget 1s"),
    Screen("plan", f"plan branches.step.json --policy caramel {SLOW} -o plan.json"),
    Screen("simulate", f"simulate branches.step.json --policy ddp {SLOW}"),
    Screen("simulate-wide", f"simulate branches.step.json --policy wfbp {SLOW} --wide"),
    Screen("simulate-plan", f"simulate branches.step.json --plan branches.caramel.plan.json {SLOW}"),
    Screen("simulate-long", "simulate branches.step.json --policy tac --bandwidth 1bit/s"),
    Screen(
        "compare",
        "compare fast.json slow.json --top 4",
        before=(
            "simulate branches.step.json --policy ddp --workers 2 --bandwidth 4kbit/s --timeline fast.json",
            "simulate branches.step.json --policy ddp --workers 2 --bandwidth 1kbit/s --timeline slow.json",
        ),
    ),
    Screen("demo", f"demo --batch-size 4 --iterations 20 --budget 2s {SLOW}"),
    Screen("network-measure", "network measure -o network.json"),
    Screen("doctor", "doctor"),
)
SETUPS = {"profile v100": "profile alexnet_v2 --device v100 --batch-size 64 --jitter 0.05 -o v100.json"}


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured is the same each time."""
    graph = load_step(GOLDEN / "branches.step.json")
    seconds = np.array([graph.durations_s.sum()])
    profile = Profile(graph=graph, plain_step_s=seconds, own_sum_s=0.9 * seconds)
    monkeypatch.setattr("hocket.profiler.profile_step", lambda *_, **__: profile)
    monkeypatch.setattr("hocket.profiler.measure_network", lambda **_: some_file())
    monkeypatch.setattr("hocket.doctor.examine", lambda **_: examined())


def run(command: str) -> str:
    ran = hocket(*shlex.split(command))
    assert ran.status == 0, ran.err
    return ran.out


@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.name)
def test_a_first_screen_is_as_it_was(screen: Screen, in_tmp: Path) -> None:
    for path in GOLDEN.glob("*.json"):
        shutil.copy(path, in_tmp)
    (in_tmp / "offers.csv").write_text(OFFERS)
    for command in screen.before:
        run(SETUPS.get(command, command))
    shown = f"$ hocket {screen.command}\n{run(screen.command)}"
    assert not [line for line in shown.splitlines() if line != line.rstrip()]
    kept = FOLDER / f"{screen.name}.txt"
    if os.environ.get("HOCKET_SCREENS") == "write":
        FOLDER.mkdir(exist_ok=True)
        kept.write_text(shown)
    assert shown == kept.read_text(), "HOCKET_SCREENS=write takes it as it is"


def test_every_kept_screen_has_a_command() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == {screen.name for screen in SCREENS}
