"""``--clip``: steps that clip by norm, in every command that plans or simulates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hocket.graph import load_plan, load_step, save_step
from hocket.graph.clipped_step import clipped
from hocket.tuner.distribute import resolve_plan
from tests.unit.cli.test_commands import BRANCHES, GOLDEN, hocket, in_tmp

__all__ = ["in_tmp"]

SERVED = "clip: what clipping costs with parameter servers is not modelled"
NETWORK = ["--bandwidth", "1kbit/s", "--workers", "2", "--latency", "250ms"]


def test_a_clipped_step_stands_beside_an_unclipped_one(in_tmp: Path) -> None:
    ran = hocket("tune", BRANCHES, *NETWORK, "--clip", "--budget", "1s", "-o", "best.json", "--json")
    assert ran.status == 0, ran.err
    document = json.loads(ran.out)
    assert document["given"]["clip"] is True
    assert "exact" not in {row["policy"] for row in document["ranked"]}
    by_policy = {row["policy"]: row["iteration_s"] for row in document["ranked"]}
    plain = json.loads(hocket("simulate", BRANCHES, *NETWORK, "--policy", "ddp", "--json").out)
    assert by_policy["ddp"] >= plain["iteration_s"]
    assert document["unclipped"]["iteration_s"] <= plain["iteration_s"]
    assert any(reduction.halves for reduction in load_plan("best.json").reductions)
    again = hocket("simulate", BRANCHES, *NETWORK, "--clip", "--plan", "best.json", "--json")
    assert json.loads(again.out)["iteration_s"] == pytest.approx(document["ranked"][0]["iteration_s"])
    said = hocket("simulate", BRANCHES, *NETWORK, "--clip", "--plan", "best.json").out
    assert " a step clipped by norm on 2 workers at 1 kbit/s" in said
    assert "\nUnclipped a step takes " in said
    assert ", clipped under ddp " in said
    assert "in halves (reduce-scatter, all-gather): it is for training that clips by norm" in said
    assert "unclipped" not in json.loads(hocket("tune", BRANCHES, *NETWORK, "--budget", "1s", "--json").out)


def test_plans_without_halves_are_ranked_as_clipped_steps_beside_those_with_some(in_tmp: Path) -> None:
    asked = ["tune", BRANCHES, *NETWORK, "--clip", "--budget", "1s", "-o", "best.json"]
    rows = {row["policy"]: row["iteration_s"] for row in json.loads(hocket(*asked, "--json").out)["ranked"]}
    # Beside the plan of a step that does not clip, which it is: all transfers are waited for by the norm.
    assert hocket("plan", BRANCHES, *NETWORK, "--policy", "caramel", "-o", "whole.json").status == 0
    clipped = hocket("simulate", BRANCHES, *NETWORK, "--clip", "--plan", "whole.json", "--json")
    assert rows["caramel whole"] == pytest.approx(json.loads(clipped.out)["iteration_s"])
    assert rows["caramel"] < rows["caramel whole"]
    assert "bytescheduler whole" not in rows  # its plan has no halves here
    said = hocket(*asked).out
    assert "\nWith reductions in halves " in said
    assert ", with whole ones alone " in said


@pytest.mark.parametrize(
    "command", [["plan", "--policy", "fsdp", "-o", "p.json"], ["simulate"], ["tune", "--budget", "1s"]]
)
def test_a_clipped_step_that_is_fully_sharded_stands_beside_the_same_unclipped(
    command: list[str], in_tmp: Path
) -> None:
    sharded = ["--architecture", "fsdp"]
    name, *more = command
    plain = json.loads(hocket("simulate", BRANCHES, *NETWORK, *sharded, "--json").out)["iteration_s"]
    ran = hocket(name, BRANCHES, *NETWORK, *sharded, "--clip", *more)
    assert ran.status == 0, ran.err
    assert f"\nUnder fsdp a step takes {plain:.3g} s unclipped, " in ran.out


def test_a_step_measured_as_it_clips_is_told_of_the_option_that_has_halves(in_tmp: Path) -> None:
    save_step(clipped(load_step(BRANCHES)), "clips.json")
    tune = [*NETWORK, "--budget", "1s"]
    told = "This step clips by norm: --clip tries sums in halves, too, as hocket.distribute does."
    assert told in hocket("tune", "clips.json", *tune).out
    assert told not in hocket("tune", "clips.json", *tune, "--clip").out
    assert told not in hocket("tune", "clips.json", *tune, "--architecture", "ps").out
    assert told not in hocket("tune", "clips.json", *tune, "--architecture", "fsdp").out
    assert told not in hocket("tune", BRANCHES, *tune).out


def test_training_takes_a_plan_with_halves(in_tmp: Path) -> None:
    planned = hocket("plan", BRANCHES, *NETWORK, "--clip", "--policy", "caramel", "-o", "plan.json")
    assert planned.status == 0, planned.err
    assert "reductions in halves (reduce-scatter, all-gather)" in planned.out
    assert resolve_plan(Path("plan.json"))[0] == load_plan("plan.json")


@pytest.mark.parametrize("policy", ["wfbp", "ddp", "horovod"])
def test_what_frameworks_do_stays_whole(in_tmp: Path, policy: str) -> None:
    assert hocket("plan", BRANCHES, *NETWORK, "--clip", "--policy", policy, "-o", "plan.json").status == 0
    assert load_plan("plan.json").reductions == load_plan(GOLDEN / f"branches.{policy}.plan.json").reductions


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["tune", BRANCHES, "--clip", "--architecture", "ps"],
            SERVED,
        ),
        (["predict", BRANCHES, "--clip", "--mode", "async"], SERVED),
        (["plan", BRANCHES, "--clip", "--policy", "tac"], SERVED),
        (
            ["plan", BRANCHES, "--clip", "--policy", "exact", "--latency", "1ms"],
            "clip: a startup of 0.004 s a reduction makes batches of halves matter",
        ),
    ],
)
def test_what_does_not_clip_says_so(in_tmp: Path, arguments: list[str], told: str) -> None:
    ran = hocket(*arguments)
    assert (ran.status, ran.out) == (2, "")
    assert told in ran.err
    assert ran.err.count("\n") == 1


def test_a_prediction_says_what_clipping_costs(in_tmp: Path) -> None:
    ran = hocket("predict", BRANCHES, "--bandwidth", "1kbit/s", "--workers", "1,2", "--clip", "--steps", "50")
    assert ran.status == 0, ran.err
    assert ran.out.startswith("All-reduce at 1 kbit/s, clipped by norm: ")
    assert ": clipped under ddp " in ran.out.splitlines()[2]
    assert " and unclipped " in ran.out.splitlines()[2]
    assert "; unclipped at best " in ran.out.splitlines()[2]
    assert ran.out.splitlines()[-1].startswith("Next: hocket tune ")
    assert " --clip" in ran.out.splitlines()[-1]
