"""Lists on the command line: ``1-4,8,16`` workers, ``1,1,0.5`` times as fast, ``10Gbit/s,1Gbit/s``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from hocket.errors import HocketError
from hocket.network import parse_bandwidth
from hocket.text import listed

MOST = 100_000
_COUNTS = re.compile(r"\s*(?P<first>\d{1,9})\s*(?:-\s*(?P<last>\d{1,9})\s*)?", re.ASCII)

_SCALES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_AMOUNT = re.compile(
    r"(?P<number>\d{1,18}(?:[_,]\d{3})*(?:\.\d{0,18})?(?:[eE]\+?\d{1,2})?)\s*(?P<scale>[kKMGT]?)", re.ASCII
)
_NUMBER_OF_NAME = re.compile(r"\s*(?P<name>[^\s=]+)=(?P<number>\d{1,9})\s*", re.ASCII)
_LONG_UNITS = {
    **{"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "hour": 3600.0, "hours": 3600.0},
    **{"d": 86400.0, "day": 86400.0, "days": 86400.0},
}
_LONG = re.compile(rf"(?P<number>\d{{1,12}}(?:\.\d{{0,12}})?)\s*(?P<unit>{'|'.join(_LONG_UNITS)})", re.ASCII)


def counts(text: str, what: str) -> list[int]:
    """Counts and ranges of them: ``4``, ``1,2,4``, ``1-4,8``; each once, in the order given.

    Raises
    ------
    HocketError
        For what is no count from 1 to :data:`MOST`, and for a range that goes down.
    """
    found: dict[int, None] = {}
    for part in text.split(","):
        match = _COUNTS.fullmatch(part)
        if match is None:
            raise HocketError(f"{what} '{text}': '{part}' is no count or range; write 4, 1,2,4 or 1-16")
        first, last = int(match["first"]), int(match["last"] or match["first"])
        if last < first:
            raise HocketError(f"{what} '{text}': the range {first}-{last} goes down; write e.g. 1-16")
        if first < 1 or last > MOST:
            raise HocketError(f"{what} '{text}': '{part.strip()}' is not within 1 to {MOST}; write e.g. 1-16")
        found.update(dict.fromkeys(range(first, last + 1)))
    return list(found)


def singly(text: str) -> set[int]:
    """The counts that a list for :func:`counts` names by themselves, and the ends of its ranges."""
    return {int(number) for part in text.split(",") for number in part.split("-")}


def speeds(text: str) -> tuple[float, ...]:
    """Speeds relative to the machine that was profiled, one a worker; their range is the predictor's rule."""
    return _each(text, "speed", _number)


def bandwidths(text: str | None, what: str) -> tuple[float, ...] | None:
    """Bits per second, one a machine; None stays None."""
    return None if text is None else _each(text, what, parse_bandwidth)


def parts(texts: Sequence[str]) -> tuple[str, ...]:
    """The names in an option that is given several times, or several by commas."""
    return tuple(name for text in texts for name in text.split(","))


def ratios(text: str) -> tuple[float, ...]:
    """N / C, several by commas."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise HocketError(f"rho '{text}' is not a list of numbers; give e.g. 2,1,0.5") from None


def amount(text: str, what: str, example: str = "90M or 90e6") -> float:
    """A large number above 0: ``90M``, ``1.28M``, ``90e6``, ``1_281_167``; k, M, G and T are powers of 1000.

    ``example``: of such a number, for a refusal.

    Raises
    ------
    HocketError
        For anything else, also where B may be a billion or bytes.
    """
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        if text.strip().startswith("-") and _AMOUNT.fullmatch(text.strip()[1:]):
            raise HocketError(f"{what} {text} is not above 0; write e.g. {example}")
        fix = "write 1.2G for 1.2 billion" if text.strip()[-1:] in ("B", "b") else f"write e.g. {example}"
        raise HocketError(f"{what} '{text}' is not a number; {fix}")
    found = float(match["number"].replace("_", "").replace(",", "")) * _SCALES[match["scale"]]
    if not found > 0:
        raise HocketError(f"{what} {text} is not above 0; write e.g. {example}")
    return found


def whole_amount(text: str, what: str, example: str) -> int:
    """As :func:`amount`, of things of which there is no half.

    Raises
    ------
    HocketError
        Also for what is no whole number.
    """
    found = amount(text, what, example)
    if found != int(found):
        raise HocketError(f"{what} {text} is not a whole number; write e.g. {int(found) + 1}")
    return int(found)


def numbers_of_names(text: str | None, what: str) -> dict[str, int]:
    """Whole numbers of names: ``alice=16,bob=8``; {} of None.

    Raises
    ------
    HocketError
        For anything else, and for a name that is there twice.
    """
    found: dict[str, int] = {}
    for part in [] if text is None else text.split(","):
        match = _NUMBER_OF_NAME.fullmatch(part)
        if match is None:
            raise HocketError(f"{what} '{text}': '{part}' is no name and whole number; write alice=16,bob=8")
        if match["name"] in found:
            raise HocketError(f"{what} '{text}': {match['name']} is named twice; name each once")
        found[match["name"]] = int(match["number"])
    return found


def long_duration(text: str, what: str, *, may_be_zero: bool = False) -> float:
    """Seconds of ``24h``, ``90min``, ``3d`` or ``3600s``.

    Raises
    ------
    HocketError
        For anything else.
    """
    match = _LONG.fullmatch(text.strip())
    if match is None:
        units = listed(list(dict.fromkeys(_LONG_UNITS)))
        raise HocketError(
            f"{what} '{text}' is not a time with one of the units {units}; write e.g. 24h or 3d"
        )
    found = float(match["number"]) * _LONG_UNITS[match["unit"]]
    if not (found > 0 or may_be_zero):
        raise HocketError(f"{what} {text} is not above 0; write e.g. 24h or 3d")
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise HocketError(f"'{text}' is not a number; give e.g. 1,1,0.5") from None


def _each(text: str, what: str, read: Callable[[str], float]) -> tuple[float, ...]:
    try:
        return tuple(read(part) for part in text.split(","))
    except HocketError as error:
        raise HocketError(f"{what} '{text}': {error}") from None
