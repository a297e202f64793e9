"""Ranges that figures of a network have to be in."""

from __future__ import annotations

from hocket.errors import HocketError
from hocket.network.units import LEAST_BPS, LEAST_S, MOST_BPS

MOST_STARTUP_S = 3600.0


def check_bandwidth(bandwidth_bps: float) -> None:
    """Refuse what is no bandwidth in bits per second.

    Raises
    ------
    HocketError
        Naming the value and the rule.
    """
    if isinstance(bandwidth_bps, bool) or not isinstance(bandwidth_bps, int | float):
        raise HocketError(f"bandwidth {bandwidth_bps!r} is not a number of bits per second; give e.g. 10e9")
    if not LEAST_BPS <= bandwidth_bps <= MOST_BPS:
        raise HocketError(f"bandwidth {bandwidth_bps} bit/s is not between 1 and 1e18; give e.g. 10e9")


def check_cost(value: float, what: str, unit: str, most: float, example: str) -> None:
    """Refuse what is no cost of ``unit``: 0, or from 1e-18 to ``most``.

    Raises
    ------
    HocketError
        Naming the value and the rule.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise HocketError(f"{what} {value!r} is not a number of {unit}; give e.g. {example}")
    if value != 0 and not LEAST_S <= value <= most:
        rule = f"is neither 0 nor between {LEAST_S:g} and {most:g}"
        raise HocketError(f"{what} {value} {unit} {rule}; give e.g. {example}")
