"""The origin of a page or a result: its command, date, version of Hocket, and the network it holds for."""

from __future__ import annotations

import os
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

import hocket
from hocket.document import convert_document
from hocket.network import Network
from hocket.text import duration_text, scaled_text


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The command that made something, when (UTC), with which version, and on which network, if any."""

    command: str
    date: str
    version: str
    network: str = ""


def origin(network: Network | None = None) -> Origin:
    """The origin of what this process makes now; SOURCE_DATE_EPOCH, where it is set, is the date."""
    program = Path(sys.argv[0]).name
    name = "hocket" if program in ("__main__.py", "hocket", "") else program
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    moment = time.gmtime(int(epoch) if epoch.isdecimal() else time.time())
    return Origin(
        command=shlex.join([name, *sys.argv[1:]]),
        date=time.strftime("%Y-%m-%d %H:%M UTC", moment),
        version=hocket.__version__,
        network="" if network is None else network_text(network),
    )


def origin_of(document: Any, source: str) -> Origin | None:
    """The ``origin`` of a result's document, None without one.

    Raises
    ------
    FormatError
        Naming ``source``, the field and the rule.
    """
    found = document.get("origin") if isinstance(document, dict) else None
    return None if found is None else convert_document(found, Origin, f"{source}: origin")


def network_text(network: Network) -> str:
    """The network in a few words: its bandwidth, what transfers cost beyond it, how all-reduces run."""
    parts = [scaled_text(network.bandwidth_bps, "bit/s")]
    if network.startup_s:
        parts.append(f"startup {duration_text(network.startup_s)}")
    if network.parse_s or network.parse_s_per_byte:
        a_byte = duration_text(network.parse_s_per_byte)
        parts.append(f"parsing {duration_text(network.parse_s)} a message, {a_byte} a byte")
    if network.nodes is not None:
        parts.append(network.nodes.text)
    if network.pattern is not None:
        parts.append(f"{network.pattern} all-reduces")
    elif network.reduction is not None:
        parts.append(f"all-reduces as timed between {network.reduction.workers} workers")
    return ", ".join(parts)
