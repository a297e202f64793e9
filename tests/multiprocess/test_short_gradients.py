"""Gradients in half the bytes: DistributedDataParallel's with torch's hooks, on two ranks and on three."""

from __future__ import annotations

from typing import Any

import pytest

from tests.multiprocess.launch import run
from tests.multiprocess.short_cases import CASES

MODULE = "tests.multiprocess.short_cases"


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def of_cases(request: pytest.FixtureRequest) -> list[dict[str, list[str]]]:
    return run(f"{MODULE}:all_of_them", world=request.param)


@pytest.mark.parametrize("name", [case.__name__ for case in CASES])
def test_parameters_are_ddps_with_torchs_hook(of_cases: Any, name: str) -> None:
    assert [found[name] for found in of_cases] == [[] for _ in of_cases]


def test_what_cannot_be_had_is_refused_in_one_line() -> None:
    first, second = run(f"{MODULE}:refusals")
    assert first == second
    begins = [
        "communication hook 'powerSGD_hook' is written for the buckets of",
        "communication hook 'fp16_compress_wrapper.<locals>.fp16_compress_wrapper_hook' is written for",
        "the state of communication hook 'fp16_compress_hook' is of type int, and is not",
        "gradients have travelled for 1 step as they are; have them travel as torch.float16 before",
        "gradient_dtype is torch.int8; give torch.bfloat16 or torch.float16",
        "'weight' has sparse gradients, which travel as they are and not as torch.bfloat16; give",
        "'weight' has sparse gradients, which travel as they are and not as torch.bfloat16; give",
        "gradients travel as their own type on rank 0 and as torch.bfloat16 on rank 1; give",
    ]
    assert [line[: len(begin)] for line, begin in zip(first, begins, strict=True)] == begins
    assert all("; " in line and "\n" not in line for line in first)
