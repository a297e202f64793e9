"""Numbers in sentences."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """``1 worker``, ``2 workers``."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def four_digits(value: float) -> str:
    """``value`` to four significant digits, in full where it is large."""
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
