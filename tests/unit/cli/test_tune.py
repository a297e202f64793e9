"""``hocket tune`` as scripts and people call it, and plans of every policy through the commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hocket.graph import load_plan
from hocket.tuner import policy_names
from tests.unit.cli.test_commands import BRANCHES, ROW_KEYS, hocket, in_tmp, refused

__all__ = ["in_tmp"]

NETWORK = ["--bandwidth", "1kbit/s", "--workers", "2", "--latency", "250ms", "--budget", "1s"]


@pytest.mark.parametrize("architecture", ["ps", "allreduce"])
def test_tune_ranks_every_policy_and_writes_the_best_plan(in_tmp: Path, architecture: str) -> None:
    ran = hocket(
        "tune", BRANCHES, *NETWORK, "--architecture", architecture, "--json", "--report", "page.html"
    )
    assert ran.status == 0, ran.err
    document = json.loads(ran.out)
    ranked = document["ranked"]
    assert {row["policy"] for row in ranked} == set(policy_names(architecture))
    assert all(row.keys() >= ROW_KEYS for row in ranked)
    steps = [row["iteration_s"] for row in ranked]
    assert steps == sorted(steps)
    assert document["best"] == ranked[0]["policy"]
    assert all(row["bound_s"] <= row["iteration_s"] * (1 + 1e-9) for row in ranked)
    assert document["plan"] == "branches.tuned.plan.json"
    plan = load_plan(in_tmp / document["plan"])
    assert plan.predicted is not None
    assert plan.predicted.iteration_s == steps[0]
    # The plan that was written does what the ranking says.
    again = hocket("simulate", BRANCHES, "--plan", document["plan"], *NETWORK, "--json")
    assert json.loads(again.out)["iteration_s"] == pytest.approx(steps[0])
    assert "exact" in (in_tmp / "page.html").read_text()
    (in_tmp / "tuned.json").write_text(ran.out)
    assert hocket("report", "tuned.json", "-o", "again.html").status == 0


def test_tune_prints_a_table_and_what_was_written(in_tmp: Path) -> None:
    ran = hocket("tune", BRANCHES, *NETWORK, "-o", "best.json")
    assert ran.status == 0, ran.err
    assert all(name in ran.out for name in policy_names("allreduce"))
    assert ran.out.startswith(f"Best of {len(policy_names('allreduce'))} policies: exact")
    assert ran.out.splitlines()[-1] == (
        "Next: hocket train --plan best.json --nnodes 2 --nproc-per-node 1 --node-rank K --master-addr HOST"
        " train.py  # your script, which calls hocket.distribute"
    )
    assert ran.err.startswith("best.json: the plan of exact; the search tried ")
    assert (in_tmp / "best.json").exists()


@pytest.mark.parametrize("policy", policy_names())
def test_every_policy_plans_and_its_plan_simulates_alike(in_tmp: Path, policy: str) -> None:
    assert hocket("plan", BRANCHES, "--policy", policy, *NETWORK, "-o", "plan.json").status == 0
    plan = load_plan(in_tmp / "plan.json")
    assert plan.policy == policy
    ran = hocket("simulate", BRANCHES, "--plan", "plan.json", *NETWORK, "--json")
    assert plan.predicted is not None
    assert json.loads(ran.out)["iteration_s"] == pytest.approx(plan.predicted.iteration_s)


def test_the_exact_planner_says_what_it_proved() -> None:
    arguments = [*NETWORK, "--budget", "60s", "--seed", str(2**40)]  # more than the solver holds
    ran = hocket("simulate", BRANCHES, "--policy", "exact", *arguments, "--json")
    row = json.loads(ran.out)
    assert row["status"] == "optimal"
    assert row["bound_s"] == pytest.approx(row["iteration_s"], rel=1e-6)


def test_a_timeline_of_steps_that_overlap(in_tmp: Path) -> None:
    for policy in ("caramel", "p3"):
        ran = hocket("simulate", BRANCHES, "--policy", policy, *NETWORK, "--timeline", f"{policy}.json")
        assert ran.status == 0, ran.err
    ran = hocket("report", "caramel.json", "p3.json", "-o", "page.html")
    assert ran.status == 0, ran.err


QUICK = [*NETWORK[:-1], "100ms"]


@pytest.mark.parametrize(
    ("policy", "window"),
    [
        *[("tac", "200B"), ("tac", "28MB"), ("tac", "off")],
        *[("random", "200B"), ("p3", "200B"), ("search", "200B")],
    ],
)
def test_every_command_knows_the_window(in_tmp: Path, policy: str, window: str) -> None:
    options = [*QUICK, "--window", window, "--seed", "3"]
    assert hocket("plan", BRANCHES, "--policy", policy, *options, "-o", "plan.json").status == 0
    ran = hocket("simulate", BRANCHES, "--plan", "plan.json", *options, "--json")
    assert ran.status == 0, ran.err
    simulated = json.loads(ran.out)["iteration_s"]
    predicted = load_plan(in_tmp / "plan.json").predicted
    assert predicted is not None
    assert predicted.iteration_s == pytest.approx(simulated)
    steps = ["--mode", "sync", "--steps", "8", "--skip", "2"]
    ran = hocket("predict", BRANCHES, "--plan", "plan.json", *options, *steps, "--json")
    assert ran.status == 0, ran.err
    assert json.loads(ran.out)[0]["step_s"] == pytest.approx(simulated)


def test_tune_ranks_what_the_window_makes_of_plans(in_tmp: Path) -> None:
    ranked = []
    for window in ("200B", "28MB", "off"):
        ran = hocket("tune", BRANCHES, *QUICK, "--window", window, "--json")
        assert ran.status == 0, ran.err
        ranked.append({row["policy"]: row["iteration_s"] for row in json.loads(ran.out)["ranked"]})
    cut, whole, off = ranked
    # What no window cuts can be proven; one batch, cut once, is the same.
    assert cut.keys() == whole.keys() - {"exact"}
    assert cut["default"] == pytest.approx(whole["default"]) == off["default"]
    assert any(cut[policy] != off[policy] for policy in cut)


@pytest.mark.parametrize("given", ["4,16", "1-8"])
def test_several_numbers_of_workers_are_for_predict(in_tmp: Path, given: str) -> None:
    said = refused(hocket("tune", BRANCHES, "--workers", given))
    assert said == (
        f"hocket: --workers {given}: 'hocket tune' takes one number; for several: hocket predict STEP"
        f" --workers {given}\n"
    )
    assert "valid int" in refused(hocket("tune", BRANCHES, "--workers", "four"))
