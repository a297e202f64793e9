"""Flags of the parameters that ranks have used in a round: without one there is no gradient.

On processors a bucket's flags are summed up with its gradients. The host must not read those of a device:
there they travel from host to host, all of a round in one message, once it is known who has used what.
"""

from __future__ import annotations

from typing import Protocol

import torch

from hocket.runtime.transfers.buckets import Bucket
from hocket.runtime.transfers.gloo_group import GlooGroup
from hocket.runtime.transfers.transfer_group import StartedCollective


class UsedFlags(Protocol):
    """Flags of the parameters of buckets, round after round."""

    @property
    def known(self) -> bool:
        """True if those of the last round that was closed are here."""

    def tell(self, bucket: Bucket) -> None:
        """``bucket`` is about to be sent: its ``filled_indices`` are those that this rank has used."""

    def close(self) -> None:
        """All buckets of the round have been told of."""

    def wait(self) -> None:
        """Return when they are."""

    def of(self, bucket: Bucket) -> list[bool]:
        """For each of its parameters, whether any rank has used it; ``bucket`` has arrived."""

    def forget(self) -> None:
        """Other buckets follow, and those of the last round are to go."""


class FlagsInBuckets:
    """Flags that are summed up with gradients of processors."""

    known = True

    def tell(self, bucket: Bucket) -> None:
        """Put them behind its gradients."""
        bucket.memory.used_flags.zero_()
        bucket.memory.used_flags[list(bucket.filled_indices)] = 1

    def close(self) -> None:
        """They travel with buckets."""

    def wait(self) -> None:
        """They come with buckets."""

    def of(self, bucket: Bucket) -> list[bool]:
        """Read them where they are summed up."""
        return [bool(count) for count in bucket.memory.used_flags.tolist()]

    def forget(self) -> None:
        """Buckets have theirs."""


class FlagsOnHost:
    """Flags in memory of the host, summed up over ``group``, on which all ranks do the same in turn."""

    def __init__(self, group: GlooGroup) -> None:
        self._group = group
        self._mine: dict[Bucket, list[bool]] = {}
        self._started: tuple[StartedCollective, list[Bucket], torch.Tensor] | None = None
        self._of: dict[Bucket, list[bool]] = {}

    @property
    def known(self) -> bool:
        """True if every rank has closed the round."""
        return self._started is None

    def tell(self, bucket: Bucket) -> None:
        """Keep them until the round is closed."""
        self._mine[bucket] = [index in bucket.filled_indices for index in range(len(bucket.parameters))]

    def close(self) -> None:
        """Send them, those of every bucket by their names: ranks fill buckets in any order."""
        buckets = sorted(self._mine, key=lambda bucket: bucket.names)
        flags = torch.tensor([flag for bucket in buckets for flag in self._mine[bucket]], dtype=torch.int32)
        self._mine.clear()
        if buckets:
            self._started = self._group.reduce(flags), buckets, flags

    def wait(self) -> None:
        """Return when other ranks have closed the round, too."""
        if self._started is None:
            return
        work, buckets, flags = self._started
        work.wait()
        self._started = None
        parts = flags.split([len(bucket.parameters) for bucket in buckets])
        self._of = {b: [bool(n) for n in part.tolist()] for b, part in zip(buckets, parts, strict=True)}

    def of(self, bucket: Bucket) -> list[bool]:
        """Those of the round that it was sent in."""
        return self._of[bucket]

    def forget(self) -> None:
        """Drop them."""
        self._of.clear()
