"""Kineto traces that are no JSON, as profilers write them now and then, made into some.

Mended are texts that are not UTF-8 or hold control characters, numbers that are none (``inf``, ``nan``), and
values that are missing (an empty ``"Process Group Description": ,``): the latter two become null. A file that
is cut stays so.
"""

from __future__ import annotations

import re

from hocket.text import counted

_CONTROLS = bytes(range(0x20))
_SPACES = b" " * len(_CONTROLS)
_NO_VALUE = re.compile(
    rb'"(?:[^"\\]|\\.)*+"|(?P<missing>:\s*+(?=[,}\]]))|(?P<number>[-+]?\b(?:inf|infinity|nan)\b)',
    re.IGNORECASE | re.DOTALL,
)


def mended(data: bytes) -> tuple[bytes, list[str]]:
    """``data`` as JSON where that is to be had so, and what was done for it, in words."""
    done = []
    try:
        data.decode()
    except UnicodeDecodeError:
        data = data.decode(errors="replace").encode()
        done.append("texts that are not UTF-8")
    # Line ends between values become spaces as well, which changes nothing.
    spaced = data.translate(bytes.maketrans(_CONTROLS, _SPACES))
    counts = {"missing": 0, "number": 0}

    def null(match: re.Match[bytes]) -> bytes:
        kind = match.lastgroup
        if kind is None:
            return match[0]
        counts[kind] += 1
        return b": null" if kind == "missing" else b"null"

    whole = _NO_VALUE.sub(null, spaced)
    if counts["missing"]:
        done.append(counted(counts["missing"], "missing value"))
    if counts["number"]:
        done.append(counted(counts["number"], "number") + " not finite")
    if not done and whole != data:
        done.append("control characters")
    return whole, done
