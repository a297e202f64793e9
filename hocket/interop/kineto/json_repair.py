"""Kineto traces that are no JSON, as profilers write them now and then, made into some.

Mended are texts that are not UTF-8 or hold control characters, numbers that are none (``inf``, ``nan``), and
values that are missing (an empty ``"Process Group Description": ,``): the latter two become null. A file that
is cut stays so.
"""

from __future__ import annotations

import re
from collections import Counter

from hocket.text import counted

_TEXTS, _CONTROL, _MISSING, _NUMBER = "texts", "controls", "missing", "number"

_CONTROLS = bytes(range(0x20))
_SPACES = b" " * len(_CONTROLS)
_NO_VALUE = re.compile(
    rb'"(?:[^"\\]|\\.)*+"|(?P<missing>:\s*+(?=[,}\]]))|(?P<number>[-+]?\b(?:inf|infinity|nan)\b)',
    re.IGNORECASE | re.DOTALL,
)


def mended(data: bytes) -> tuple[bytes, Counter[str]]:
    """``data`` as JSON where that is to be had so, and how often what was done for it."""
    done: Counter[str] = Counter()
    try:
        data.decode()
    except UnicodeDecodeError:
        data = data.decode(errors="replace").encode()
        done[_TEXTS] = 1
    # Line ends between values become spaces as well, which changes nothing.
    spaced = data.translate(bytes.maketrans(_CONTROLS, _SPACES))

    def null(match: re.Match[bytes]) -> bytes:
        kind = match.lastgroup
        if kind is None:
            return match[0]
        done[kind] += 1
        return b": null" if kind == _MISSING else b"null"

    whole = _NO_VALUE.sub(null, spaced)
    if not done and whole != data:
        done[_CONTROL] = 1
    return whole, done


def mended_in_words(done: Counter[str]) -> str:
    """The repairs done for a file, in words; nothing where none was."""
    said = ["texts that are not UTF-8"] * bool(done[_TEXTS])
    if done[_MISSING]:
        said.append(counted(done[_MISSING], "missing value"))
    if done[_NUMBER]:
        said.append(counted(done[_NUMBER], "number") + " not finite")
    if done[_CONTROL]:
        said.append("control characters")
    return ", ".join(said)
