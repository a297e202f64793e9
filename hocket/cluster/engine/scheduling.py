"""The way that a cluster's jobs are scheduled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hocket.cluster.engine.placement.named_placements import placement_of
from hocket.cluster.engine.policies.named_policies import policy_of
from hocket.cluster.jobs import USER_NAMES, is_user_name
from hocket.errors import HocketError

CHUNK_BYTES = 4e6
_MOST_JOBS = 1_000_000
_LONGEST_S = 1e9
REST = "*"
"""The name in lists of quotas and shares of each user that is not in them, and of jobs without a user."""
_MOST_OF_USER = 1_000_000


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
    wait_for_faster : whether a job waits for a type of GPU on which it is over sooner than where it fits.
    quotas : the most GPUs that jobs of a user hold together; of users who are not in it as many as there are.
    shares : the weights of users, for policies by which they share fairly; 1 of those who are not in it.
    half_life_s : seconds after which what a user has had counts half, for these policies; None: all counts.
    checkpoint_s : as ``Job.checkpoint_s``, of jobs that do not say; None: these are never stopped.
    resize : whether jobs with a range of GPUs give some to others, and take more, while they run.
    """

    placement: str
    policy: str
    seed: int = 0
    chunk_bytes: float = CHUNK_BYTES
    starvation_s: float | None = None
    jobs_per_gpu: int | None = None
    wait_for_faster: bool = False
    quotas: Mapping[str, int] = field(default_factory=dict)
    shares: Mapping[str, int] = field(default_factory=dict)
    half_life_s: float | None = None
    checkpoint_s: float | None = None
    resize: bool = False

    @property
    def stops_jobs(self) -> bool:
        """True if jobs are stopped with a checkpoint: preempted, or resized."""
        return self.resize or policy_of(self.policy).requeues

    def quota_of(self, user: str) -> int | None:
        """The most GPUs that jobs of ``user`` hold together; None: as many as there are."""
        return self.quotas.get(user, self.quotas.get(REST))

    def share_of(self, user: str) -> int:
        """The weight of ``user``."""
        return self.shares.get(user, self.shares.get(REST, 1))

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
        if self.checkpoint_s is not None:
            if not 0.0 <= self.checkpoint_s <= _LONGEST_S:
                raise HocketError(
                    f"checkpoint of {self.checkpoint_s!r} s: give seconds between 0 and 1e9, e.g. 30"
                )
            if not self.stops_jobs:
                raise HocketError(
                    f"a cost of checkpoints, and policy '{self.policy}' preempts no job; take policy "
                    "srsf-requeue or --resize, or leave it out"
                )
        _check_numbers("quota", self.quotas, 0, "alice=16")
        _check_numbers("share", self.shares, 1, "alice=2")
        if self.shares and not policy_of(self.policy).by_user:
            raise HocketError(
                f"shares of users, and policy '{self.policy}' knows none; take policy fair-share, or leave "
                "them out"
            )
        if self.half_life_s is None:
            return
        if not 0.0 < self.half_life_s <= _LONGEST_S:
            raise HocketError(
                f"half-life of {self.half_life_s!r} s: give seconds above 0 and up to 1e9, e.g. 604800"
            )
        if not policy_of(self.policy).by_user:
            raise HocketError(
                f"half-life of what users have had, and policy '{self.policy}' does not count it; take policy"
                " fair-share, or leave it out"
            )


def _check_numbers(what: str, numbers: Mapping[str, int], least: int, example: str) -> None:
    """Refuse users without a name, and what is no number from ``least`` on."""
    for user, number in numbers.items():
        if user != REST and not is_user_name(user):
            raise HocketError(f"{what} of {user!r}, which is no name of a user: {USER_NAMES}")
        if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= _MOST_OF_USER:
            raise HocketError(
                f"{what} {number!r} of {user} is not a whole number from {least} to {_MOST_OF_USER}; "
                f"give e.g. {example}"
            )
