"""Counts of transfers that kept their planned order, which TicTac's enforcement is about."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Direction = Literal["pull", "push"]


@dataclass
class OrderStatistics:
    """Transfers so far, and those of them that one of a later rank, of the same step and server, overtook."""

    transfers: dict[Direction, int] = field(default_factory=lambda: {"pull": 0, "push": 0})
    overtaken: dict[Direction, int] = field(default_factory=lambda: {"pull": 0, "push": 0})

    def forget(self) -> None:
        """Begin anew, under another plan."""
        for counts in (self.transfers, self.overtaken):
            counts.update({"pull": 0, "push": 0})

    def note(self, direction: Direction, *, overtaken: bool) -> None:
        """One more transfer."""
        self.transfers[direction] += 1
        self.overtaken[direction] += overtaken

    def out_of_order(self, direction: Direction) -> float:
        """The share of transfers that were overtaken."""
        return self.overtaken[direction] / max(1, self.transfers[direction])
