"""Types in which gradients travel: their own, or one of half the bytes."""

from __future__ import annotations

import torch

from hocket.errors import HocketError

HALVES = (torch.bfloat16, torch.float16)
"""The types in which gradients may travel that are longer themselves."""


def type_on_wire(own: torch.dtype, asked: torch.dtype | None) -> torch.dtype:
    """The type in which gradients of type ``own`` travel where ``asked`` was asked for; None: nothing was."""
    shrinks = asked is not None and own.is_floating_point and own.itemsize > asked.itemsize
    return asked if asked is not None and shrinks else own


def check_gradient_type(asked: object) -> torch.dtype | None:
    """``asked``, if gradients may travel so.

    Raises
    ------
    HocketError
        For anything but None, bfloat16 and float16.
    """
    if asked is None or asked in HALVES:
        return asked
    raise HocketError(
        f"gradient_dtype is {asked!r}; give torch.bfloat16 or torch.float16, or leave it out for gradients"
        " that travel as they are"
    )
