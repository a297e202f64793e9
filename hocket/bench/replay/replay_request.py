"""Options shared by ``bench orders`` and ``bench predict``."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from hocket.errors import HocketError

_MOST_RANKS = 64


class ReplayRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A replay's request: ``steps`` under ``policies``, on links of ``rate_bps``.

    ``steps``: names as :func:`hocket.bench.speed.timed_steps.load_target` takes them. Sizes are scaled so
    that pulling every parameter alone takes ``transfer_s`` at that rate. A row is ``num_steps`` steps;
    ``skip`` of them do not count. ``timeout_s``: of everything together.
    """

    steps: tuple[str, ...]
    policies: tuple[str, ...]
    transfer_s: float
    num_steps: int
    skip: int
    rate_bps: float = 1e9
    seed: int = 0
    timeout_s: float = 28_800.0

    def _check(self, rhos: Sequence[float], most_workers: int, most_servers: int) -> None:
        """Refuse what cannot be replayed; ``rhos``: what durations are scaled to, each of them.

        Raises
        ------
        HocketError
            Naming the value and the rule.
        """
        check_list("step", self.steps)
        check_list("policy", self.policies)
        reals = [("rho", rho, 0.01, 100.0) for rho in rhos]
        reals += [("transfer", self.transfer_s, 1e-3, 100.0), ("timeout", self.timeout_s, 1.0, 604_800.0)]
        for name, value, least, most in reals:
            if not (math.isfinite(value) and least <= value <= most):
                raise HocketError(f"{name} {value:g} is not between {least:g} and {most:g}")
        if not 4 <= self.num_steps <= 100_000:
            raise HocketError(f"{self.num_steps} steps are not between 4 and 100000")
        if not 1 <= self.skip <= self.num_steps - 3:
            raise HocketError(
                f"skip {self.skip} of {self.num_steps} steps leaves too few; skip 1 to {self.num_steps - 3}"
            )
        if most_workers + most_servers > _MOST_RANKS:
            raise HocketError(
                f"{most_workers} workers and {most_servers} servers on one machine measure its scheduler;"
                f" give up to {_MOST_RANKS} together"
            )


def check_list(what: str, values: Sequence[str | float]) -> None:
    """Refuse an empty list, and one that names something twice."""
    if not values:
        raise HocketError(f"no {what} was named; name one, or leave --{what} out")
    for value in values:
        if values.count(value) > 1:
            raise HocketError(f"{what} '{value}' is named twice; name it once")
