"""Updates that wait for gradients: each for its own, or one for all."""

from __future__ import annotations

import pytest

from hocket.graph import StepGraph
from hocket.graph.format_rules import OperationRow, ParameterRow, StepRows, step_from_rows
from hocket.graph.update_operations import waits_for_all_gradients

NAMES = ["a", "b"]


def step(*updates: OperationRow, names: list[str] = NAMES) -> StepGraph:
    backward = [OperationRow(f"{name} backward", "backward", 1.0, [], [], [name]) for name in names]
    parameters = [ParameterRow(name, [1], "float32", 4) for name in names]
    rows = StepRows(
        model="toy", batch_size=1, device="toy", parameters=parameters, operations=[*backward, *updates]
    )
    return step_from_rows(rows)


def update(name: str, *inputs: str, reads: tuple[str, ...] = ()) -> OperationRow:
    return OperationRow(name, "update", 1.0, list(inputs), list(reads), [])


BACKWARD = [f"{name} backward" for name in NAMES]
OF_EACH = [update(f"update {name}", f"{name} backward", reads=(name,)) for name in NAMES]
SCALED = [update(f"update {name}", "norm", reads=(name,)) for name in NAMES]


@pytest.mark.parametrize(
    ("updates", "waits"),
    [
        ([], False),
        (OF_EACH, False),
        ([update("norm", *BACKWARD), *SCALED], True),
        ([update("optimizer", *BACKWARD, reads=("a", "b"))], True),
    ],
)
def test_a_norm_over_all_gradients_is_waited_for(updates: list[OperationRow], waits: bool) -> None:
    assert waits_for_all_gradients(step(*updates)) is waits


def test_one_parameter_alone_has_no_others_to_wait_for() -> None:
    assert not waits_for_all_gradients(step(OF_EACH[0], names=["a"]))
