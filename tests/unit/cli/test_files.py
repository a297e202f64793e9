"""Where commands read from and write to: pipes, what the shell opened, names of any kind."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from hocket.cli.main import main
from hocket.cluster.jobs import JobSet
from hocket.cluster.jobs_file import write_jobs
from hocket.document import check_writable, write_whole
from hocket.errors import HocketError
from tests.unit.cli.test_cluster import job
from tests.unit.cli.test_commands import BRANCHES, STEP, hocket, in_tmp, refused

__all__ = ["in_tmp"]

PLAN = ("plan", STEP, "--policy", "tac")


@contextlib.contextmanager
def standard_input(path: str) -> Iterator[None]:
    kept = os.dup(0)
    with open(path, "rb") as file:
        os.dup2(file.fileno(), 0)
    try:
        yield
    finally:
        os.dup2(kept, 0)
        os.close(kept)


def test_a_dash_is_standard_input_and_output(in_tmp: Path) -> None:
    printed = hocket(*PLAN)
    with standard_input(STEP):
        ran = hocket("plan", "-", "--policy", "tac", "-o", "-")
    assert ran.status == 0, ran.err
    assert json.loads(ran.out) == json.loads(printed.out)
    assert ran.err.startswith("tac: 2 s a step")
    assert list(in_tmp.iterdir()) == []


def test_what_the_shell_opened_is_written_to_and_not_replaced(in_tmp: Path) -> None:
    """Where /dev/stdout is a file behind ``>>``, and the same of ``3>> plans.json -o /dev/fd/3``."""
    with open("plans.json", "ab") as opened:
        opened.write(b"first\n")
        opened.flush()
        ran = hocket(*PLAN, "-o", f"/dev/fd/{opened.fileno()}")
        assert ran.status == 0, ran.err
        assert "replaced" not in ran.err
        opened.write(b"\nlast")
    first, plan, last = (in_tmp / "plans.json").read_text().splitlines()
    assert (first, json.loads(plan)["policy"], last) == ("first", "tac", "last")
    assert os.listdir() == ["plans.json"]
    ran = hocket(*PLAN, "-o", "/dev/stdout")
    assert json.loads(ran.out)["policy"] == "tac"
    assert "Bad file descriptor" in refused(hocket(*PLAN, "-o", "/dev/fd/987654"))


@pytest.mark.parametrize(
    "arguments",
    [
        ("simulate", STEP, "--policy", "tac", "--json", "--timeline", "-"),
        ("simulate", STEP, "--policy", "tac", "--timeline", "/dev/stdout"),
        ("predict", STEP, "--json", "--plot", "-"),
        ("tune", STEP, "--json", "-o", "/dev/fd/1"),
        ("tune", STEP, "--report", "-"),
        ("network", "measure", "--json", "-o", "-"),
    ],
)
def test_nothing_else_stands_where_the_result_is_printed(arguments: tuple[str, ...], in_tmp: Path) -> None:
    assert "standard output is for the result; name a file" in refused(hocket(*arguments))
    assert list(in_tmp.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "written"),
    [
        (("plan", STEP, "--policy", "tac", "-o", "out"), "out"),
        (("tune", BRANCHES, "--budget", "0.1s"), "branches.tuned.plan.json"),
        (("simulate", BRANCHES, "--timeline", "out"), "out"),
        (("predict", BRANCHES, "--workers", "2", "--steps", "20", "--plot", "out"), "out"),
        (("cluster", "generate", "paper", "--jobs", "2", "-o", "out"), "out"),
    ],
)
def test_a_file_that_is_replaced_is_said_to_be(command: tuple[str, ...], written: str, in_tmp: Path) -> None:
    said = f"{written}: the file that was there is replaced"
    for before in (None, ""):
        if before is not None:
            Path(written).write_text(before)
        assert said not in hocket(*command).err.splitlines()
    ran = hocket(*command)
    assert ran.status == 0, ran.err
    assert said in ran.err.splitlines()
    assert said not in hocket("-q", *command).err
    assert said not in hocket(*command, "--latency", "fast").err


def test_two_outputs_are_not_one_file(in_tmp: Path) -> None:
    tuned = refused(hocket("tune", STEP, "-o", "out", "--report", "./out"))
    assert "out: is to be both the page and the plan; name two files" in tuned
    assert list(in_tmp.iterdir()) == []


def test_notes_do_not_take_the_place_of_a_closed_standard_error() -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    arguments = ["hocket", "predict", BRANCHES, "--workers", "1,2", "--steps", "4", "--json"]
    with (
        mock.patch.object(sys, "argv", arguments),
        mock.patch.object(sys, "stderr", None),
        contextlib.redirect_stdout(out),
        pytest.raises(SystemExit) as stopped,
    ):
        main()
    assert stopped.value.code == 0
    out.seek(0)
    assert len(json.load(out)) == 2


def test_a_name_that_a_locale_cannot_print_is_escaped(in_tmp: Path) -> None:
    plan = json.loads(hocket(*PLAN).out)
    (in_tmp / "plan.json").write_text(json.dumps(plan | {"policy": "\u03c4"}))
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    with (
        mock.patch.object(sys, "argv", ["hocket", "simulate", STEP, "--plan", "plan.json"]),
        contextlib.redirect_stdout(out),
        pytest.raises(SystemExit) as stopped,
    ):
        main()
    assert stopped.value.code == 0
    out.seek(0)
    assert "\\u03c4" in out.read()


def test_a_file_whose_name_is_no_text_is_named_in_one_line(in_tmp: Path) -> None:
    name = os.fsdecode(b"\xff.json")
    write_jobs(JobSet(jobs=(job("a", 1),)), name)
    simulated = ("cluster", "simulate", name, "--placement", "ff", "--policy", "fifo")
    assert r"'\udcff.json' is not UTF-8, and JSON is; rename the file" in refused(
        hocket(*simulated, "--json")
    )
    assert hocket(*simulated).status == 0


def test_a_file_in_a_folder_that_takes_no_other_is_refused_before_the_work(in_tmp: Path) -> None:
    """It is replaced by a finished neighbour, which cannot be there."""
    (in_tmp / "plan.json").write_text("old")

    def access(path: os.PathLike[str], mode: int) -> bool:
        return Path(path) != in_tmp

    with mock.patch.object(os, "access", access):
        check_writable("/dev/null")
        for name in ("plan.json", "new.json"):
            with pytest.raises(HocketError, match="does not permit it"):
                write_whole(b"new", name)
    assert (in_tmp / "plan.json").read_text() == "old"


@pytest.mark.parametrize(
    ("step", "plan"),
    [("vgg.k80.json", "vgg.k80.tuned.plan.json"), (".step.json", "step.tuned.plan.json")],
)
def test_a_tuned_plan_is_named_after_all_of_the_steps_name(step: str, plan: str, in_tmp: Path) -> None:
    (in_tmp / step).write_bytes(Path(BRANCHES).read_bytes())
    ran = hocket("tune", step, "--budget", "10ms", "--iterations", "1", "--json")
    assert json.loads(ran.out)["plan"] == plan
    assert (in_tmp / plan).is_file()
