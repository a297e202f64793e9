"""What ``hocket``, ``--help`` and refused command lines say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hocket.cli import command_help
from tests.unit.cli.test_commands import BRANCHES, CARAMEL, COMMAND, STEP, hocket, refused

HELP = Path(__file__).parent / "help"
DOORS = ("Train faster", "Predict before you rent", "Share a cluster", "Study the algorithms")


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def _commands(command: Any, *names: str) -> Iterator[tuple[str, ...]]:
    yield names
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, *names, name)


COMMANDS = list(_commands(COMMAND))


def test_the_name_alone_shows_an_example_for_each_purpose() -> None:
    ran = hocket()
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert len(lines) < 40
    for door in DOORS:
        (at,) = [k for k, line in enumerate(lines) if line.startswith(door)]
        assert lines[at + 1].startswith("  hocket ")


@pytest.mark.parametrize("line", [line.strip() for line in hocket().out.splitlines() if "  hocket" in line])
def test_the_examples_have_options_that_there_are(line: str) -> None:
    """What they do is tried elsewhere: here, whether a newcomer may type them."""
    _, *rest = line.split()
    command: Any = COMMAND
    while hasattr(command, "commands"):
        command = command.commands[rest.pop(0)]
    valid = {name for parameter in command.loaded.params for name in parameter.opts} | {"--nproc-per-node"}
    assert {part for part in rest if part.startswith("-")} <= valid


@pytest.mark.parametrize("names", COMMANDS, ids=" ".join)
def test_help_fits(names: tuple[str, ...]) -> None:
    ran = hocket(*names, "--help")
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0].startswith(" ".join(["Usage: hocket", *names]))
    assert len(lines) <= (39 if names == () else 62)
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("names", COMMANDS, ids=" ".join)
def test_help_is_as_it_was(names: tuple[str, ...]) -> None:
    """HOCKET_SCREENS=write writes what is shown now."""
    shown = "".join(f"{line.rstrip()}\n" for line in hocket(*names, "--help").out.splitlines())
    kept = HELP / f"{'-'.join(('hocket', *names))}.txt"
    if os.environ.get("HOCKET_SCREENS") == "write":
        HELP.mkdir(exist_ok=True)
        kept.write_text(shown)
    assert shown == kept.read_text(), "HOCKET_SCREENS=write takes it as it is"


@pytest.mark.parametrize("names", COMMANDS, ids=" ".join)
def test_help_of_a_narrow_terminal_is_narrow(monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    lines = hocket(*names, "--help").out.splitlines()
    # A name, or a command to copy, is not broken.
    assert [line for line in lines if len(line) > 60 and len(line.split()) > 3] == []


@pytest.mark.parametrize("names", COMMANDS, ids=" ".join)
def test_every_option_is_explained_somewhere(names: tuple[str, ...]) -> None:
    command: Any = COMMAND
    for name in names:
        command = command.commands[name]
    command = getattr(command, "loaded", command)
    option = "--help-all" if any(p.name == "help_all" for p in command.params) else "--help"
    shown = hocket(*names, option).out
    for parameter in command.params:
        if parameter.param_type_name == "option" and parameter.name not in ("help_all", "show_completion"):
            assert parameter.help, parameter.name
            assert re.search(rf"^  .*{parameter.opts[-1]}\b", shown, re.MULTILINE), parameter.opts


def test_rare_options_are_counted_and_listed_on_request() -> None:
    usual, everything = hocket("predict", "--help").out, hocket("predict", "--help-all").out
    assert "--oversubscription" not in usual
    assert "more options, for special cases: hocket predict --help-all" in usual
    assert "--oversubscription" in everything
    assert "more options" not in everything


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["predic"], "Did you mean 'predict'? See 'hocket --help'."),
        (["cluster", "simulat"], "Did you mean 'simulate'? See 'hocket cluster --help'."),
        (["predict", "x.json", "--worker", "4"], "--workers). See 'hocket predict --help'."),
        (
            ["plan", "x.json", "--policy", "tac", "--architecture", "PSs"],
            "'PSs' is not one of 'ps', 'allreduce', 'fsdp'; did you mean 'ps'? See 'hocket plan --help'.",
        ),
        (["plan", "x.json"], "writes the best plan. See 'hocket plan --help'."),
        (["lab", "up", "--nodes", "two"], "See 'hocket lab up --help'."),
        (["tune", "x.json", "--workers", "4,16"], "hocket predict STEP --workers 4,16"),
        (["tune", "x.json", "--workers", "four"], "Invalid value for '--workers': 'four' "),
    ],
)
def test_a_refused_line_names_the_help_that_explains_it(arguments: list[str], message: str) -> None:
    assert message in refused(hocket(*arguments))


def test_quiet_prints_the_result_alone() -> None:
    hocket("plan", BRANCHES, "--policy", "ddp")  # loads the planner, which shows progress after a second
    told = hocket("plan", BRANCHES, "--policy", "ddp")
    quiet = hocket("plan", BRANCHES, "--policy", "ddp", "-q")
    assert told.err
    assert (quiet.err, quiet.out) == ("", told.out)
    assert hocket("-q", "plan", BRANCHES, "--policy", "ddp").err == ""
    assert hocket("plan", BRANCHES, "--policy", "ddp").err == told.err  # it is of that command alone
    assert "'nope' is unknown" in refused(hocket("plan", BRANCHES, "--policy", "nope", "-q"))


def test_verbose_says_where_an_error_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOCKET_LOG", "warning")  # it stays as it was given
    ran = hocket("plan", BRANCHES, "--policy", "nope", "-v")
    assert ran.status == 2
    assert "Traceback" in ran.err
    assert ran.err.splitlines()[-1].startswith("hocket: policy 'nope' is unknown")
    refused(hocket("plan", BRANCHES, "--policy", "nope"))
    monkeypatch.setenv("HOCKET_DEBUG", "1")
    assert "Traceback" in hocket("plan", BRANCHES, "--policy", "nope").err


def test_a_table_is_as_wide_as_columns_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    table = hocket("models").out.splitlines()
    assert max(map(len, table)) <= 60
    monkeypatch.delenv("COLUMNS")
    assert "\x1b" not in hocket("models").out  # not a terminal


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("hocket plan s.json --policy ta", {"tac"}),
        ("hocket tune s.json --architecture ", {"ps", "allreduce", "fsdp"}),
        ("hocket predict s.json --mode a", {"async"}),
        ("hocket simulate s.json --pattern r", {"ring"}),
        ("hocket simulate s.json --policy ca", {"caramel"}),
        ("hocket cluster simulate j.json --placement l", {"ls", "lwf-1"}),
        ("hocket cluster sweep --policies ada-srsf,kw", {"ada-srsf,kway"}),
        ("hocket cluster run j.json --policy ki", set()),
        ("hocket profile resnet50_v", {"resnet50_v1", "resnet50_v2"}),
        ("hocket profile alexnet_v2 --device h", {"h100", "h100-pcie", "h200"}),
        ("hocket train --plan bytes", {"bytescheduler"}),
        ("hocket train --nproc", {"--nproc-per-node"}),
        ("hocket train --max-restarts 1 --timel", {"--timeline"}),
        ("hocket train --nonsense 1 --timel", {"--timeline"}),
        ("hocket reproduce tict", {"tictac"}),
    ],
)
def test_shells_complete_names(monkeypatch: pytest.MonkeyPatch, words: str, expected: set[str]) -> None:
    monkeypatch.setenv("_HOCKET_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
    assert set(hocket().out.split()) == expected


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", BRANCHES, "--policy", "TAC"],
        ["simulate", BRANCHES, "--policy", "Tac", "--architecture", "PS", "--json"],
        ["simulate", BRANCHES, "--policy", "DDP", "--workers", "2", "--pattern", "Ring", "--json"],
        [
            "predict",
            BRANCHES,
            "--policy",
            "TIC",
            "--mode",
            "Sync",
            "--workers",
            "2",
            "--steps",
            "4",
            "--json",
        ],
    ],
)
def test_names_are_taken_in_any_case(arguments: list[str]) -> None:
    ran = hocket(*arguments)
    assert ran.status == 0, ran.err
    asked = arguments[arguments.index("--policy") + 1]
    document = json.loads(ran.out)
    row = document[0] if isinstance(document, list) else document
    assert row["policy"] == asked.lower()


@pytest.mark.parametrize(
    ("arguments", "workers"),
    [
        (["simulate", BRANCHES, "--policy", "ddp"], 4),
        (["simulate", BRANCHES, "--plan", CARAMEL], 4),
        (["simulate", BRANCHES, "--policy", "tac"], 1),
        (["simulate", BRANCHES, "--policy", "search", "--budget", "1ms"], 4),
        (["simulate", BRANCHES, "--policy", "search", "--budget", "1ms", "--servers", "2"], 1),
        (["simulate", BRANCHES, "--policy", "ddp", "--workers", "3"], 3),
        (["tune", BRANCHES, "--budget", "1ms"], 4),
    ],
)
def test_workers_that_nobody_gave_are_the_same_in_every_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], workers: int
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = hocket(*arguments, "--json")
    assert ran.status == 0, ran.err
    document = json.loads(ran.out)
    rows = document.get("ranked", [document])
    assert {row["workers"] for row in rows} == {workers}
    assert document["assumed"].get("workers") == (None if "--workers" in arguments else workers)


def test_what_tune_wrote_is_simulated_as_it_was_ranked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    slow = ["--bandwidth", "1kbit/s"]
    tuned = json.loads(hocket("tune", BRANCHES, *slow, "--budget", "1ms", "-o", "t.json", "--json").out)
    row = json.loads(hocket("simulate", BRANCHES, "--plan", "t.json", *slow, "--json").out)
    assert row["iteration_s"] == tuned["ranked"][0]["iteration_s"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["predict", "mine.py"],
            "mine.py: is not JSON but a script; it becomes a step by hocket profile mine.py:",
        ),
        (["predict", "AlexNet_v2"], "is a model, and a step is asked for: hocket profile alexnet_v2 -o"),
        (["predict", "trace.json"], "trace.json: is a profiler's trace; hocket import kineto makes a step"),
        (["import", "kineto", BRANCHES, "-o", "o"], f"{BRANCHES}: format: 'hocket.step/1' is ours already; "),
        (["import", "chakra", BRANCHES, "-o", "o"], f"{BRANCHES}: format: 'hocket.step/1' is ours already; "),
        (["import", "kineto", "mine.py", "-o", "o"], "mine.py: is not JSON but a script"),
        (
            ["predict", CARAMEL],
            "'hocket.plan/1' is not 'hocket.step/1', needed here; hocket simulate, predict, bench and train"
            " take it as --plan",
        ),
        (["simulate", BRANCHES, "--plan", BRANCHES], "needed here; hocket plan, simulate, tune and predict"),
        (
            ["simulate", "other.json", "--plan", CARAMEL],
            "the plan is of model 'toy', the step of 'other': make one of this step: hocket plan STEP",
        ),
        (["train", BRANCHES], "is no script; give a file that Python runs"),
    ],
)
def test_a_file_in_another_ones_place_gets_the_line_that_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("import torch\n")
    (tmp_path / "trace.json").write_text('{"traceEvents": []}')
    step = json.loads(Path(STEP).read_text())
    (tmp_path / "other.json").write_text(json.dumps({**step, "model": "other"}))
    assert message in refused(hocket(*arguments))


def test_a_device_is_taken_in_any_case(tmp_path: Path) -> None:
    step = tmp_path / "step.json"
    ran = hocket("profile", "AlexNet_v2", "--device", "H100", "--batch-size", "2", "-o", str(step))
    assert ran.status == 0, ran.err
    document = json.loads(step.read_text())
    assert (document["model"], document["device"]) == ("alexnet_v2", "h100")


def test_placements_and_policies_of_a_cluster_are_taken_in_any_case(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.json"
    assert hocket("cluster", "generate", "Paper", "--jobs", "5", "-o", str(jobs)).status == 0
    ran = hocket("cluster", "simulate", str(jobs), "--placement", "LWF-1", "--policy", "Ada-SRSF", "--json")
    assert ran.status == 0, ran.err
    assert json.loads(ran.out)["placement"] == "lwf-1"


ABSENT = """
import sys


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == {package!r} or name.startswith({package!r} + "."):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, Absent())
sys.argv = ["hocket", *{arguments!r}]
from hocket.__main__ import entry

