"""Nothing hangs or goes on wrongly: refusals at the start, killed ranks, uneven inputs."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.multiprocess.failure_cases import grown
from tests.multiprocess.launch import Ranks, run

pytestmark = pytest.mark.slow

CASES = "tests.multiprocess.failure_cases"
GONE = "training stopped: rank 1 is gone"
DONE = "training stopped: rank 1 is done after 7 steps, while rank 0 is in step 8"


def test_what_differs_between_ranks_is_refused_on_all_of_them() -> None:
    first, second = run(f"{CASES}:refused")
    assert first == second
    assert first["shape"] == (
        "parameter 2 differs: rank 0 has 1.weight (4, 4) float32, rank 1 has 1.weight (5, 4) float32;"
        " give every rank the same"
    )
    assert "rank 0 has none, rank 1 has 2.weight" in first["count"]
    assert first["plan"].startswith("reduction of the plan 0 differs: rank 0 has layers.")
    assert first["issue"] == (
        "issue of the plan, 0 differs: rank 0 has listed, rank 1 has ready; give every rank the same"
    )
    ends = "; give every rank the same"
    wanted = "plan (--plan, HOCKET_PLAN or plan=) differs: rank 0 has 'auto', rank 1 has"
    assert first["policy"] == f"{wanted} 'ddp'{ends}"
    assert first["policy or plan"] == f"{wanted} a given plan{ends}"
    assert first["values"] == f"init_sync differs: rank 0 has True, rank 1 has False{ends}"
    assert first["compile"] == f"compile differs: rank 0 has False, rank 1 has True{ends}"
    assert "is missing (1 of 8 are); cover each parameter once" in first["incomplete"]
    assert "1.weight (2, 2) float32, rank 1 has 1.weight (2, 2) float32, frozen" in first["frozen on one"]
    assert "rank 0 has 0.weight (4, 2) float32, frozen, rank 1 has 0.weight (5, 2)" in first["frozen shape"]
    assert first["buffer"].startswith(
        "buffer 0 differs: rank 0 has 1.running_mean (2,) float32, rank 1 has none"
    )
    assert first["name"].startswith("policy or plan file 'fastest' is unknown")
    assert "no parameter of the model requires a gradient" in first["frozen"]
    assert "already distributed" in first["twice"]


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("kill in backward", GONE),
        ("raise halfway, listed", GONE),
        ("return", DONE),
        pytest.param("kill", GONE, marks=pytest.mark.long),
        pytest.param("kill, ready", GONE, marks=pytest.mark.long),
        pytest.param("kill, no buffers, seen later", GONE, marks=pytest.mark.long),
        pytest.param("kill, no buffers, ready", GONE, marks=pytest.mark.long),
        pytest.param("raise halfway, ready", GONE, marks=pytest.mark.long),
        pytest.param("return, ready", DONE, marks=pytest.mark.long),
    ],
)
def test_a_rank_that_goes_is_named_by_the_others(tmp_path: Path, how: str, told: str) -> None:
    ranks = Ranks(f"{CASES}:failing", 2, {"fail_at": 7, "how": how}, tmp_path)
    statuses = ranks.wait(60)
    assert statuses[0] == 0, ranks.output(0)
    assert ranks.result(0).startswith(told)
    if how.startswith("raise"):
        assert statuses[1] not in (0, None)
    else:
        assert statuses[1] == (0 if how.startswith("return") else -signal.SIGKILL)


@pytest.mark.parametrize("sums_up", [False, True])
@pytest.mark.parametrize("seed", [0, pytest.param(3, marks=pytest.mark.long)])
def test_a_rank_that_goes_is_named_where_work_is_done_later(tmp_path: Path, seed: int, sums_up: bool) -> None:
    options = {"fail_at": 7, "how": "kill, ready", "delayed": [seed], "sums_up": sums_up}
    ranks = Ranks(f"{CASES}:failing", 2, options, tmp_path)
    assert ranks.wait(150) == [0, -signal.SIGKILL], ranks.output(0)
    assert ranks.result(0).startswith(GONE)


def test_ranks_that_end_one_after_the_other_say_nothing(tmp_path: Path) -> None:
    ranks = Ranks(f"{CASES}:ending_apart", 2, {}, tmp_path)
    assert ranks.wait(60) == [0, 0]
    assert (ranks.output(0), ranks.output(1)) == ("", "")


def test_a_model_that_is_collected_on_one_rank_keeps_nobody_waiting() -> None:
    assert run(f"{CASES}:collected_on_one_rank", timeout_s=60) == ["met", "met"]


@pytest.mark.long
def test_a_long_training_keeps_its_size() -> None:
    for moments in run(f"{CASES}:many_steps", steps=1000):
        assert grown(moments) == {}


@pytest.mark.long
def test_a_tensor_that_is_kept_in_every_tenth_step_is_growth() -> None:
    for moments in run(f"{CASES}:many_steps", steps=250, leak_every=10):
        assert "tensors" in grown(moments)
