"""What rich prints: the bar on standard error, and tables."""

from __future__ import annotations

import re
import time

import pytest
from rich.table import Table

import hocket.kernel  # noqa: F401  # as commands that plan do
from hocket.cli.printing import note_table, print_table, progress, reset_verbosity


def test_what_a_user_wrote_is_shown_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes standard error for a terminal then
    with progress("planning [/x] [bold]") as report:
        report(1, 2)
        report(2, 2, "simulating [/y]")
    shown = capsys.readouterr().err
    assert "planning [/x] [bold]" in shown or "simulating [/y]" in shown


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_says_while_kernels_are_compiled(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reset_verbosity()
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr("hocket.cli.printing._FIRST_LINE_S", 0.0)
    for compiling in (False, True):
        monkeypatch.setattr("hocket.kernel.is_compiling", lambda now=compiling: now)
        with progress("planning") as report:
            report(1, 2)
            time.sleep(0.1)  # for the thread that prints
        told = capsys.readouterr().err
        assert "planning" in told
        assert ("compiling, once on this machine" in told) == compiling


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("is_even", [False, True])
def test_the_time_left_is_told_where_parts_of_the_work_take_alike(
    terminal: bool, is_even: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reset_verbosity()
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr("hocket.cli.printing._FIRST_LINE_S", 0.2)
    with progress("counting", is_even=is_even) as report:
        time.sleep(0.1)
        report(1, 1000)
        until_s = time.process_time() + 0.3
        while time.process_time() < until_s:  # a line comes after so much computing
            pass
        time.sleep(0.1)  # for the thread that prints
    told = capsys.readouterr().err
    assert "counting" in told
    assert ("left" in told) == is_even


def test_no_line_of_a_table_ends_in_spaces_also_where_a_style_ends_behind_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reset_verbosity()  # a command before this test may have been a quiet one
    monkeypatch.setenv("FORCE_COLOR", "1")
    table = Table(box=None)
    for heading in ("figure", "what is in use"):
        table.add_column(heading)
    table.add_row("1", "network", style="bold")
    table.add_row("2", "")
    print_table(table)
    note_table(table)
    told = capsys.readouterr()
    for text in (told.out, told.err):
        assert "\x1b[1m" in text
        plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
        assert plain.split("\n") == [" figure  what is in use", " 1       network", " 2", ""]
