"""Frameworks with us in place of their DDP: the same parameters, losses and checkpoints, bit by bit."""

from __future__ import annotations

import pytest

from tests.multiprocess.launch import run

pytestmark = pytest.mark.slow

CASES = "tests.multiprocess.framework_cases"


@pytest.fixture(scope="module")
def of_lightning() -> list[dict[str, list[str]]]:
    return run(f"{CASES}:lightning_cases")


@pytest.fixture(scope="module")
def of_hugging_face() -> list[dict[str, list[str]]]:
    return run(f"{CASES}:hugging_face_cases")


@pytest.mark.parametrize("name", ["lightning_fabric", "lightning_trainer"])
def test_lightning_trains_as_with_its_ddp(of_lightning: list[dict[str, list[str]]], name: str) -> None:
    assert [found[name] for found in of_lightning] == [[], []]


@pytest.mark.parametrize("name", ["accelerate_loop", "transformers_trainer"])
def test_hugging_face_trains_as_with_its_ddp(of_hugging_face: list[dict[str, list[str]]], name: str) -> None:
    assert [found[name] for found in of_hugging_face] == [[], []]


def test_what_lightning_cannot_have_is_refused_in_one_line(of_lightning: list[dict[str, list[str]]]) -> None:
    first, second = (found["lightning_refusals"] for found in of_lightning)
    assert first == second
    manual, alone = first
    assert manual.startswith("Manual calls backward itself (automatic_optimization = False)")
    assert alone.endswith("set both up together: fabric.setup(model, optimizer)")


def test_what_accelerate_cannot_have_is_refused_in_one_line(
    of_hugging_face: list[dict[str, list[str]]],
) -> None:
    first, second = (found["accelerate_refusals"] for found in of_hugging_face)
    assert first == second
    hook, prepared, by_itself, shared = first
    assert hook.startswith("the communication hook 'power_sgd'")
    assert prepared == by_itself
    assert prepared.endswith("prepare both together: accelerator.prepare(model, optimizer)")
    assert shared.startswith("an optimizer updates two models")
