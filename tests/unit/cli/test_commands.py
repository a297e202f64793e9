"""The commands as scripts call them: one JSON document, or one line and exit status 2."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest
import typer

from hocket.cli.main import app, main

# Made once: typer makes it of every command's signature each time that it is called.
COMMAND = typer.main.get_command(app)
GOLDEN = Path(__file__).parents[2] / "golden"
STEP = str(GOLDEN / "tictac_fig1.step.json")
BRANCHES = str(GOLDEN / "branches.step.json")
CARAMEL = str(GOLDEN / "branches.caramel.plan.json")
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
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["hocket", *arguments]),
        mock.patch("hocket.cli.main.app", COMMAND),
        mock.patch("hocket.cli.printing._FIRST_LINE_S", 60.0),  # a busy machine is no part of what is tested
        mock.patch("hocket.cli.printing._WAITED_S", 60.0),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as stopped,
    ):
        main()
    out.flush()
    return Ran(int(stopped.value.code or 0), out.buffer.getvalue().decode(), err.getvalue())  # type: ignore[attr-defined]


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
    answer, assumptions, headings, *rows = ran.out.splitlines()
    assert answer == (
        "tac: 3 s a step on 1 worker and 1 server at 1 kbit/s, as long as fifo, and no "
        "order of as many transfers takes less."
    )
    assert "bandwidth 1 kbit/s" in assumptions
    assert headings.split() == ["Policy", "Step", "[s]", "Against", "fifo", "[%]"]
    assert [row.split()[0] for row in rows] == ["fifo", "tac", "Against", "Next:"]
    wide = hocket("simulate", STEP, "--policy", "tac", *NETWORK, "--wide").out
    assert "rho: N / C: communication over computation." in wide
    assert hocket("simulate", STEP, "--policy", "tac", *NETWORK, "-q").out == f"{answer}\n"


def test_a_document_has_no_columns_to_choose() -> None:
    ran = hocket("simulate", STEP, "--policy", "tac", "--json", "--wide")
    assert "--wide is for the table, and --json prints none; leave one of them out" in refused(ran)


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


def test_an_input_is_never_overwritten(in_tmp: Path) -> None:
    shutil.copy(STEP, "s.json")
    (in_tmp / "link.json").symlink_to("s.json")
    before = (in_tmp / "s.json").read_bytes()
    for output in ("s.json", "link.json"):
        assert "is also an input" in refused(hocket("plan", "s.json", "--policy", "tac", "-o", output))
        assert "is also an input" in refused(
            hocket("simulate", "s.json", "--policy", "tac", "--timeline", output)
        )
        assert "is also an input" in refused(hocket("report", "s.json", "-o", output))
    assert (in_tmp / "s.json").read_bytes() == before


def test_links_are_followed_and_pipes_stay_pipes(in_tmp: Path) -> None:
    (in_tmp / "real.json").write_text("old")
    (in_tmp / "real.json").chmod(0o640)
    (in_tmp / "link.json").symlink_to("real.json")
    assert hocket("plan", STEP, "--policy", "tac", "-o", "link.json").status == 0
    assert (in_tmp / "link.json").is_symlink()
    assert json.loads((in_tmp / "real.json").read_text())["policy"] == "tac"
    assert (in_tmp / "real.json").stat().st_mode & 0o777 == 0o640
    os.mkfifo("pipe")
    with subprocess.Popen(["cat", "pipe"], stdout=subprocess.PIPE) as reader:
        assert hocket("plan", STEP, "--policy", "tac", "-o", "pipe").status == 0
        out, _ = reader.communicate(timeout=20)
    assert json.loads(out)["policy"] == "tac"
    assert (in_tmp / "pipe").is_fifo()


def test_a_pipe_without_a_path_of_its_own_is_written_to(in_tmp: Path) -> None:
    """What /dev/stdout is in a pipeline, and the shell's ``>(program)``."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as pipe:
        with os.fdopen(writing, "w"):
            assert hocket("plan", STEP, "--policy", "tac", "-o", f"/dev/fd/{writing}").status == 0
        assert json.load(pipe)["policy"] == "tac"


