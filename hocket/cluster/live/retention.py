"""The time for which a cluster shows and keeps what is over."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Retention:
    """The time and the room that jobs have when they are over.

    Attributes
    ----------
    shown_s : seconds until they are left out of the status, unless that asks for all.
    output_s : seconds until what their ranks printed is removed.
    output_bytes : of each node, of such output in all; the oldest goes first.
    """

    shown_s: float = 3600.0
    output_s: float = 7 * 86400.0
    output_bytes: float = 1e9
