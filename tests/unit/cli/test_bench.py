"""``hocket bench``: one JSON document, and what cannot be timed is refused before anything starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hocket.graph import Plan, Reduction, save_plan
from hocket.planner import policies_of
from tests.unit.cli.test_commands import BRANCHES, STEP, hocket, refused


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--model", "cnn,resnet"), "model 'resnet' is unknown; did you mean 'resnet18'?"),
        (("--model", ""), "model '' is unknown; choose one of: cnn, vgg11, gpt, resnet18, FILE.py:FACTORY"),
        (("--model", "gpt", "--model", "cnn,gpt"), "model 'gpt' is named twice"),
        (("--rho", "2,one"), "rho '2,one' is not a list of numbers; give e.g. 2,1,0.5"),
        (("--rho", "0"), "rho 0 is not between 0.01 and 100"),
        (("--rho", "nan"), "rho nan is not between 0.01 and 100"),
        (("--batch-size", "0"), "0 examples in a batch are not between 1 and 100000"),
        (("--steps", "0"), "0 steps in a block are not between 1 and 10000"),
        (("--blocks", "0"), "0 blocks are not between 1 and 1000"),
        (("--threads", "0"), "0 threads are not between 1 and 1024"),
        (("--timeout", "0s"), "timeout of 0 s is not between 1 s and a week"),
        (("--timeout", "soon"), "duration 'soon' is not a number with a unit"),
        (("--rate", "fast"), "bandwidth 'fast' is not a number with a unit"),
        (("--rate", "1bit/s"), "a rate of 1 bit/s is none for a lab"),
        (("--nodes", "1"), "1 nodes make no lab"),
        *(
            (
                ("--plan", name),
                f"choose one of: auto, {', '.join(policies_of('allreduce'))}, ddp-best, search",
            )
            for name in ("tac", "exact")
        ),
        (("--plan", "none.json"), "none.json: "),
    ],
)
def test_what_cannot_be_timed_is_refused(arguments: tuple[str, ...], said: str) -> None:
    assert said in refused(hocket("bench", "train", *arguments))


def test_a_plan_of_one_model_is_refused(tmp_path: Path) -> None:
    parameters = (Reduction(parameters=("weight",)),)
    plan = Plan(
        policy="mine", model="toy", architecture="allreduce", reductions=parameters, compute_order=None
    )
    save_plan(plan, tmp_path / "plan.json")
    said = refused(hocket("bench", "train", "--plan", str(tmp_path / "plan.json")))
    assert "plan.json" in said
    assert "give auto or a policy" in said


def test_a_launcher_has_its_own_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "here", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    for option in (("--nodes", "2"), ("--rate", "250mbit")):
        assert "leave --nodes and --rate out" in refused(hocket("bench", "train", *option))


def test_planners_are_timed() -> None:
    ran = hocket("bench", "plan", STEP, "64", "--policies", "tic,tac", "--repeats", "2", "--json")
    assert (ran.status, ran.err) == (0, "")
    document = json.loads(ran.out)
    assert [document[key] for key in ("cores", "repeats", "workers", "servers")] == [1, 2, 8, 1]
    assert [(row["graph"], row["policy"]) for row in document["rows"]] == [
        (graph, policy) for graph in (STEP, "64") for policy in ("tic", "tac")
    ]
    assert set(document["rows"][0]) == {
        *("graph", "operations", "parameters", "policy", "architecture"),
        *("plan_s", "per_operation_s", "repeats_s", "compile_s"),
    }
    table = hocket("bench", "plan", STEP, "--repeats", "1").out
    assert all(policy in table for policy in ("tac", "caramel", "ibatch", "us/operation"))


def test_simulators_are_timed() -> None:
    arguments = ("--workers", "1,3", "--steps", "3", "--iterations", "2", "--repeats", "2")
    ran = hocket("bench", "sim", BRANCHES, *arguments, "--json")
    assert (ran.status, ran.err) == (0, "")
    document = json.loads(ran.out)
    assert [(row["engine"], row["workers"], row["steps"]) for row in document["rows"]] == [
        *(("simulate", 1, 2), ("predict", 1, 3)),
        *(("simulate", 3, 2), ("predict", 3, 3)),
    ]
    assert set(document["rows"][0]) == {
        *("graph", "operations", "parameters", "engine", "policy", "architecture", "workers", "servers"),
        *("steps", "events", "step_s", "events_per_s", "repeats_s", "compile_s"),
    }
    assert "M events/s" in hocket("bench", "sim", BRANCHES, *arguments).out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("plan", "resnet"), "step 'resnet' is unknown; did you mean"),
        (("plan", STEP, "--policies", "tic,best"), "policy 'best' is unknown"),
        (("plan", STEP, "--repeats", "0"), "0 repeats are not between 1 and 10000"),
        (("plan", STEP, "--cores", "4096"), "4096 cores are not between 1 and"),
        (("sim", STEP, "--workers", "0"), "workers '0'"),
        (("sim", STEP, "--policy", "best"), "policy 'best' is unknown"),
    ],
)
def test_what_cannot_be_timed_alone_is_refused(arguments: tuple[str, ...], said: str) -> None:
    assert said in refused(hocket("bench", *arguments))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--policy", "best"), "policy 'best' is unknown"),
        (("--mode", "async,never"), "mode 'never' is unknown; choose one of: async, sync"),
        (("--step", "chain,resnet"), "step 'resnet' is unknown; did you mean"),
        (("--workers", "1-80"), "80 workers and 2 servers on one machine"),
        (("--rate", "1bit/s"), "a rate of 1 bit/s is none for a lab"),
        (("--plot", "/nowhere/page.html"), "the folder '/nowhere' does not exist"),
        (("--transport", "gloo,smoke"), "transport 'smoke' is unknown; choose one of: gloo, grpc"),
        (("--window", "wide"), "window: "),
    ],
)
def test_what_cannot_be_replayed_is_refused(arguments: tuple[str, ...], said: str) -> None:
    assert said in refused(hocket("bench", "predict", *arguments))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--policy", "tac"), "policy 'tac' alone compares with nothing"),
        (("--rho", "much"), "rho 'much' is not a list of numbers"),
        (("--step", "chain,resnet"), "step 'resnet' is unknown; did you mean"),
        (("--rate", "1bit/s"), "a rate of 1 bit/s is none for a lab"),
    ],
)
def test_orders_that_cannot_be_compared_are_refused(arguments: tuple[str, ...], said: str) -> None:
    assert said in refused(hocket("bench", "orders", *arguments))
