"""Variables of the environment that launchers set."""

from __future__ import annotations

import os

from hocket.errors import HocketError


def whole_number(variable: str, default: int) -> int:
    """The number that ``variable`` holds, or ``default`` where it is not set.

    Raises
    ------
    HocketError
        When it holds something else.
    """
    text = os.environ.get(variable, str(default)).strip()
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise HocketError(f"{variable} is '{text}', no whole number; set it as torchrun does, or unset it")
    return int(text)
