"""The interface of ranks that sum up gradients, over whatever connects them."""

from __future__ import annotations

from typing import Protocol

import torch


class StartedCollective(Protocol):
    """A collective that was started."""

    def wait(self) -> object:
        """Return when it has ended, or when this thread's stream follows its end; raises its failure."""


class TransferGroup(Protocol):
    """Ranks that sum up gradients; all of them issue the same collectives in the same order.

    ``size``: how many ranks there are; ``rank``: which of them this is.

    A tensor in halves has an equal share of each rank's, in their order, which :func:`share_of` finds.
    """

    rank: int
    size: int

    def reduce(self, tensor: torch.Tensor) -> StartedCollective:
        """Start an AllReduce of ``tensor``, in place: the sum."""

    def sum_shares(self, tensor: torch.Tensor) -> StartedCollective:
        """Start a reduce-scatter of ``tensor``, in place: the sum is in this rank's share of it."""

    def gather_shares(self, tensor: torch.Tensor) -> StartedCollective:
        """Start an all-gather into ``tensor``: every rank's share of it is in its place."""

    def abandon(self) -> None:
        """Use it no more, as something is under way in it that may never end."""

    def close(self) -> None:
        """Use it no more, once what is under way has ended."""


def share_of(tensor: torch.Tensor, rank: int, num_ranks: int) -> torch.Tensor:
    """The share of ``rank`` of a flat ``tensor``, which has as many elements for each rank."""
    length = tensor.numel() // num_ranks
    return tensor.narrow(0, rank * length, length)
