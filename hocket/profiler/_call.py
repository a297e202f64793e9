"""Calls of operators as data: what a cost can be reckoned from, without torch and without the tensors."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor
from torch._ops import OpOverload

from hocket.profiler._operators import accesses, base_name, extents, tensors


class SeenTensor(NamedTuple):
    """A tensor as a call sees it."""

    shape: tuple[int, ...]
    dtype: str
    stride: tuple[int, ...]


class Call(NamedTuple):
    """A call of an operator."""

    name: str
    args: tuple[Any, ...]
    """With :class:`SeenTensor` in place of tensors; keyword arguments follow, without their names."""
    results: tuple[SeenTensor, ...]
    read_bytes: float
    written_bytes: float
    """Each argument and each result once, what lies between the elements of a view included."""


def call_of(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Call:
    """Describe one call; arguments and result may be fake tensors."""
    read, written = accesses(func, args, kwargs)
    known = {extent.key for extent in (*read, *written)}
    fresh = [e for tensor in tensors(result) for e in extents(tensor) if e.key not in known]
    return Call(
        base_name(func),
        tuple(_seen(value) for value in (*args, *kwargs.values())),
        tuple(_seen(tensor) for tensor in tensors(result)),
        float(sum(extent.end - extent.begin for extent in dict.fromkeys((*read, *written)))),
        float(sum(extent.end - extent.begin for extent in {*written, *fresh})),
    )


def _seen(value: Any) -> Any:
    if isinstance(value, Tensor):
        return SeenTensor(tuple(value.shape), str(value.dtype).removeprefix("torch."), tuple(value.stride()))
    if isinstance(value, list | tuple):
        return tuple(_seen(item) for item in value)
    return value if isinstance(value, bool | int | float | str) or value is None else str(value)
