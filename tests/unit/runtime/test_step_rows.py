"""Rows that every recorded step has."""

from __future__ import annotations

import torch

from hocket.graph import OperationRow, StepRows, step_from_rows
from hocket.runtime.observe.step_rows import parameter_rows, unused_row


def test_bytes_are_those_that_travel() -> None:
    types = {"exact": torch.float64, "long": torch.float32, "brief": torch.bfloat16, "pair": torch.complex64}
    rows = parameter_rows({name: torch.zeros(3, dtype=t) for name, t in types.items()}, torch.float16)
    assert [(row.name, row.dtype, row.bytes) for row in rows] == [
        ("exact", "float64", 6),
        ("long", "float32", 6),
        ("brief", "bfloat16", 6),
        ("pair", "complex64", 24),
    ]


def test_parameters_that_no_step_used_have_a_place_in_the_graph() -> None:
    parameters = {"w": torch.zeros(2, 3), "h": torch.zeros(5, dtype=torch.bfloat16)}
    rows = [
        OperationRow("forward", "forward", 1.0, [], ["w"], []),
        OperationRow("backward", "backward", 2.0, ["forward"], [], ["w"]),
    ]
    rows.append(unused_row(rows[-1].name, (name for name in parameters if name == "h")))
    graph = step_from_rows(
        StepRows(
            model="m", batch_size=1, device="cpu", parameters=parameter_rows(parameters), operations=rows
        )
    )
    assert graph.parameter_shapes == ((2, 3), (5,))
    assert graph.parameter_dtypes == ("float32", "bfloat16")
    assert graph.parameter_bytes.tolist() == [24, 10]
    assert graph.produced.all()
    assert graph.oracle_s.tolist() == [1.0, 2.0, 0.0]
