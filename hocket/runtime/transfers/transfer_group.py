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

    ``size``: how many ranks there are.
    """

    size: int

    def reduce(self, tensor: torch.Tensor) -> StartedCollective:
        """Start an AllReduce of ``tensor``, in place: the sum."""

    def abandon(self) -> None:
        """Use it no more, as something is under way in it that may never end."""

    def close(self) -> None:
        """Use it no more, once what is under way has ended."""
