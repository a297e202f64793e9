"""Gradients on their way that answer some calls before they have arrived: norms, and scaling in place.

Such calls come from clipping, torch's and that of frameworks, from GradScaler, or from a script. A norm is
told as soon as it is known, and a factor is kept and put to the gradient when that is there. Lists may have
other tensors among them, which get the call as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from hocket.runtime.lazy.gradient import PendingGradient, wait_for

_HAS_TO_ARRIVE: Any = object()


@dataclass(frozen=True)
class Scaling:
    """A call that scales a gradient in place: ``put`` does it, ``factor`` is by how much."""

    put: Callable[[torch.Tensor], object]
    factor: float | torch.Tensor


class Promise(Protocol):
    """A gradient on its way, of which something is known already."""

    def answers_early(self) -> bool:
        """Tell whether it answers anything before it arrives."""

    def norm(self, order: float) -> torch.Tensor | None:
        """Its norm of an ``order``, a tensor of one element; None: it has to arrive first."""

    def is_finite(self) -> bool | None:
        """Tell whether all elements are finite of what nothing has scaled; None: it has to arrive first."""

    def scale(self, scaling: Scaling) -> bool:
        """Have it scaled when it arrives; False: it has to arrive first."""


class PromisedGradient(PendingGradient):
    """A gradient on its way with a ``promise``; None: it has arrived."""

    promise: Promise | None

    @staticmethod
    def of(reduced_gradient: torch.Tensor, wait: Callable[[], None], promise: Promise) -> PromisedGradient:
        """One that stands for ``reduced_gradient``, which is usable once ``wait`` has returned."""
        made: PromisedGradient = PromisedGradient(reduced_gradient, wait)
        made.promise = promise
        return made

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if args and (answer := _ANSWERS.get(func)) is not None:
            result = answer(func, *args, **(kwargs or {}))
            if result is not _HAS_TO_ARRIVE:
                return result
        return super().__torch_function__(func, types, args, kwargs)


def _promise(value: Any) -> Promise | None:
    return value.promise if isinstance(value, PromisedGradient) else None


def _itself(func: Any, x: Any) -> Any:
    """As what has its memory, and no history, it is as good as any other tensor."""
    del func
    promise = _promise(x)
    return x if promise is not None and promise.answers_early() else _HAS_TO_ARRIVE


# Norms.


def _vector_norm(
    func: Any,
    x: Any,
    ord: Any = 2,  # noqa: A002
    dim: Any = None,
    keepdim: bool = False,
    **others: Any,
) -> Any:
    del func
    if (
        not isinstance(ord, int | float)
        or dim is not None
        or keepdim
        or any(value is not None for value in others.values())
    ):
        return _HAS_TO_ARRIVE
    promise = _promise(x)
    norm = None if promise is None else promise.norm(float(ord))
    return _HAS_TO_ARRIVE if norm is None else norm


def _tensor_norm(
    func: Any, x: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, **others: Any
) -> Any:
    return _vector_norm(func, x, 2 if p == "fro" else p, dim, keepdim, **others)


def _norms(func: Any, tensors: Sequence[Any], ord: Any = 2, dtype: Any = None) -> Any:  # noqa: A002
    norms = [_vector_norm(func, x, ord, dtype=dtype) for x in tensors]
    left = [norm is _HAS_TO_ARRIVE for norm in norms]
    others = iter(_of_others(func, tensors, left, ord, dtype) or ())
    return tuple(next(others) if is_left else norm for norm, is_left in zip(norms, left, strict=True))


# Scaling.


def _scaled(func: Any, x: Any, *factors: Any, **others: Any) -> Any:
    if len(factors) != 1 or others or (kept := _kept(*factors)) is None:
        return _HAS_TO_ARRIVE
    promise = _promise(x)
    scaling = Scaling(lambda gradient: func(gradient, kept), _by(func, kept))
    return x if promise is not None and promise.scale(scaling) else _HAS_TO_ARRIVE


def _all_scaled(func: Any, tensors: Sequence[Any], *factors: Any, **others: Any) -> Any:
    if len(factors) != 1 or others or (kept := _kept(*factors)) is None:
        return _HAS_TO_ARRIVE
    scaling = Scaling(lambda gradient: func([gradient], kept), _by(func, kept))
    promises = [_promise(x) for x in tensors]
    left = [promise is None or not promise.scale(scaling) for promise in promises]
    _of_others(func, tensors, left, *factors)
    return None


def _unscaled(func: Any, tensors: Sequence[Any], found_inf: torch.Tensor, inv_scale: torch.Tensor) -> Any:
    """As GradScaler does it: ``found_inf`` is 1 where an element of any is not finite."""
    kept = inv_scale.clone()

    def put(gradient: torch.Tensor) -> None:
        func([gradient], torch.zeros_like(found_inf), kept)

    left = []
    for x in tensors:
        promise = _promise(x)
        is_finite = None if promise is None else promise.is_finite()
        if promise is None or is_finite is None or not promise.scale(Scaling(put, kept)):
            left.append(True)
            continue
        left.append(False)
        if not is_finite:
            found_inf.fill_(1.0)
    _of_others(func, tensors, left, found_inf, inv_scale)
    return None


def _kept(factor: Any) -> float | torch.Tensor | None:
    """``factor`` as it is now, whatever becomes of it; None: it is none for every element, or 0."""
    if type(factor) in (int, float):
        number: float = factor
        return number or None
    if type(factor) is torch.Tensor and not factor.ndim and not factor.requires_grad:
        return factor.clone() if factor.is_floating_point() else None
    return None


def _by(func: Any, factor: float | torch.Tensor) -> float | torch.Tensor:
    if func in _DIVISIONS:
        return factor.double().reciprocal() if isinstance(factor, torch.Tensor) else 1.0 / factor
    return factor


def _of_others(func: Any, tensors: Sequence[Any], left: Sequence[bool], *more: Any) -> Any:
    """Call ``func`` for those ``tensors`` that are ``left``, once they are there; its answers."""
    others = [
        wait_for(x) if isinstance(x, PendingGradient) else x
        for x, is_left in zip(tensors, left, strict=True)
        if is_left
    ]
    return func(others, *more) if others else None


_Tensor = torch.Tensor
_DIVISIONS = {_Tensor.div_, _Tensor.__itruediv__, torch._foreach_div_}
_DATA: Any = _Tensor.data
_ANSWERS: dict[Any, Callable[..., Any]] = {
    _Tensor.detach: _itself,
    _DATA.__get__: _itself,
    torch.linalg.vector_norm: _vector_norm,
    _Tensor.norm: _tensor_norm,
    torch.norm: _tensor_norm,
    torch._foreach_norm: _norms,
    _Tensor.mul_: _scaled,
    _Tensor.div_: _scaled,
    _Tensor.__imul__: _scaled,
    _Tensor.__itruediv__: _scaled,
    torch._foreach_mul_: _all_scaled,
    torch._foreach_div_: _all_scaled,
    torch._amp_foreach_non_finite_check_and_unscale_: _unscaled,
}
