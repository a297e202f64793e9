"""Rows of a step graph that say the same of every step, however it was recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from hocket.graph import OperationRow, ParameterRow


def parameter_rows(parameters: Mapping[str, torch.Tensor]) -> list[ParameterRow]:
    """A row for each of ``parameters``, which are given by name, in their order."""
    return [
        ParameterRow(name, list(p.shape), str(p.dtype).removeprefix("torch."), p.nbytes)
        for name, p in parameters.items()
    ]


def unused_row(last: str, names: Iterable[str]) -> OperationRow:
    """An operation that completes gradients of ``names``, unused in recorded steps, at once after ``last``.

    Such a parameter has a place in every plan all the same: the next step may use it.
    """
    return OperationRow("unused", "backward", 0.0, [last], [], list(names))
