"""Gradients that are still on their way: what ``parameter.grad`` is between its transfer's start and its end.

Code that reads one (clipping, GradScaler, a log line) waits for it, and gets what it has become. So code that
knows nothing of the plan stays right, and only what nobody reads can go on travelling.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map_only


class PendingGradient(torch.Tensor):
    """Stands for ``reduced_gradient``, a gradient that is usable once ``wait`` has returned."""

    reduced_gradient: torch.Tensor
    wait: Callable[[], None]

    @staticmethod
    def __new__(cls, reduced_gradient: torch.Tensor, wait: Callable[[], None]) -> PendingGradient:  # noqa: D102
        pending: PendingGradient = torch.Tensor._make_wrapper_subclass(
            cls,
            reduced_gradient.size(),
            strides=reduced_gradient.stride(),
            dtype=reduced_gradient.dtype,
            device=reduced_gradient.device,
            layout=reduced_gradient.layout,
        )
        # Its own memory is none: who takes the address for that is refused, not given a null pointer.
        torch._C._set_throw_on_mutable_data_ptr(pending)
        pending.reduced_gradient = reduced_gradient
        pending.wait = wait
        return pending

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return repr(wait_for(self))

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in METADATA:
            return func(*tree_map_only(PendingGradient, _unawaited, args))
        return func(*_without_pending(args), **_without_pending(kwargs or {}))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # Autograd's own accumulation comes this way: it calls no Python function of torch.
        return func(*_without_pending(args), **_without_pending(kwargs or {}))


def _getter(name: str) -> Any:
    return getattr(torch.Tensor, name).__get__


# Attributes asked of every gradient before its values are wanted.
METADATA = {
    _getter(name)
    for name in (
        "device",
        "dtype",
        "grad_fn",
        "is_leaf",
        "is_sparse",
        "layout",
        "ndim",
        "requires_grad",
        "shape",
    )
} | {torch.Tensor.dim, torch.Tensor.numel, torch.Tensor.size, torch.Tensor.stride}


def _unawaited(pending: PendingGradient) -> torch.Tensor:
    return pending.reduced_gradient


def wait_for(pending: PendingGradient) -> torch.Tensor:
    """The gradient that ``pending`` becomes."""
    pending.wait()
    return pending.reduced_gradient


def _without_pending(values: Any) -> Any:
    return tree_map_only(PendingGradient, wait_for, values)
