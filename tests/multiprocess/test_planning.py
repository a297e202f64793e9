"""Plans that are made while real ranks train on."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest

from tests.multiprocess.launch import Ranks, run

CASES = "tests.multiprocess.planning_cases"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are found in /proc"),
]


@pytest.mark.parametrize("world", [pytest.param(2, marks=pytest.mark.long), 3])
def test_ranks_train_on_until_plans_are_made_and_go_over_to_trials_in_the_same_step(
    world: int, tmp_path: Path
) -> None:
    found = run(f"{CASES}:trained_meanwhile", world=world, folder=str(tmp_path), fails=False)
    assert all(each["phases"] == found[0]["phases"] for each in found)
    assert found[0]["phases"].count("planning") > 20
    assert max(each["longest"] for each in found) < 1.0  # it took two seconds and more, of five to load
    assert [each["waiting"] for each in found] == [1, *[0] * (world - 1)]
    for each in found:
        assert re.fullmatch(
            r"plans have been in the making for [0-9]+\.[0-9] s, beside steps under 'ddp'", each["making"]
        )
    assert [each["differences"] for each in found] == [[]] * world
    assert [each["children"] for each in found] == [[]] * world
    assert any(phase.startswith("trying ") for phase in found[0]["phases"])
    assert found[0]["kept"] == 1


def test_where_planning_fails_the_plan_stays_and_nothing_is_kept(tmp_path: Path) -> None:
    found = run(f"{CASES}:trained_meanwhile", folder=str(tmp_path), fails=True)
    why = "no other could be made: planning by 'auto' failed: OSError: no kernels; give a plan by plan="
    for each in found:
        assert each["plan"] == "ddp"
        assert why in each["said"]
        assert each["differences"] == []
        assert each["kept"] == 0
    assert found[0]["phases"] == found[1]["phases"]


@pytest.mark.parametrize(
    "how",
    [
        "it ends",
        pytest.param("one more pass", marks=pytest.mark.long),
        pytest.param("one less pass", marks=pytest.mark.long),
        pytest.param("detached", marks=pytest.mark.long),
    ],
)
def test_a_training_that_ends_meanwhile_ends_what_plans(how: str, tmp_path: Path) -> None:
    ranks = Ranks(f"{CASES}:ended_meanwhile", 2, {"folder": str(tmp_path), "how": how}, tmp_path)
    assert ranks.wait(60) == [0, 0], ranks.output(0) + ranks.output(1)
    first, second = ranks.result(0), ranks.result(1)
    assert first["error"] == second["error"] == ""
    assert second["children"] == []
    assert first.get("left", []) == []
    (child,) = first["children"]
    assert _soon_gone(child)


@pytest.mark.parametrize("gone", [pytest.param(0, marks=pytest.mark.long), 1])
def test_a_rank_that_goes_meanwhile_is_named_and_what_plans_ends(gone: int, tmp_path: Path) -> None:
    how = f"rank {gone} goes"
    ranks = Ranks(f"{CASES}:ended_meanwhile", 2, {"folder": str(tmp_path), "how": how}, tmp_path)
    statuses = ranks.wait(60)
    assert statuses[gone] == -signal.SIGKILL
    assert statuses[1 - gone] == 0, ranks.output(1 - gone)
    left = ranks.result(1 - gone)
    who = "rank 1" if gone else "the rank that holds the job's store"
    assert left["error"].startswith(f"training stopped: {who} is gone")
    children = left["children"] if gone else [int((tmp_path / "children").read_text())]
    assert len(children) == 1
    assert _soon_gone(children[0])


def _soon_gone(pid: int) -> bool:
    """Tell whether the process ends within seconds."""
    stat = Path(f"/proc/{pid}/stat")
    for _ in range(100):
        try:
            if stat.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.1)
    return False
