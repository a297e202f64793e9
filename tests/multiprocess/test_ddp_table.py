"""The table of what DistributedDataParallel does: a case shows each row, and the page is the table."""

from __future__ import annotations

from typing import Any

import pytest

from tests.multiprocess import (
    ddp_cases,
    join_cases,
    parity_cases,
    short_cases,
    sparse_cases,
    test_surface,
    test_training,
)
from tests.multiprocess.ddp_table import SAME, page, rows
from tests.multiprocess.launch import ROOT, run

pytestmark = pytest.mark.slow

MODULE = "tests.multiprocess.ddp_cases"
RUN_BY_NAME = {
    *("another_group", "checkpointing", "a_pass_on_one_rank_alone", "refusals"),
    *(*test_training.PARITY, *test_surface.NAMES),
}
RUN = {
    case.__name__
    for cases in (
        *(ddp_cases.CASES, parity_cases.CASES, sparse_cases.CASES, test_training.BUFFER_CASES),
        *(test_training.GRADIENT_CASES, test_training.HELD_CASES, test_training.MEMBER_CASES),
        *(join_cases.CASES, test_training.BELOW_CASES, short_cases.CASES),
        *(test_training.MOMENT_CASES, test_training.ODD_CASES, test_training.SCRIPT_CASES),
    )
    for case in cases
}


@pytest.fixture(scope="module")
def of_cases() -> list[dict[str, list[str]]]:
    return run(f"{MODULE}:all_of_them")


@pytest.mark.parametrize("name", [case.__name__ for case in ddp_cases.CASES])
def test_what_ddps_own_tests_name_is_bitwise_the_same(of_cases: Any, name: str) -> None:
    assert [found[name] for found in of_cases] == [[], []]


def test_every_row_is_shown_by_a_case_that_runs() -> None:
    assert {row.case.__name__ for row in rows()} <= RUN | RUN_BY_NAME


def test_the_table_has_rows_enough_and_each_once() -> None:
    behaviours = [row.behaviour for row in rows()]
    assert len(behaviours) >= 60
    assert len(set(behaviours)) == len(behaviours)
    assert len({row.case for row in rows()}) == len(behaviours)


def test_a_row_is_the_same_or_refused_and_none_else() -> None:
    assert all(row.here == SAME or row.here.startswith("refused: ") for row in rows())


def test_the_page_is_the_table() -> None:
    assert (ROOT / "docs" / "ddp.md").read_text() == page()