@pytest.mark.parametrize("redirection", ["> /dev/full", ">&-"])
@pytest.mark.parametrize("json_flag", ["", "--json"])
def test_a_standard_output_that_takes_nothing(redirection: str, json_flag: str) -> None:
    command = f"{sys.executable} -m hocket simulate {STEP} --policy tac {json_flag} {redirection}"
    ran = subprocess.run(command, shell=True, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert ran.returncode == 2
    assert ran.stderr.startswith("hocket: ")
    assert ran.stderr.count("\n") == 1


@pytest.mark.long
@pytest.mark.timeout(300)  # it compiles everything
def test_it_runs_where_nothing_can_be_cached() -> None:
    # Numba finds no place for its cache when neither the package's folder nor a home can be written.
    code = (
        "import numba.core.caching as c; c.CacheImpl._locator_classes = [];"
        "import sys; sys.argv[1:] = ['simulate', sys.argv[1], '--policy', 'tac', '--json'];"
        "from hocket.__main__ import entry; entry()"
    )
    command = [sys.executable, "-c", code, STEP]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["policy"] == "tac"


def test_a_row_with_only_the_documented_keys_makes_a_report(in_tmp: Path) -> None:
    row = json.loads(hocket("simulate", STEP, "--policy", "tac", "--json").out)
    (in_tmp / "row.json").write_text(json.dumps({key: row[key] for key in ROW_KEYS}))
    assert hocket("report", "row.json", "-o", "report.html").status == 0


def test_an_error_line_can_be_read(in_tmp: Path) -> None:
    document = json.loads(Path(STEP).read_text())
    document["operations"][0]["inputs"] = ["\x1b[31m" + "z" * 10**6]
    (in_tmp / "s.json").write_text(json.dumps(document))
    line = refused(hocket("simulate", "s.json", "--policy", "tac"))
    assert len(line) < 1100
    assert line.isprintable() or line[:-1].isprintable()


def test_the_version_and_a_commands_help_are_printed() -> None:
    assert hocket("--version").out.startswith("hocket 0.")
    assert "--policy" in hocket("simulate", "--help").out


def test_a_simulation_without_a_policy_is_of_the_usual_one() -> None:
    for options, policy in (([], "ddp"), (["--servers", "1"], "fifo")):
        ran = hocket("simulate", BRANCHES, "--iterations", "2", "--json", *options)
        assert json.loads(ran.out)["policy"] == policy


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["simulate", STEP], "completes no gradient, so all-reduce has nothing to send"),
        (["simulate", STEP, "--policy", "tac", "--plan", "x"], "leave one of them out"),
        (["simulate", STEP, "--policy", "tak"], "policy 'tak' is unknown; did you mean 'tac'?"),
        (["simulate", STEP, "--plan", "missing.json"], "missing.json: cannot be read: No such file"),
        (["simulate", STEP, "--plan", STEP], "format: 'hocket.step/1' is not 'hocket.plan/1'"),
        (["simulate", "missing.json", "--policy", "tac"], "missing.json: cannot be read"),
        (
            ["simulate", STEP, "--policy", "tac", "--bandwidth", "10s"],
            "bandwidth '10s' has the unit of something else",
        ),
        (["simulate", STEP, "--policy", "tac", "--bandwidth", "0"], "bandwidth '0' is not positive"),
        (["simulate", STEP, "--policy", "tac", "--latency=-1s"], "duration '-1s' is negative"),
        (["simulate", STEP, "--policy", "tac", "--workers", "0"], "0 workers cannot train"),
        (
            ["simulate", STEP, "--policy", "tac", "--workers", "9" * 20],
            "99999999999999999999 workers are more than 1000000",
        ),
        (["simulate", STEP, "--policy", "tac", "--servers", "3"], "3 servers cannot share 2 parameters"),
        (["simulate", STEP, "--policy", "tac", "--workers", "many"], "'--workers'"),
        (["simulate", STEP, "--policy", "tac", "--iterations", "0"], "'--iterations'"),
        (["simulate", STEP, "--policy", "tac", "--seed", "-1"], "'--seed'"),
        (["simulate", STEP, "--policy", "tac", "--seed", "9" * 20], "'--seed'"),
        (["simulate", STEP, "--policy", "tac", "--architecture", "mesh"], "'--architecture'"),
        (
            ["simulate", STEP, "--policy", "tac", "--timeline", "no/where.json"],
            "does not exist; create it first",
        ),
        (["simulate", STEP, "--polcy", "tac"], "No such option"),
        (["plan", STEP], "a plan needs --policy NAME; hocket tune STEP -o plan.json ranks all policies"),
        (["plan", STEP, "--policy", "tac", "-o", "/proc/x"], "/proc"),
        (["report", STEP, "-o", "report.html"], "tictac_fig1.step.json: "),
        (["report", "-o", "report.html"], "RESULT"),
        (["demo", "--model", "nope", "-o", "there"], "model 'nope' is unknown"),
        (["demo", "-o", STEP], "cannot be made a folder"),
        (["demo", "--servers", "5000"], "5000 servers cannot share 116 parameters"),
        (["plan", STEP, "--policy", "tac", "-o", "x" * 300], "File name too long"),
        (["conduct"], "No such command 'conduct'"),
        (["plan", STEP, "--policy", "ddp", "--architecture", "ps"], "'ddp' is not for architecture 'ps'"),
        (["plan", STEP, "--policy", "tac", "--architecture", "allreduce"], "choose one of: wfbp, ddp"),
        (["plan", BRANCHES, "--policy", "caramel", "--fusion", "64MB"], "only horovod does"),
        (["plan", BRANCHES, "--policy", "ddp", "--barrier", "step"], "has none to choose"),
        (["plan", BRANCHES, "--policy", "tac", "--pattern", "ring"], "all-reduce"),
        (["plan", BRANCHES, "--policy", "ddp", "--parse-alpha", "fast"], "seconds per byte"),
        (["plan", BRANCHES, "--policy", "ddp", "--parse-alpha", "1MB"], "seconds per byte"),
        (["plan", BRANCHES, "--policy", "ddp", "--pattern", "star"], "'--pattern'"),
        (["plan", BRANCHES, "--policy", "search", "--budget", "0s"], "budget of 0.0 s is not between"),
        (["plan", BRANCHES, "--policy", "exact", "--barrier", "parameter"], "barrier per step"),
        (["simulate", BRANCHES, "--plan", CARAMEL, "--architecture", "ps"], "is for 'allreduce', not 'ps'"),
        (["simulate", BRANCHES, "--plan", CARAMEL, "--barrier", "step"], "has its own; change it there"),
        (["simulate", BRANCHES, "--plan", CARAMEL, "--fusion", "1MB"], "has its own batches"),
        (["simulate", BRANCHES, "--plan", CARAMEL, "--servers", "2"], "2 servers: all-reduce has none"),
        (["simulate", BRANCHES, "--plan", CARAMEL, "--window", "28MB"], "a window of 28000000 B is for"),
        (["simulate", BRANCHES, "--policy", "caramel", "--servers", "2"], "2 servers: all-reduce has none"),
        (["plan", BRANCHES, "--policy", "ddp", "--servers", "2"], "2 servers: all-reduce has none"),
        (["plan", BRANCHES, "--policy", "ddp", "--window", "28MB"], "all-reduce has none; leave it out"),
        (["plan", BRANCHES, "--policy", "tac", "--window", "wide"], "write it like 28MB or 4MiB, or off"),
        (["plan", BRANCHES, "--policy", "exact", "--window", "10B"], "may cut a transfer in two"),
        (["tune", BRANCHES, "--architecture", "allreduce", "--window", "28MB"], "a window of 28000000 B"),
        (
            ["tune", BRANCHES, "--architecture", "allreduce", "--servers", "2"],
            "2 servers: all-reduce has none",
        ),
        (
            ["plan", BRANCHES, "--policy", "exact", "--architecture", "allreduce", "--fusion", "1MB"],
            "exact finds",
        ),
        (["tune", BRANCHES, "--servers", "5"], "5 servers cannot share 4 parameters"),
        (["tune", BRANCHES, "--bandwidth", "0bit/s"], "bandwidth '0bit/s' is not positive"),
        (["tune", BRANCHES, "-o", BRANCHES], "is also an input"),
    ],
)
def test_what_cannot_be_served_gets_one_line(in_tmp: Path, arguments: list[str], message: str) -> None:
    assert message in refused(hocket(*arguments))
    assert list(in_tmp.iterdir()) == []


