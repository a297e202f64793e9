"""``hocket compare``: two timeline files, one table or one document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.test_commands import BRANCHES, STEP, hocket, in_tmp, refused

__all__ = ["in_tmp"]


@pytest.fixture(autouse=True)
def files(in_tmp: Path) -> None:
    simulated("slow.json", "--bandwidth", "1kbit/s")
    simulated("fast.json", "--bandwidth", "1Gbit/s")


def simulated(name: str, *options: str, policy: str = "ddp", workers: int = 2) -> None:
    network = ("--architecture", "allreduce", "--workers", str(workers), *options)
    ran = hocket("simulate", BRANCHES, "--policy", policy, *network, "--timeline", name)
    assert ran.status == 0, ran.err


def compared(*arguments: str) -> dict[str, Any]:
    ran = hocket("compare", *arguments, "--json")
    assert ran.status == 0, ran.err
    document: dict[str, Any] = json.loads(ran.out)
    return document


def test_a_simulated_step_compares_with_itself() -> None:
    document = compared("slow.json", "slow.json")
    assert document["predicted"] == document["measured"]
    assert document["predicted"]["workers"] == 2
    assert {figure["ratio"] for figure in document["figures"]} <= {1.0, None}
    assert {span["start_difference_s"] for span in document["spans"]} == {0.0}
    alone = document["only_predicted"]
    assert (alone["count"], alone["examples"], alone["reasons"]) == (0, [], [])
    assert alone["names"] == len(document["spans"])


def test_what_a_slower_network_does() -> None:
    document = compared("fast.json", "slow.json")
    figures = {figure["name"]: figure for figure in document["figures"]}
    assert set(figures) == {
        *("step", "computing", "waiting", "overlap", "forward", "backward", "update", "reduce")
    }
    row = json.loads(Path("slow.json").read_text())["result"]
    assert figures["step"]["measured_s"] == pytest.approx(row["iteration_s"])
    assert figures["computing"]["ratio"] == pytest.approx(1.0)
    assert figures["reduce"]["measured_s"] == pytest.approx(row["communication_s"])
    late_s = figures["step"]["measured_s"] - figures["step"]["predicted_s"]
    assert figures["waiting"]["measured_s"] == pytest.approx(late_s, rel=1e-3)
    assert (document["spans"][0]["kind"], document["spans"][0]["name"]) == ("reduce", "head and 3 more")
    assert document["spans"][0]["duration_difference_s"] == pytest.approx(late_s)


def test_inference_compares_as_well() -> None:
    for name, bandwidth in (("slow.json", "1kbit/s"), ("fast.json", "2kbit/s")):
        drawn = ("--policy", "tac", "--bandwidth", bandwidth, "--timeline", name)
        assert hocket("simulate", STEP, *drawn).status == 0
    figures = {figure["name"]: figure for figure in compared("fast.json", "slow.json")["figures"]}
    assert set(figures) == {"step", "computing", "waiting", "overlap", "forward", "pull"}
    assert figures["pull"]["ratio"] == pytest.approx(2.0)
    assert figures["computing"]["ratio"] == pytest.approx(1.0)


def test_a_table_for_people() -> None:
    simulated("wfbp.json", "--bandwidth", "1kbit/s", policy="wfbp")
    ran = hocket("compare", "slow.json", "wfbp.json", "--top", "3")
    assert ran.status == 0
    lines = ran.out.splitlines()
    assert any(line.startswith("step ") for line in lines)
    assert sum("back" in line or "update" in line for line in lines) >= 3
    assert "only in the predicted timeline: 1 name: head and 3 more (reduce); the other file has" in ran.err
    assert "only in the measured timeline: 4 names: " in ran.err
    assert "Kind" not in hocket("compare", "slow.json", "wfbp.json", "--top", "0").out


def test_different_numbers_of_workers_are_told_and_compared() -> None:
    simulated("three.json", "--bandwidth", "1kbit/s", workers=3)
    ran = hocket("compare", "slow.json", "three.json", "--json")
    document = json.loads(ran.out)
    assert (document["predicted"]["workers"], document["measured"]["workers"]) == (2, 3)
    assert "2 workers were predicted and 3 measured" in ran.err
    figures = {figure["name"]: figure["ratio"] for figure in document["figures"]}
    assert figures["forward"] == pytest.approx(1.0)
    assert figures["reduce"] > 1.0


def test_parameter_servers_compare_too() -> None:
    servers = ("--policy", "tac", "--workers", "2", "--bandwidth", "1kbit/s", "--timeline", "servers.json")
    assert hocket("simulate", BRANCHES, *servers).status == 0
    document = compared("servers.json", "servers.json")
    assert {"pull", "push"} <= {figure["name"] for figure in document["figures"]}


def test_what_cannot_be_compared_gets_one_line() -> None:
    assert "is not 'hocket.timeline/1'" in refused(hocket("compare", BRANCHES, "slow.json"))
    assert "nowhere.json: cannot be read" in refused(hocket("compare", "slow.json", "nowhere.json"))
    empty = json.loads(Path("slow.json").read_text())
    empty["traceEvents"] = [event for event in empty["traceEvents"] if event["ph"] == "M"]
    Path("empty.json").write_text(json.dumps(empty))
    for pair in (("empty.json", "slow.json"), ("slow.json", "empty.json")):
        assert "holds no forward operation" in refused(hocket("compare", *pair))
    refused(hocket("compare", "slow.json"))
    refused(hocket("compare", "slow.json", "fast.json", "--top", "-1"))
