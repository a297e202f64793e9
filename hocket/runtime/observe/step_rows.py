"""Rows of a step graph that say the same of every step, however it was recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from hocket.graph import OperationRow, ParameterRow
from hocket.runtime.transfers.gradient_types import type_on_wire


def parameter_rows(
    parameters: Mapping[str, torch.Tensor], gradient_dtype: torch.dtype | None = None
) -> list[ParameterRow]:
    """A row for each of ``parameters``, which are given by name, in their order.

    Bytes are those that travel where longer gradients do so as ``gradient_dtype``.
    """
    return [
        ParameterRow(
            name, list(p.shape), str(p.dtype).removeprefix("torch."), bytes_on_wire(p, gradient_dtype)
        )
        for name, p in parameters.items()
    ]


def bytes_on_wire(p: torch.Tensor, gradient_dtype: torch.dtype | None) -> int:
    """The bytes that the gradient of ``p`` has on its way, where longer ones travel as ``gradient_dtype``."""
    return p.numel() * type_on_wire(p.dtype, gradient_dtype).itemsize


def unused_row(last: str, names: Iterable[str]) -> OperationRow:
    """An operation that completes gradients of ``names``, unused in recorded steps, at once after ``last``.

    Such a parameter has a place in every plan all the same: the next step may use it.
    """
    return OperationRow("unused", "backward", 0.0, [last], [], list(names))
