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
    """Clip the gradients of a distributed model by their norm, as ``torch.nn.utils.clip_grad_norm_`` does.

    The norm is that of the reduced gradients, the same on every rank. Where the plan sums them up in halves
    this waits for the first halves alone, as torch's own does, and the step goes on into the next forward
    pass; else for all of them. With synchronous parameter servers gradients
    have left the model for good: the servers clip their sum, and ``.grad`` keeps what this worker computed.
    With asynchronous ones the norm is that of this worker's own gradients.

    Parameters
    ----------
    model
        The model that :func:`hocket.distribute` returned.
    max_norm
        The norm that gradients are scaled down to where theirs is larger.
    norm_type
        The p of the p-norm; ``inf`` for the largest element.
    error_if_nonfinite
        Raise a RuntimeError, as torch does, where the norm is infinite or no number.
    foreach
        As torch's: compute many tensors at once; None: where that is faster.

    Returns
    -------
    The norm of all gradients before, a tensor of one element.

    Raises
    ------
    HocketError
        When the model is not distributed; with servers that have backup workers, or without a backward pass
        since the last step.
    RuntimeError
        When the norm is infinite or no number, and ``error_if_nonfinite`` is asked for.

    Examples
    --------
    >>> import hocket, torch
    >>> import torch.distributed as dist
    >>> # A script for torchrun gives "gloo" alone.
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> model = torch.nn.Linear(4, 2)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> model, optimizer = hocket.distribute(model, optimizer)
    >>> model(torch.ones(3, 4)).sum().backward()
    >>> norm = hocket.clip_grad_norm_(model, max_norm=1.0)
    >>> optimizer.step()
    >>> dist.destroy_process_group()
    """
    handle = getattr(model, "hocket", None)  # what torch.compile made of a model has its attributes
    if handle is None:
        raise HocketError("the model to clip is not distributed; call hocket.distribute first")
    norm: torch.Tensor = handle.clip_grad_norm(max_norm, norm_type, error_if_nonfinite, foreach)
    return norm
