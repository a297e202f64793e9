"""Placements by name."""

from __future__ import annotations

import re

from hocket.cluster.engine.placement.placement_rule import (
    BLOCKS,
    EARLIEST,
    FIRST_FIT,
    LEAST_LOADED,
    LEAST_WORKLOAD_FIRST,
    RAND,
    Placement,
)
from hocket.errors import HocketError, UnknownNameError

PLACEMENT_NAMES = ("rand", "ff", "ls", "lwf-K", "earliest", "blocks")
_MOST = 1_000_000
_CODES = {"rand": RAND, "ff": FIRST_FIT, "ls": LEAST_LOADED, "earliest": EARLIEST, "blocks": BLOCKS}


def placement_of(name: str) -> Placement:
    """The placement of that name; ``lwf-1`` is LWF with kappa 1.

    Raises
    ------
    UnknownNameError
        When there is none; lists those there are.
    HocketError
        When the K of ``lwf-K`` is out of range.
    """
    if name in _CODES:
        return Placement(name=name, code=_CODES[name], waits=name == "blocks")
    match = re.fullmatch(r"lwf-(0|[1-9]\d{0,8})", name)
    if match is None:
        raise UnknownNameError("placement", name, PLACEMENT_NAMES)
    if not 1 <= int(match[1]) <= _MOST:
        raise HocketError(f"placement '{name}': K is not from 1 to {_MOST}; give e.g. lwf-1")
    return Placement(name=name, code=LEAST_WORKLOAD_FIRST, kappa=int(match[1]))
