"""What rich prints: the bar on standard error, and tables."""

from __future__ import annotations

import re

import pytest
from rich.table import Table

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
