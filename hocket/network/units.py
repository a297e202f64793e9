"""Quantities with units: ``10Gbit/s``, ``28MB``, ``50us``; a bare number is in the base unit."""

from __future__ import annotations

import math
import re

from hocket.errors import HocketError

_PREFIXES = {
    "": 1.0,
    "n": 1e-9,
    "u": 1e-6,
    "µ": 1e-6,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
}
_QUANTITY = re.compile(
    r"\s*(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*"
    r"(?P<prefix>Ki|Mi|Gi|[numkMGµ])?(?P<unit>bit/s|B/s|B|s)?\s*",
    re.ASCII,
)


def parse_bandwidth(text: str) -> float:
    """Bits per second; ``10Gbit/s`` and ``1.25GB/s`` are the same. Raises HocketError unless positive."""
    value = _parse(text, "bandwidth", {"bit/s": 1.0, "B/s": 8.0}, "10Gbit/s or 1.25GB/s")
    if value <= 0:
        raise HocketError(f"bandwidth '{text}' is not positive; give one like 10Gbit/s")
    return value


def parse_duration(text: str) -> float:
    """Seconds; ``50us`` is 5e-5. Raises HocketError unless non-negative."""
    return _not_negative(text, "duration", _parse(text, "duration", {"s": 1.0}, "50us or 0.5s"), "50us")


def parse_bytes(text: str) -> float:
    """Bytes; ``28MB`` is 28e6 and ``4MiB`` 2^22. Raises HocketError unless non-negative."""
    return _not_negative(text, "size", _parse(text, "size", {"B": 1.0}, "28MB or 4MiB"), "28MB")


def _parse(text: str, kind: str, units: dict[str, float], example: str) -> float:
    match = _QUANTITY.fullmatch(text)
    if match is None or (match["unit"] is None and match["prefix"] is not None):
        raise HocketError(f"{kind} '{text}' is not a number with a unit; write it like {example}")
    if match["unit"] is not None and match["unit"] not in units:
        raise HocketError(f"{kind} '{text}' has the unit of something else; write it like {example}")
    scale = 1.0 if match["unit"] is None else units[match["unit"]]
    value = float(match["number"]) * _PREFIXES[match["prefix"] or ""] * scale
    if not math.isfinite(value):
        raise HocketError(f"{kind} '{text}' is not finite; write it like {example}")
    return value


def _not_negative(text: str, kind: str, value: float, example: str) -> float:
    if value < 0:
        raise HocketError(f"{kind} '{text}' is negative; give one like {example}")
    return value
