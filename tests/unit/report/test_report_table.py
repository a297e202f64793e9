"""The ranking in the terminal: the page's columns, numbers and order."""

import io

import pytest
from fake_runs import fake_row
from rich.console import Console

from hocket.report import terminal_table
from hocket.report.table import decimals_for, number_text, ranking_table, time_unit


def printed(rows, width=80):
    console = Console(file=io.StringIO(), width=width)
    console.print(terminal_table(rows))
    return console.file.getvalue()


def test_best_first_within_eighty_columns():
    rows = [fake_row("random", overlap=0.4), fake_row("tac", overlap=0.9), fake_row("layerwise", overlap=0.7)]
    lines = printed(rows).splitlines()
    assert [line.split()[:2] for line in lines[2:]] == [["1", "tac"], ["2", "layerwise"], ["3", "random"]]
    assert all(len(line) <= 80 for line in lines)
    assert "…" not in "".join(lines)


def test_markup_in_a_name_is_shown_as_it_is():
    assert "[red]x[/nope]" in printed([fake_row("[red]x[/nope]")], width=120)


def test_the_terminal_shows_what_the_page_shows():
    rows = [fake_row("tac")]
    for cell in ranking_table(rows).rows[0]:
        assert cell.text in printed(rows, width=200)


@pytest.mark.parametrize(
    ("longest_s", "symbol"), [(0.0, "µs"), (2e-5, "µs"), (1e-3, "ms"), (0.9, "ms"), (1.0, "s")]
)
def test_time_units(longest_s, symbol):
    assert time_unit([0.0, longest_s]).symbol == symbol


@pytest.mark.parametrize(
    ("largest", "decimals"), [(0.01, 3), (9.9, 3), (10, 2), (999, 1), (1e4, 0), (float("inf"), 0)]
)
def test_four_digits(largest, decimals):
    assert decimals_for([0.0, largest]) == decimals


def test_a_short_step_beside_a_long_one_does_not_read_0():
    rows = [fake_row("a", compute_s=3000.0, spread=0.0), fake_row("b", spread=0.0)]
    assert [cells[1].text for cells in ranking_table(rows).rows] == ["3000", "0.356"]


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [
        (0.0, 0, "0"),
        (0.4, 0, "0.4"),
        (0.994, 1, "0.994"),
        (9.95, 0, "10"),
        (9.9, 0, "9.9"),
        (1e-9, 3, "1e-09"),
    ],
)
def test_numbers_keep_two_digits(value, decimals, text):
    assert number_text(value, decimals) == text


def test_rounding_never_shows_a_negative_zero():
    row = fake_row(iteration_s=0.3 - 1e-12, bound_s=0.3)
    assert ranking_table([row]).rows[0][-1].text == "0.0"
