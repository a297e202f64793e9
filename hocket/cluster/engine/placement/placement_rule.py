"""Numbers by which ways of placing jobs are told apart."""

from __future__ import annotations

from dataclasses import dataclass

RAND, FIRST_FIT, LEAST_LOADED, LEAST_WORKLOAD_FIRST, EARLIEST, BLOCKS = range(6)


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Numbers, and ``name`` as users write it.

    ``code``: one of the constants above; ``kappa``: LWF's, otherwise 0; ``waits``: whether a job may wait
    where GPUs enough have room.
    """

    name: str
    code: int
    kappa: int = 0
    waits: bool = False
