"""The way that a cluster's jobs are scheduled."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Scheduling:
    """The placement and the policy of a cluster's jobs, and what they are told.

    Attributes
    ----------
    placement : the placement's name, as users call it.
    policy : the policy's name, as users call it.
    seed : the seed of placement "rand".
    chunk_bytes : bytes after which a transfer may be stopped, by policies that stop them.
    """

    placement: str
    policy: str
    seed: int = 0
    chunk_bytes: float = 4e6
