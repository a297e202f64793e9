"""The commands as scripts call them: one JSON document, or one line and exit status 2."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest

from hocket.cli.main import main

GOLDEN = Path(__file__).parents[2] / "golden"
STEP = str(GOLDEN / "tictac_fig1.step.json")
NETWORK = ["--bandwidth", "1kbit/s"]

ROW_KEYS = {
    *("policy", "workers", "servers", "iteration_s", "iteration_p95_s", "straggler_fraction", "compute_s"),
    *("communication_s", "rho", "overlap", "utilization", "bound_s", "throughput", "events", "wall_s"),
}


class Ran(NamedTuple):
    status: int
    out: str
    err: str


def hocket(*arguments: str) -> Ran:
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["hocket", *arguments]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch("signal.signal"),
        pytest.raises(SystemExit) as stopped,
    ):
        main()
    return Ran(int(stopped.value.code or 0), out.getvalue(), err.getvalue())


def refused(ran: Ran) -> str:
    """The one line that a refusal prints."""
    assert ran.status == 2
    assert ran.out == ""
    assert ran.err.startswith("hocket: ")
    assert ran.err.count("\n") == 1
    return ran.err


@pytest.fixture
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_simulate_prints_one_document_with_the_documented_keys() -> None:
    ran = hocket("simulate", STEP, "--policy", "tac", *NETWORK, "--json")
    assert (ran.status, ran.err) == (0, "")
    row = json.loads(ran.out)
    assert set(row) >= ROW_KEYS
    assert row["iteration_s"] == 3.0
    assert row["bound_s"] == 3.0
    assert row["overlap"] == pytest.approx(0.5)
    assert row["utilization"] == pytest.approx(2 / 3)


def test_simulate_prints_a_table_for_people() -> None:
    ran = hocket("simulate", STEP, "--policy", "tac", *NETWORK)
    assert ran.status == 0
    assert "tac" in ran.out
    assert "Bound" in ran.out


def test_a_written_plan_is_simulated_as_it_stands(in_tmp: Path) -> None:
    assert hocket("plan", STEP, "--policy", "reverse", *NETWORK, "-o", "plan.json").status == 0
    plan = json.loads((in_tmp / "plan.json").read_text())
    assert [pull["parameters"] for pull in plan["pulls"]] == [["recv2"], ["recv1"]]
    assert plan["predicted"]["iteration_s"] == 4.0
    assert "reductions" not in plan
    row = json.loads(hocket("simulate", STEP, "--plan", "plan.json", *NETWORK, "--json").out)
    assert (row["policy"], row["iteration_s"]) == ("reverse", 4.0)
    printed = hocket("plan", STEP, "--policy", "reverse", *NETWORK)
    assert json.loads(printed.out) == plan


def test_results_and_timelines_make_a_report(in_tmp: Path) -> None:
    for policy in ("tac", "reverse"):
        ran = hocket("simulate", STEP, "--policy", policy, *NETWORK, "--json", "--timeline", f"{policy}.json")
        (in_tmp / f"{policy}.row.json").write_text(ran.out)
    trace = json.loads((in_tmp / "tac.json").read_text())
    assert {event["ph"] for event in trace["traceEvents"]} == {"M", "X"}
    ran = hocket("report", "tac.json", "reverse.json", "tac.row.json", "-o", "report.html")
    assert ran.status == 0
    assert "reverse" in (in_tmp / "report.html").read_text()


def test_version_and_help() -> None:
    assert hocket("--version").out.startswith("hocket 0.")
    assert "--policy" in hocket("simulate", "--help").out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["simulate", STEP], "give one of them"),
        (["simulate", STEP, "--policy", "tac", "--plan", "x"], "give one of them"),
        (["simulate", STEP, "--policy", "tak"], "policy 'tak' is unknown; did you mean 'tac'?"),
        (["simulate", STEP, "--plan", "missing.json"], "missing.json: cannot be read: No such file"),
        (["simulate", STEP, "--plan", STEP], "format: 'hocket.step/1' is not 'hocket.plan/1'"),
        (["simulate", "missing.json", "--policy", "tac"], "missing.json: cannot be read"),
        (["simulate", STEP, "--policy", "tac", "--bandwidth", "10s"], "bandwidth '10s' is not a number"),
        (["simulate", STEP, "--policy", "tac", "--bandwidth", "0"], "bandwidth '0' is not positive"),
        (["simulate", STEP, "--policy", "tac", "--latency=-1s"], "duration '-1s' is negative"),
        (["simulate", STEP, "--policy", "tac", "--workers", "0"], "0 workers cannot train"),
        (["simulate", STEP, "--policy", "tac", "--servers", "3"], "3 servers cannot share 2 parameters"),
        (["simulate", STEP, "--policy", "tac", "--workers", "many"], "'--workers'"),
        (["simulate", STEP, "--policy", "tac", "--iterations", "0"], "'--iterations'"),
        (["simulate", STEP, "--policy", "tac", "--seed", "-1"], "'--seed'"),
        (["simulate", STEP, "--policy", "tac", "--architecture", "mesh"], "'--architecture'"),
        (
            ["simulate", STEP, "--policy", "tac", "--timeline", "no/where.json"],
            "does not exist; create it first",
        ),
        (["simulate", STEP, "--polcy", "tac"], "No such option"),
        (["plan", STEP], "Missing option '--policy'"),
        (["plan", STEP, "--policy", "tac", "-o", "/proc/x"], "/proc"),
        (["report", STEP, "-o", "report.html"], "tictac_fig1.step.json: "),
        (["report", "-o", "report.html"], "RESULT"),
        (["conduct"], "No such command 'conduct'"),
    ],
)
def test_what_cannot_be_served_gets_one_line(in_tmp: Path, arguments: list[str], message: str) -> None:
    assert message in refused(hocket(*arguments))
    assert list(in_tmp.iterdir()) == []


def test_the_zoo_is_listed_with_table_1s_counts() -> None:
    rows = {row["name"]: row for row in json.loads(hocket("models", "--json").out)}
    assert len(rows) == 16
    assert rows["resnet50_v1"]["parameters"] == 108
    assert round(rows["inception_v3"]["bytes"] / 2**20, 2) == 103.54
    assert all(set(row) == {"name", "parameters", "bytes", "operations"} for row in rows.values())
    assert "vgg19_22k" in hocket("models").out


FACTORY = """
import torch

