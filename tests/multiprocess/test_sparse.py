"""Gradients that are sparse, complex or of odd forms against DistributedDataParallel's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.multiprocess.launch import run
from tests.multiprocess.sparse_cases import CASES

pytestmark = pytest.mark.slow

MODULE = "tests.multiprocess.sparse_cases"


@pytest.fixture(scope="module")
def of_cases() -> list[dict[str, list[str]]]:
    return run(f"{MODULE}:all_of_them")


@pytest.mark.parametrize("name", [case.__name__ for case in CASES])
def test_sparse_complex_and_odd_gradients_are_bitwise_ddps(of_cases: Any, name: str) -> None:
    assert [found[name] for found in of_cases] == [[], []]


@pytest.mark.slow
def test_sparse_gradients_of_three_ranks_are_ddps() -> None:
    assert run(f"{MODULE}:three_ranks", world=3) == [[], [], []]


@pytest.mark.slow
def test_compiled_steps_with_sparse_and_complex_gradients_are_bitwise_ddps() -> None:
    assert run(f"{MODULE}:compiled") == [[], []]
