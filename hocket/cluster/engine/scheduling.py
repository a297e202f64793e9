"""The way that a cluster's jobs are scheduled."""

from __future__ import annotations

from dataclasses import dataclass

from hocket.cluster.engine.placement.named_placements import placement_of
from hocket.cluster.engine.policies.named_policies import policy_of
from hocket.errors import HocketError

CHUNK_BYTES = 4e6
_MOST_JOBS = 1_000_000
_LONGEST_S = 1e9


@dataclass(frozen=True, kw_only=True)
class Scheduling:
    """The placement and the policy of a cluster's jobs, and what they are told.

    Attributes
    ----------
    placement : the placement's name, as users call it.
    policy : the policy's name, as users call it.
    seed : the seed of placement "rand".
    chunk_bytes : bytes after which a transfer may be stopped, by policies that stop them.
    starvation_s : seconds after its arrival from which a job that queues holds GPUs; None: none ever does.
    jobs_per_gpu : the most jobs that share a GPU; None: as many as its memory holds.
    """

    placement: str
    policy: str
    seed: int = 0
    chunk_bytes: float = CHUNK_BYTES
    starvation_s: float | None = None
    jobs_per_gpu: int | None = None

    def check(self) -> None:
        """Refuse names that nothing has, and numbers that are out of range.

        Raises
        ------
        UnknownNameError
            When there is no such placement or policy.
        HocketError
            For a number.
        """
        placement_of(self.placement)
        policy_of(self.policy)
        if isinstance(self.chunk_bytes, bool) or not 1.0 <= self.chunk_bytes <= 2.0**53:
            raise HocketError(f"chunk {self.chunk_bytes!r} bytes is not between 1 and 2^53; give e.g. 4e6")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or not 0 <= self.seed < 2**63:
            raise HocketError(f"seed {self.seed!r} is not a whole number from 0 to 2^63 - 1")
        if self.starvation_s is not None and not 0.0 <= self.starvation_s <= _LONGEST_S:
            raise HocketError(
                f"starvation after {self.starvation_s!r} s: give seconds between 0 and 1e9, e.g. 600"
            )
        if self.jobs_per_gpu is not None and not 1 <= self.jobs_per_gpu <= _MOST_JOBS:
            raise HocketError(
                f"{self.jobs_per_gpu!r} jobs on a GPU: give a whole number from 1 to {_MOST_JOBS}"
            )
