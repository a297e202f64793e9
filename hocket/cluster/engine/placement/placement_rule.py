"""Numbers by which ways of placing jobs are told apart."""

from __future__ import annotations

from dataclasses import dataclass

RAND, FIRST_FIT, LEAST_LOADED, LEAST_WORKLOAD_FIRST, EARLIEST = range(5)


@dataclass(frozen=True, kw_only=True)
class Placement:
    """``name`` as users write it; ``code``: one of the constants above; ``kappa``: LWF's, otherwise 0."""

    name: str
    code: int
    kappa: int = 0