def test_the_zoo_is_listed_with_table_1s_counts() -> None:
    rows = {row["name"]: row for row in json.loads(hocket("models", "--json").out)}
    assert len(rows) == 18
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

DRAWING = """
import torch

class Drawing(torch.nn.Linear):
    def forward(self, rows):
        return super().forward(torch.randn(rows, 8)).sum()

def small():
    model = Drawing(8, 4)
    return model, {"rows": 5}, None, torch.optim.SGD(model.parameters(), lr=0.1)
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


def test_a_function_that_makes_one_size_is_counted_so(in_tmp: Path) -> None:
    fixed = FACTORY.replace("(batch_size):", "():\n    batch_size = 5")
    (in_tmp / "mine.py").write_text(fixed)
    profiled = ["profile", "mine.py:small", "--device", "k80", "-o", "step.json"]
    assert hocket(*profiled).status == 0
    assert json.loads((in_tmp / "step.json").read_text())["batch_size"] == 5
    ran = hocket(*profiled, "--batch-size", "16")
    assert (ran.status, json.loads((in_tmp / "step.json").read_text())["batch_size"]) == (0, 16)
    assert "mine.py:small takes no batch_size: its first input holds 5, counted as 16 as you say" in ran.err
    (in_tmp / "mine.py").write_text(DRAWING)
    assert "its batch shows none; give --batch-size" in refused(hocket(*profiled))


def test_a_function_that_needs_values_is_derived_with_memory(in_tmp: Path) -> None:
    (in_tmp / "deep.py").write_text(
        """
