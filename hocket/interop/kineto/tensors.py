"""Tensors as a trace describes them: an operator's arguments, their extents, types and bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hocket.interop.kineto.events import HostSpan, whole

_ITEM_BYTES = {
    **{"long": 8, "long int": 8, "int64": 8},
    **{"double": 8, "float64": 8, "complexfloat": 8, "complexdouble": 16},
    **{"float": 4, "int": 4, "float32": 4, "int32": 4},
    **{"half": 2, "bfloat16": 2, "c10::half": 2, "c10::bfloat16": 2, "float16": 2, "short": 2, "int16": 2},
    **{"byte": 1, "char": 1, "bool": 1, "int8": 1, "uint8": 1, "unsigned char": 1, "signed char": 1},
    **{"float8_e4m3fn": 1, "float8_e5m2": 1},
}
_DTYPES = {
    **{"float": "float32", "double": "float64", "half": "float16", "c10::half": "float16"},
    **{"c10::bfloat16": "bfloat16", "int": "int32", "long": "int64", "long int": "int64"},
}


Tensor = tuple[list[int], str, int]
"""Extents, type and bytes."""

ShapeOf = Callable[[HostSpan], Tensor | None]
"""A function that tells what an operator's input is."""


def item_bytes(dtype: str) -> int | None:
    """Bytes of an element of a type as a trace names it; None for one that is not known."""
    return _ITEM_BYTES.get(dtype.lower())


def dtype_name(dtype: str) -> str:
    """The type as PyTorch's tensors name it."""
    return _DTYPES.get(dtype.lower(), dtype.lower())


def tensor_of(shape: Any, dtype: Any) -> Tensor | None:
    """Extents, type and bytes of a tensor as a trace describes it; None where that is no tensor's."""
    size = item_bytes(dtype) if isinstance(dtype, str) else None
    if size is None or not isinstance(shape, list):
        return None
    for extent in shape:
        known = whole(extent)
        if known is None or known < 0:
            return None
        size *= known
    return shape, dtype_name(dtype), size


def first_tensor(event: HostSpan) -> Tensor | None:
    """An operator's first argument, if that is a tensor and was recorded."""
    return tensor_argument(event, 0)


def lacks_types(event: HostSpan) -> bool:
    """Tell whether an operator's shapes were recorded and its types were not, as PyTorch 1.8 does it."""
    return not event.args.types and isinstance(event.args.shapes, list) and len(event.args.shapes) > 0


def tensor_argument(event: HostSpan, place: int) -> Tensor | None:
    """An operator's argument at ``place``, if that is a tensor and was recorded; float32 without types."""
    shapes, types = event.args.shapes, event.args.types
    if lacks_types(event):
        types = ["float"] * len(shapes)
    if not (isinstance(shapes, list) and isinstance(types, list) and min(len(shapes), len(types)) > place):
        return None
    shape = shapes[place]
    # A list of one tensor, as collectives take it.
    if isinstance(shape, list) and len(shape) == 1 and isinstance(shape[0], list):
        shape = shape[0]
    return tensor_of(shape, types[place])
