"""Clipping by the norm of all gradients, exactly."""

from __future__ import annotations

import torch

from hocket.errors import HocketError


def clip_grad_norm_(
    model: torch.nn.Module,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> torch.Tensor:
    """Clip the gradients of ``model`` as ``torch.nn.utils.clip_grad_norm_`` does; returns their norm.

    The norm is that of the reduced gradients, the same on every rank, so this waits for all of them: a step
    that clips by norm cannot go on into the next forward pass. With parameter servers gradients are clipped
    there, and the model keeps its own; the step is taken then, since servers give nothing back.

    Raises
    ------
    HocketError
        When the model is not distributed.
    """
    handle = getattr(model, "hocket", None)  # what torch.compile made of a model has its attributes
    if handle is None:
        raise HocketError("the model to clip is not distributed; call hocket.distribute first")
    norm: torch.Tensor = handle.clip_grad_norm(max_norm, norm_type, error_if_nonfinite, foreach)
    return norm
