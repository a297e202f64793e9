"""Numbers in sentences."""

from __future__ import annotations

_LARGE = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def counted(number: int, noun: str) -> str:
    """``1 worker``, ``2 workers``."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def four_digits(value: float) -> str:
    """``value`` to four significant digits, in full where it is large."""
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"


def duration_text(seconds: float) -> str:
    """A duration in the unit that leaves fewest digits."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= scale:
            return f"{seconds / scale:.4g} {unit}"
    return f"{seconds / 1e-9:.4g} ns" if seconds else "0 s"


def scaled_text(value: float, unit: str) -> str:
    """A number of ``unit`` (bit/s, B) with the prefix that leaves fewest digits."""
    scale, prefix = next(((scale, prefix) for scale, prefix in _LARGE if value >= scale), (1.0, ""))
    return f"{value / scale:.4g} {prefix}{unit}"