def small(batch_size):
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    batch = torch.randn(batch_size, 8), torch.randint(4, (batch_size,))
    return model, batch, torch.nn.functional.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1)
"""


def test_a_users_model_is_measured_planned_and_simulated(in_tmp: Path) -> None:
    (in_tmp / "mine.py").write_text(FACTORY)
    ran = hocket("profile", "mine.py:small", "--batch-size", "16", "--steps", "3", "-o", "step.json")
    assert ran.status == 0
    assert "without the profiler" in ran.err
    document = json.loads((in_tmp / "step.json").read_text())
    assert (document["model"], document["batch_size"], document["device"]) == ("small", 16, "cpu")
    assert {len(operation["duration_s"]) for operation in document["operations"]} == {3}
    assert {operation["phase"] for operation in document["operations"]} == {"forward", "backward", "update"}
    row = json.loads(hocket("simulate", "step.json", "--policy", "tac", "--workers", "4", "--json").out)
    assert row["workers"] == 4
    assert row["bound_s"] <= row["iteration_s"]


def test_a_device_that_is_not_here_is_derived(in_tmp: Path) -> None:
    (in_tmp / "mine.py").write_text(FACTORY)
    ran = hocket("profile", "mine.py:small", "--device", "k80", "--inference", "-o", "step.json.zst")
    assert ran.status == 0
    assert "calibration of k80" in ran.err
    row = json.loads(hocket("simulate", "step.json.zst", "--policy", "fifo", "--json").out)
    assert row["communication_s"] == pytest.approx(8 * 4 * (8 * 16 + 16 + 16 * 4 + 4) / 10e9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["profile", "nope", "-o", "s.json"], "model 'nope' is unknown"),
        (
            ["profile", "vgg16", "--device", "k90", "-o", "s.json"],
            "device 'k90' is unknown; did you mean 'k80'?",
        ),
        (["profile", "nope.py:f", "-o", "s.json"], "nope.py is not a file"),
        (["profile", "vgg16", "--batch-size", "0", "-o", "s.json"], "'--batch-size'"),
        (["profile", "vgg16", "-o", "no/where.json"], "does not exist; create it first"),
    ],
)
def test_what_cannot_be_profiled_gets_one_line(in_tmp: Path, arguments: list[str], message: str) -> None:
    assert message in refused(hocket(*arguments))
    assert list(in_tmp.iterdir()) == []
