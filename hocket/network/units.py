"""Quantities with units, as they are typed: ``10Gbit/s``, ``28MB``, ``50us``.

A unit decides what a number means, so a bare one is refused; 0 is 0 in every unit. Bits and bytes are told
apart by the case of their letter. Where a spelling shows that its writer did not mind the case (``10gb/s``,
``10GBPS``), it says neither, and is refused; ``bit`` spelled out is read in any case, as tc and iperf print
it (``10gbit``, ``9.41 Gbits/sec``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from hocket.errors import HocketError

LEAST_S = 1e-18
"""Seconds, and seconds per byte, that are less than this but not 0 are noise or a slip."""
LEAST_BPS, MOST_BPS = 1.0, 1e18
MOST_BYTES = 2.0**63 - 2**10  # the largest number of 64 bits that a float holds
MOST_S_PER_BYTE = 1.0
_MOST_S = 1e9
_LIKELY_BASE = 1e6  # so large a number without a unit was meant in the base unit

_SMALL = {"n": 1e-9, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "m": 1e-3}
_LARGE = {
    **{"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12},
    **{"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40},
}
_ANY_CASE = {"": 1.0, **{prefix.lower(): scale for prefix, scale in _LARGE.items()}}
_PREFIXES = {"": 1.0, **_SMALL, **_LARGE}
# One way to match each text: digits that two parts of a pattern could take make it quadratic.
_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
_BIT = re.compile(r"(?P<prefix>[kmgt]i?)?bits?(?:/s(?:ec)?)?", re.ASCII | re.IGNORECASE)


class _Kind(NamedTuple):
    """One kind of quantity: its units in the base unit, the prefixes that make sense, and how it is written.

    ``bare`` and ``prefixed`` are what {n} without a unit, and with the prefix {p} alone, may have meant.
    """

    name: str
    units: Mapping[str, float]
    prefixes: Mapping[str, float]
    example: str
    bare: str
    prefixed: str


_BANDWIDTH = _Kind(
    name="bandwidth",
    units={"bit/s": 1.0, "bps": 1.0, "b/s": 1.0, "B/s": 8.0, "Bps": 8.0},
    prefixes={"": 1.0, **_LARGE},
    example="10Gbit/s or 1.25GB/s",
    bare="{n}Gbit/s or {n}GB/s",
    prefixed="{n}{p}bit/s or {n}{p}B/s",
)
_DURATION = _Kind(
    name="duration",
    units={"s": 1.0},
    prefixes=_PREFIXES,
    example="50us or 0.5s",
    bare="{n}s, {n}ms or {n}us",
    prefixed="{n}{p}s",
)
_SIZE = _Kind(
    name="size",
    units={"B": 1.0},
    prefixes={"": 1.0, **_LARGE},
    example="28MB or 4MiB",
    bare="{n}B, {n}MB or {n}MiB",
    prefixed="{n}{p}B",
)


class _Typed(NamedTuple):
    """The text typed, its number as text, and what stands behind that."""

    text: str
    number: str
    unit: str
    kind: _Kind

    def refused(self, rule: str, fix: str = "") -> HocketError:
        """The error that says which rule is broken."""
        fix = fix or f"write it like {self.kind.example}"
        return HocketError(f"{self.kind.name} '{self.text}' {rule}; {fix}")

    def scaled(self, scale: float, least: float, most: float, *, or_zero: bool) -> float:
        """The number times ``scale``, within its range."""
        value = float(self.number) * scale
        if value < 0 or (value == 0 and not or_zero):
            raise self.refused("is not positive" if not or_zero else "is negative")
        if value != 0 and not least <= value <= most:
            base = next(iter(self.kind.units))
            zero = "0 nor " if or_zero else ""
            raise self.refused(f"is {value:.4g} {base}, not {zero}between {least:g} and {most:.4g} {base}")
        return value + 0.0  # of -0.0: 0.0


def parse_bandwidth(text: str) -> float:
    """Bits per second; ``10Gbit/s``, ``10 Gbps``, ``10Gb/s`` and ``1.25GB/s`` are the same.

    Raises
    ------
    HocketError
        For what has no unit or an ambiguous one, and for what is not between 1 bit/s and 1e18 bit/s.
    """
    typed = _typed(text, _BANDWIDTH)
    if spelled := _BIT.fullmatch(typed.unit):
        scale = _ANY_CASE[(spelled["prefix"] or "").lower()]
    else:
        _check_case(typed)
        scale = _scale(typed)
    return typed.scaled(scale, LEAST_BPS, MOST_BPS, or_zero=False)


def parse_duration(text: str) -> float:
    """Seconds; ``50us`` is 5e-5.

    Raises
    ------
    HocketError
        For what has no unit, unless it is 0, and for what is neither 0 nor between 1e-18 s and 1e9 s.
    """
    typed = _typed(text, _DURATION)
    return typed.scaled(_scale(typed), LEAST_S, _MOST_S, or_zero=True)


def parse_bytes(text: str) -> float:
    """Bytes; ``28MB`` is 28e6 and ``4MiB`` 2^22.

    Raises
    ------
    HocketError
        For what has no unit, unless it is 0, and for what is neither 0 nor from 1 byte to below 2^63.
    """
    typed = _typed(text, _SIZE)
    return typed.scaled(_scale(typed), 1.0, MOST_BYTES, or_zero=True)


def parse_seconds_per_byte(text: str) -> float:
    """Seconds per byte; ``1e-10``, ``0.1ns`` and ``0.1ns/B`` are the same: a bare number is read here.

    Raises
    ------
    HocketError
        For anything else, and for what is neither 0 nor between 1e-18 and 1.
    """
    number = text.strip().removesuffix("/B")
    if _NUMBER.fullmatch(number):
        number += "s"
    try:
        value = parse_duration(number)
    except HocketError:
        value = math.nan
    if not 0 <= value <= MOST_S_PER_BYTE:
        rule = "is not a number of seconds per byte, 0 or from 1e-18 to 1; give e.g. 1e-10 or 0.1ns/B"
        raise HocketError(f"'{text}' {rule}")
    return value


def _typed(text: str, kind: _Kind) -> _Typed:
    stripped = text.strip()
    match = _NUMBER.match(stripped)
    if match is None:
        raise _Typed(text, "", "", kind).refused("is not a number with a unit")
    typed = _Typed(text, match[0], stripped[match.end() :].lstrip(), kind)
    if not math.isfinite(float(typed.number)):
        raise typed.refused("is not finite")
    return typed


def _scale(typed: _Typed) -> float:
    """The unit of ``typed`` in the base unit of its kind."""
    unit, kind = typed.unit, typed.kind
    if not unit and float(typed.number) == 0:
        return 1.0
    if unit in _PREFIXES:
        in_base_units = not unit and float(typed.number) >= _LIKELY_BASE
        fix = (kind.prefixed if unit or in_base_units else kind.bare).format(n=typed.number, p=unit)
        raise typed.refused("has no unit", f"write {fix}")
    prefix, scale = _parted(unit, kind)
    if prefix in kind.prefixes:
        return scale * kind.prefixes[prefix]
    if prefix in _SMALL:
        raise typed.refused(f"has the prefix '{prefix}', which makes a unit smaller")
    if kind is _SIZE and re.fullmatch(r"[kKMGTmgt]?i?b(its?)?", unit):
        raise typed.refused("is in bits", f"sizes are in bytes, B: write it like {kind.example}")
    of_others = (_parted(unit, other)[0] in _PREFIXES for other in (_BANDWIDTH, _DURATION, _SIZE))
    rule = "has the unit of something else" if any(of_others) else "is not a number with a unit"
    raise typed.refused(rule)


def _parted(unit: str, kind: _Kind) -> tuple[str, float]:
    """The prefix of a unit of ``kind``, and what the unit is without it; "?" where it is none of them."""
    for name, scale in kind.units.items():
        if unit.endswith(name):
            return unit.removesuffix(name), scale
    return "?", math.nan


def _check_case(typed: _Typed) -> None:
    """Refuse bits or bytes, told apart by a letter's case, where other letters have the wrong one."""
    unit = typed.unit
    in_any_case = unit.lower().endswith(("bps", "b/s"))
    if in_any_case and (unit[0] in "mgt" or not unit.endswith(("ps", "/s"))):
        prefix = unit[0].upper() if unit[0].lower() in "kmgt" else ""
        fix = _BANDWIDTH.prefixed.format(n=typed.number, p=prefix)
        raise typed.refused("leaves open whether it is in bits or in bytes", f"write {fix}")
