"""Reads, writes and results of a dispatched operator, in bytes of storages."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.multiprocessing.reductions import StorageWeakRef

from hocket.errors import HocketError
from hocket.profiler._memory import Extent

# These kernels update their running statistics without their schema saying so.
_WRITES_RUNNING_STATISTICS = ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm")


@cache
def _written_arguments(func: OpOverload) -> frozenset[str]:
    return frozenset(
        argument.name
        for argument in func._schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    )


def accesses(
    func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[Extent], list[Extent]]:
    """Memory that the call reads, and that it writes; an argument changed in place counts as written only."""
    named = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
    written_names = _written_arguments(func)
    if base_name(func) in _WRITES_RUNNING_STATISTICS and named["training"]:
        written_names |= {"running_mean", "running_var"}
    read: list[Extent] = []
    written: list[Extent] = []
    for name, value in named.items():
        touched = written if name in written_names else read
        touched.extend(extent for tensor in tensors(value) for extent in extents(tensor))
    return read, written


def does_work(func: OpOverload, reads: bool, writes: bool, makes: bool, returns_tensors: bool) -> bool:
    # Exchanges among ranks are no work of a step's: plans and networks say what those take.
    if func.namespace in ("profiler", "prim", "c10d", "_c10d_functional") or "empty" in base_name(func).split(
        "_"
    ):
        return False
    return writes or makes or (reads and not returns_tensors)


def ignores_values(func: OpOverload) -> bool:
    """True if the operator takes shapes and types from its arguments, but no values."""
    name = base_name(func)
    return name.endswith("_like") or name.startswith("new_")


def base_name(func: OpOverload) -> str:
    return func._schema.name.rpartition("::")[2]


def short_name(func: OpOverload) -> str:
    return base_name(func) if func.namespace == "aten" else f"{func.namespace}.{base_name(func)}"


def tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors(item)


def extents(tensor: Tensor) -> Iterator[Extent]:
    if tensor.layout == torch.sparse_coo:
        parts = [tensor._indices(), tensor._values()]
    elif tensor.layout == torch.strided:
        parts = [tensor]
    else:
        raise HocketError(f"a tensor of layout {tensor.layout} cannot be followed; use strided or sparse_coo")
    for part in parts:
        size = part.element_size()
        begin = int(part.storage_offset()) * size
        steps = zip(part.shape, part.stride(), strict=True)
        last = sum((extent - 1) * stride for extent, stride in steps) if part.numel() else -1
        # The weak reference keeps the storage's address from being given to another one.
        storage = StorageWeakRef(part.untyped_storage())  # type: ignore[no-untyped-call]
        yield Extent(storage, begin, begin + (last + 1) * size)
