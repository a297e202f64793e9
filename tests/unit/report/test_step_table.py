"""The ranking in the terminal: the page's columns, numbers and order."""

import io

import pytest
from fake_runs import fake_row
from rich.console import Console

from hocket.columns import fitting, in_one_line, legend, terminal_table
from hocket.report.step_table import ranking_columns, step_columns
from hocket.text import decimals_for, number_text


def printed(rows, width=80, wide=True):
    console = Console(file=io.StringIO(), width=width)
    columns = fitting(step_columns(rows, wide=wide), width)
    console.print(terminal_table(columns))
    return console.file.getvalue()


def test_best_first_within_eighty_columns():
    rows = [fake_row("random", overlap=0.4), fake_row("tac", overlap=0.9), fake_row("layerwise", overlap=0.7)]
    lines = printed(rows).splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["tac", "layerwise", "random"]
    assert all(len(line) <= 80 for line in lines)
    assert "…" not in "".join(lines)


def test_markup_in_a_name_is_shown_as_it_is():
    assert "[red]x[/nope]" in printed([fake_row("[red]x[/nope]")], width=120)


def test_the_terminal_shows_what_the_page_shows():
    rows = [fake_row("tac")]
    for column in ranking_columns(rows):
        assert column.cells[0].text in printed(rows, width=200)


@pytest.mark.parametrize(
    ("largest", "decimals"), [(0.01, 3), (9.9, 3), (10, 2), (999, 1), (1e4, 0), (float("inf"), 0)]
)
def test_decimals_leave_four_digits_of_the_largest(largest, decimals):
    assert decimals_for([0.0, largest]) == decimals


def test_a_short_step_beside_a_long_one_does_not_read_0():
    rows = [fake_row("a", compute_s=3000.0, spread=0.0), fake_row("b", spread=0.0)]
    times = ranking_columns(rows)[1]
    assert times.unit == "min"
    assert [cell.text for cell in times.cells] == ["50.00", "0.00593"]


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
    assert ranking_columns([row])[-1].cells[0].text == "0.0"


def test_few_columns_compare_with_the_usual_policy():
    rows = [fake_row("tac", iteration_s=0.3), fake_row("fifo", iteration_s=0.4, bound_s=0.25)]
    columns = step_columns(rows)
    assert [column.heading for column in columns] == ["Policy", "Step time", "Against fifo"]
    assert [cell.text for cell in columns[2].cells] == ["-25.0", "0.0"]
    assert [column.heading for column in columns if column.needs_word] == ["Against fifo"]
    assert "Over bound" in [column.heading for column in step_columns(rows, wide=True)]
    assert "Against fifo" not in [column.heading for column in step_columns(rows[:1])]


def test_longer_steps_have_a_sign():
    rows = [fake_row("fifo", iteration_s=0.4), fake_row("random", iteration_s=0.42)]
    (against,) = [column for column in step_columns(rows) if column.heading == "Against fifo"]
    assert sorted(cell.text for cell in against.cells) == ["+5.0", "0.0"]


def test_what_does_not_fit_is_left_out_whole():
    columns = step_columns([fake_row("tac"), fake_row("fifo")], wide=True)
    for width in range(1, 120):
        kept = fitting(columns, width)
        assert kept == columns[: len(kept)]
        assert len(kept) >= 2
        lines = printed([fake_row("tac"), fake_row("fifo")], width).splitlines()
        if len(kept) > 2:
            assert len(lines) == 4  # two of headings: nothing is broken in two
            assert max(map(len, lines)) <= width
    assert fitting(columns, 1000) == columns


def test_a_legend_says_each_heading_once_without_its_unit():
    columns = in_one_line(step_columns([fake_row("tac"), fake_row("fifo")]))
    assert [column.title for column in columns][1:3] == ["Step [ms]", "Against fifo [%]"]
    assert legend(columns[2:3]) == "Against fifo: the step's difference, + longer and - shorter."


def test_steps_that_would_be_alike_stand_beside_those_that_differ() -> None:
    rows = [fake_row("tac"), fake_row("fifo"), fake_row("random")]
    assert "If alike" not in [column.heading for column in step_columns(rows, alike_s={})]
    columns = step_columns(rows, alike_s={"tac": 0.25, "fifo": 0.5})
    policies, alike = columns[0], columns[-1]
    found = {policy.text: cell.value for policy, cell in zip(policies.cells, alike.cells, strict=True)}
    assert (alike.title, found) == ("If alike", {"tac": 250.0, "fifo": 500.0, "random": None})
