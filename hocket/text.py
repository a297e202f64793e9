"""Numbers and quantities in the unit that fits: three significant digits in sentences, four in tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class TimeUnit(NamedTuple):
    """A unit for times: its symbol, and how many of it make a second."""

    symbol: str
    per_second: float


_SECONDS = TimeUnit("s", 1.0)
# Longer units begin where there are two of them: a step of 90 s reads as such.
_LONG_TIMES = (TimeUnit("days", 1 / 86400), TimeUnit("h", 1 / 3600), TimeUnit("min", 1 / 60))
_SHORT_TIMES = (_SECONDS, TimeUnit("ms", 1e3), TimeUnit("µs", 1e6), TimeUnit("ns", 1e9))
_PERIODS = (_SECONDS, TimeUnit("min", 1 / 60), TimeUnit("h", 1 / 3600), TimeUnit("day", 1 / 86400))
_PREFIXES = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))

UNDEFINED = "–"
"""A cell without a value."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """``1 worker``, ``2 workers``; ``plural`` where that is not made by an s."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def machines_text(workers: int, servers: int) -> str:
    """``2 workers``, ``2 workers and 1 server``."""
    return counted(workers, "worker") + (f" and {counted(servers, 'server')}" if servers else "")


def listed(names: Sequence[str], word: str = "and") -> str:
    """``a``, ``a and b``, ``a, b and c``; or another word."""
    return f" {word} ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def capitalized(text: str) -> str:
    """``text`` with a capital at its beginning, the rest as it is."""
    return text[:1].upper() + text[1:]


def four_digits(value: float) -> str:
    """``value`` to four significant digits, in full where it is large."""
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"


def digits(value: float) -> str:
    """``value`` to three significant digits, in full where it is large."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"


def time_unit(times_s: Iterable[float]) -> TimeUnit:
    """The unit, from nanoseconds to days, that the longest of ``times_s`` is read in."""
    longest_s = _as_read(max(times_s, default=0.0))
    for unit in _LONG_TIMES:
        if longest_s * unit.per_second >= 2.0:
            return unit
    fitting = (unit for unit in _SHORT_TIMES if longest_s * unit.per_second >= 1.0)
    return next(fitting, _SHORT_TIMES[-1] if longest_s else _SECONDS)


def duration_text(seconds: float, unit: TimeUnit | None = None) -> str:
    """A duration to three digits, in ``unit``, else in the one that fits: ``314 days``, ``26.9 ms``."""
    unit = unit or time_unit([seconds])
    return f"{digits(seconds * unit.per_second)} {unit.symbol}"


def decimals_for(values: Iterable[float]) -> int:
    """The number of decimals that give the largest of ``values`` four significant digits, at most three."""
    largest = max((abs(value) for value in values), default=0.0)
    return 3 - sum(largest >= limit for limit in (10.0, 100.0, 1000.0))


def number_text(value: float, decimals: int) -> str:
    """A number with so many decimals; one that would keep fewer than two digits, in three digits of its own.

    Beside a step of an hour, one of a millisecond would read 0.
    """
    if value and abs(value) < 9.95 * 10.0**-decimals:
        return f"{value:.3g}"
    return f"{value:z.{decimals}f}"


def time_text(seconds: float, unit: TimeUnit) -> str:
    """A time in ``unit``, to four digits or so."""
    value = seconds * unit.per_second
    return f"{number_text(value, decimals_for([value]))} {unit.symbol}"


def scaled_text(value: float, unit: str) -> str:
    """A number of ``unit`` (bit/s, B) to three digits, with the prefix that fits: ``10 Gbit/s``."""
    fitting = ((prefix, scale) for prefix, scale in _PREFIXES if _as_read(value) >= scale)
    prefix, scale = next(fitting, ("", 1.0))
    return f"{digits(value / scale)} {prefix}{unit}"


def rate_text(per_second: float, of: str = "examples") -> str:
    """A rate to three digits: by the second or, where that is less than 0.1, by the minute, hour or day.

    From ten thousand on in thousands, from a million on in millions: ``29.6 k examples/s``.
    """
    period = rate_period([per_second])
    rate = per_second / period.per_second
    prefix, scale = rate_scale([rate])
    return f"{digits(rate / scale)} {prefix}{' ' if prefix else ''}{of}/{period.symbol}"


def rate_range_text(least: float, most: float, like: float) -> str:
    """Two rates as :func:`rate_text` has one ``like`` them, without its unit: ``869 to 1045 k``."""
    period = rate_period([like])
    prefix, scale = rate_scale([like / period.per_second])
    low, high = (digits(rate / period.per_second / scale) for rate in (least, most))
    return f"{low} to {high}{' ' if prefix else ''}{prefix}"


def rate_scale(rates: Iterable[float]) -> tuple[str, float]:
    """The prefix, and what it stands for, that ``rates`` are read in: of the smallest no less than a tenth.

    "" where the largest is below ten thousand.
    """
    positive = [_as_read(rate) for rate in rates if rate > 0]
    smallest, largest = min(positive, default=0.0), max(positive, default=0.0)
    if largest >= 1e6 and smallest >= 1e5:
        return "M", 1e6
    return ("k", 1e3) if largest >= 1e4 and smallest >= 1e2 else ("", 1.0)


def rate_period(per_second: Iterable[float]) -> TimeUnit:
    """The period, from a second to a day, that the largest of several rates is read by."""
    largest = max(per_second, default=0.0)
    fitting = (period for period in _PERIODS if largest / period.per_second >= 0.1)
    return next(fitting, _PERIODS[-1] if largest else _SECONDS)


def rho_text(rho: float) -> str:
    """A ratio of network to computing to two digits: ``0.41``; ``under 0.01``."""
    return "under 0.01" if rho < 0.01 else f"{rho:.2g}" if rho < 100 else f"{rho:.0f}"


def caution_lines(caveat: str, cards: Sequence[str] = ()) -> list[str]:
    """The parts of a step's ``caveat``, which semicolons part, in a line each; none of an empty one.

    ``cards``: those that the step is for, where an answer has steps for several.
    """
    of = f" for {listed(cards)}" if cards else ""
    return [f"Caution{of}: {part}" for part in caveat.split("; ") if part]


def hours_text(hours: float) -> str:
    """A time that machines are rented for: ``45 min``, ``14.2 hours``, ``12.5 days``."""
    if hours < 0.9995:
        return f"{digits(60 * hours)} min" if hours >= 1 / 60 else f"{digits(3600 * hours)} s"
    return f"{digits(hours)} hours" if hours < 99.95 else f"{digits(hours / 24)} days"


def amount_text(amount: float, currency: str = "") -> str:
    """An amount of money to three digits, a large one in full with its thousands apart: ``1,830 USD``."""
    shown = f"{amount:,.0f}" if amount >= 999.5 else digits(amount)
    return f"{shown} {currency}" if currency else shown


def percent_text(fraction: float) -> str:
    """A fraction as a percentage: a whole one from 10% on, else one to two digits."""
    percent = 100 * fraction
    return f"{percent:.0f}%" if abs(percent) >= 9.95 else f"{percent:.2g}%"


def _as_read(value: float) -> float:
    """``value`` as three digits show it: of 999.9 ms, one second."""
    return float(f"{value:.3g}")