entry()
"""


@pytest.mark.parametrize(
    ("package", "extra", "arguments"),
    [
        ("torch", "torch", ["profile", "alexnet_v2", "-o", "step.json"]),
        ("torch", "torch", ["demo"]),
        ("torch", "torch", ["models"]),
        ("torch", "torch", ["network", "measure"]),
        ("torch", "torch", ["train", "train.py"]),
        ("torch", "torch", ["bench", "train"]),
        ("ortools", "optimal", ["plan", BRANCHES, "--policy", "exact"]),
        ("ray", "ray", ["predict", BRANCHES, "--workers", "2", "--engine", "ray"]),
        ("ray", "ray", ["cluster", "serve", "--placement=ff", "--policy=srpt", "--state=s", "--engine=ray"]),
        ("grpc", "grpc", ["train", "--architecture", "ps", "--transport", "grpc", "train.py"]),
        ("google.protobuf", "chakra", ["export", "chakra", BRANCHES, "-o", "step.et"]),
        ("google.protobuf", "chakra", ["import", "chakra", BRANCHES, "-o", "step.json"]),
    ],
)
def test_a_missing_package_is_a_line_that_installs_it(
    tmp_path: Path, package: str, extra: str, arguments: list[str]
) -> None:
    (tmp_path / "train.py").write_text("")
    code = ABSENT.format(package=package, arguments=arguments)
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    assert ran.returncode == 2, ran.stderr
    assert ran.stderr.count("\n") == 1
    assert f"pip install '.[{extra}]' in a clone of Hocket" in ran.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", BRANCHES, "--policy", "tac"],
        ["simulate", BRANCHES, "--policy", "tac"],
        ["tune", BRANCHES, "--budget", "1ms"],
        ["predict", BRANCHES, "--workers", "2", "--steps", "8"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_steps_that_are_there_are_planned_and_predicted_without_torch(
    tmp_path: Path, arguments: list[str]
) -> None:
    code = ABSENT.format(package="torch", arguments=arguments)
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("name", command_help.EXAMPLES)
def test_a_command_without_its_argument_is_told_one_that_has_it(name: str) -> None:
    ran = hocket(*name.split())
    assert (ran.status, ran.out) == (2, "")
    (line,) = ran.err.splitlines()
    assert f"; for example: hocket {name} {command_help.EXAMPLES[name]}. See " in line
    command: Any = COMMAND
    for part in name.split():
        command = command.commands[part]
    loaded = getattr(command, "loaded", command)
    options = {opt for parameter in loaded.params for opt in parameter.opts} | {"--nproc-per-node"}
    assert {part for part in command_help.EXAMPLES[name].split() if part.startswith("-")} <= options