import torch
from torch import nn

def job(batch_size):
    rates = [each.item() for each in torch.linspace(0, 0.1, 3)]
    model = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Dropout(rate)) for rate in rates))
    nn.init.orthogonal_(model[0][0].weight)
    batch = torch.randn(batch_size, 8), torch.randn(batch_size, 8)
    return model, batch, nn.MSELoss(), torch.optim.SGD(model.parameters(), lr=0.1)
"""
    )
    ran = hocket("profile", "deep.py:job", "--device", "v100", "--batch-size", "4", "-o", "step.json")
    assert ran.status == 0, ran.err
    names = [parameter["name"] for parameter in json.loads((in_tmp / "step.json").read_text())["parameters"]]
    assert names[:2] == ["0.0.weight", "0.0.bias"]


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
        (
            ["profile", "alexnet_v2", "--device", "k80", "--batch-size", "9" * 14, "-o", "s.json"],
            "alexnet_v2 cannot be made with a batch of 99999999999999: RuntimeError",
        ),
        (["profile", "vgg16", "--jitter", "0.1", "-o", "s.json"], "jitter 0.1: steps measured on cpu vary"),
        (
            ["profile", "vgg16", "--device", "k80", "--threads", "2", "-o", "s.json"],
            "2 threads: nothing runs to derive a step for k80",
        ),
        (["profile", "vgg16", "--device", "k80", "--jitter", "nan", "-o", "s.json"], "'--jitter'"),
    ],
)
def test_what_cannot_be_profiled_gets_one_line(in_tmp: Path, arguments: list[str], message: str) -> None:
    assert message in refused(hocket(*arguments))
    assert list(in_tmp.iterdir()) == []


def test_a_device_that_is_not_there_is_refused_before_anything_is_loaded(
    in_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    message = "device 'cuda' is not there; measure on cpu, or derive a device such as v100"
    assert message in refused(hocket("profile", "nope.py:f", "--device", "cuda", "-o", "s.json"))
