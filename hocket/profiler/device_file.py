"""Datasheets of devices that Hocket does not know, in a file of the user's."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Literal

import msgspec

from hocket.datasheets import DEVICES, MEASURED_DEVICES, Device, Number, device_name
from hocket.document import decode, read_bytes
from hocket.errors import FormatError

_FORMAT = "hocket.device/1"


class _DeviceRows(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A datasheet as ``hocket.device/1`` writes it."""

    format: Literal["hocket.device/1"]
    name: str
    peak_flops: dict[Number, float]
    memory_bytes_per_s: float
    memory_bytes: float
    multiprocessors: int
    l2_bytes: float = 0.0


def load_device(path: str | Path) -> Device:
    """Read a datasheet of your own from a ``hocket.device/1`` file.

    Raises
    ------
    FormatError
        Naming the file, the field and the rule.
    """
    rows = decode(read_bytes(path), _DeviceRows, _FORMAT, str(path))
    if "float32" not in rows.peak_flops:
        raise FormatError(str(path), "peak_flops.float32", "is missing; every device multiplies float32")
    sizes = {
        **{f"peak_flops.{number}": peak for number, peak in rows.peak_flops.items()},
        **{name: getattr(rows, name) for name in ("memory_bytes_per_s", "memory_bytes", "multiprocessors")},
    }
    for name, value in sizes.items():
        if not 0 < value < inf:
            raise FormatError(str(path), name, f"is {value:g}; give a number above 0")
    if device_name(rows.name) in DEVICES or rows.name in MEASURED_DEVICES:
        raise FormatError(str(path), "name", f"'{rows.name}' is a device that is there; give another")
    return Device(
        name=rows.name,
        title=rows.name,
        peaks=rows.peak_flops,
        bandwidth_bps=rows.memory_bytes_per_s,
        memory_bytes=rows.memory_bytes,
        multiprocessors=rows.multiprocessors,
        l2_bytes=rows.l2_bytes,
    )
