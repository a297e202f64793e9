"""Named tensors as bytes, without pickles: a table as JSON, then each tensor's bytes."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import msgspec
import torch

from hocket.runtime.ps.wire.model_spec import TensorSpec, tensor_specs
from hocket.runtime.ps.wire.transport import TransportError

#: tensors by name, and what else belongs to them as JSON holds it
PackedValues = tuple[dict[str, torch.Tensor], dict[str, Any]]

_LENGTH = struct.Struct("<Q")
_ALIGNED_BYTES = 16


class PackedTable(msgspec.Struct, frozen=True):
    """The table before the bytes: each tensor's row, in their order, and other values."""

    tensors: list[TensorSpec]
    others: dict[str, Any]


def pack(tensors: Mapping[str, torch.Tensor], others: Mapping[str, Any] | None = None) -> torch.Tensor:
    """``tensors``, and what else JSON holds, as a flat uint8 tensor."""
    table = msgspec.json.encode(PackedTable(list(tensor_specs(tensors)), dict(others or {})))
    table += b" " * (-(_LENGTH.size + len(table)) % _ALIGNED_BYTES)
    parts = [torch.frombuffer(bytearray(_LENGTH.pack(len(table)) + table), dtype=torch.uint8)]
    for tensor in tensors.values():
        whole = tensor.detach().resolve_conj().resolve_neg().contiguous()
        data = whole.reshape(-1).view(torch.uint8)
        parts += [data, torch.zeros(-len(data) % _ALIGNED_BYTES, dtype=torch.uint8)]
    return torch.cat(parts)


def table_of(data: torch.Tensor) -> PackedTable:
    """The table of what was packed, without its tensors; raises TransportError where there is none."""
    return _table(data)[0]


def unpack(data: torch.Tensor) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The tensors and other values that were packed; TransportError where the bytes do not add up."""
    table, end = _table(data)
    tensors = {}
    for row in table.tensors:
        if end + row.size_bytes > len(data):
            raise TransportError(f"'{row.name}' is cut: {len(data) - end} bytes of {row.size_bytes}")
        tensors[row.name] = data[end : end + row.size_bytes].view(row.torch_dtype).reshape(row.shape).clone()
        end += row.size_bytes + -row.size_bytes % _ALIGNED_BYTES
    if end != len(data):
        raise TransportError(f"{len(data) - end} bytes too many behind the tensors")
    return tensors, table.others


def overwrite(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Put ``value`` in ``tensor``; memory that elements share, where it is expanded, is written to once."""
    once = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in tensor.stride())
    tensor[once].copy_(value.view(tensor.shape)[once])


def _table(data: torch.Tensor) -> tuple[PackedTable, int]:
    """The table, and where it ends."""
    try:
        (length,) = _LENGTH.unpack(data[: _LENGTH.size].numpy().tobytes())
        end = _LENGTH.size + length
        return msgspec.json.decode(data[_LENGTH.size : end].numpy().tobytes(), type=PackedTable), end
    except (struct.error, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TransportError(f"what came holds no tensors ({error})") from None
