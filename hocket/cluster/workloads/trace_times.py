"""Times in traces: local ones or ones with a zone, as a trace has them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

# One way to match each text: digits that two parts of a pattern could take make it quadratic.
_MOMENT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(\.\d{1,9})? ?(Z|UTC|[+-]\d\d:?\d\d)?", re.ASCII
)
_OF_NAMED_ZONE = re.compile(r".*\d ?[A-Za-z]{2,5}")
_EPOCH_SECONDS = re.compile(r"\d{9,10}(?:\.\d{1,9})?", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TraceClock:
    """The clock of one trace: either every time in it has a zone, or all are local times of one place.

    Local times count as they stand: an hour that a clock was put forward or back is not known.
    """

    def __init__(self) -> None:
        self._first: tuple[bool, str] | None = None

    def seconds(self, text: str) -> float:
        """Seconds since 1970 of ``2020-06-09 18:41:01``, ``2020-06-09T18:41:01+08:00``, or such seconds.

        Raises
        ------
        ValueError
            With the rule, for anything else and for a time with a zone among ones without.
        """
        text = text.strip()
        found, has_zone = _read(text)
        if self._first is None:
            self._first = has_zone, text
        if self._first[0] != has_zone:
            has, other = ("a", "none") if has_zone else ("no", "one")
            raise ValueError(
                f"'{text}' has {has} zone and '{self._first[1]}' has {other}; give all times one, or none"
            )
        return found


def _read(text: str) -> tuple[float, bool]:
    """Seconds since 1970, and whether the text says of which zone."""
    if _EPOCH_SECONDS.fullmatch(text):
        return float(text), True
    matched = _MOMENT.fullmatch(text)
    if matched is None:
        rule = f"'{text}' is not a time like 2020-06-09 18:41:01"
        if _OF_NAMED_ZONE.fullmatch(text[:100]) and text[:4].isdigit():
            rule += ", with or without a zone like +08:00 or Z"
        raise ValueError(rule)
    *parts, fraction, zone = matched.groups()
    try:
        year, month, day, hour, minute, second = (int(part) for part in parts)
        when = datetime(year, month, day, hour, minute, second, tzinfo=_zone(zone))
    except ValueError:
        raise ValueError(f"'{text}' is not a time like 2020-06-09 18:41:01") from None
    return (when - _EPOCH).total_seconds() + float(fraction or 0), zone is not None


def _zone(text: str | None) -> timezone:
    if text in (None, "Z", "UTC"):
        return UTC
    offset = timedelta(hours=int(text[1:3]), minutes=int(text[-2:]))
    return timezone(-offset if text[0] == "-" else offset)
