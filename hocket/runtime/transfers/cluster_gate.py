"""A channel's requests to the cluster's gate: its rounds are the iterations that the gate counts.

A round begins to transfer with its first filled bucket, and ends when its last transfer has arrived. Rank 0
asks before each transfer; the others follow, since a collective needs all of them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from hocket.launch.gate import GATE_VARIABLE, Gate, first_iteration, gate_of_environment
from hocket.launch.lost_peers import end_as_lost
from hocket.runtime.transfers.buckets import BucketTransfer
from hocket.runtime.transfers.plan_layout import Layout

_gate_claim = threading.Lock()


class GateCounter:
    """One channel's account with the gate; without a ``gate`` it costs nothing.

    ``begin``: the number of its first round; ``leads``: it is rank 0's.
    """

    def __init__(self, gate: Gate | None, begin: int, *, leads: bool) -> None:
        self._gate, self._leads = gate, leads
        self._counting, self._counting_arrivals = threading.Lock(), threading.Lock()
        # Rounds that were over when the layout came; since then buckets filled, transfers that left, arrived.
        self._rounds, self._step = begin, begin
        self._filled_buckets = self._started_transfers = self._arrived_transfers = 0
        self._buckets = self._transfers = 1
        self._round_bytes = self._bytes_left = 0

    def reset(self, layout: Layout) -> None:
        """Rounds have these buckets and transfers from now on; none is under way."""
        self._rounds += self._arrived_transfers // self._transfers
        self._filled_buckets = self._started_transfers = self._arrived_transfers = 0
        self._buckets, self._transfers = max(1, len(layout.buckets)), max(1, len(layout.transfers))
        self._round_bytes = self._bytes_left = sum(transfer.num_bytes for transfer in layout.transfers)

    def step(self, work: Callable[[], object]) -> None:
        """Do ``work`` when this rank may compute its next step."""
        if self._gate is not None:
            self._gate.compute(self._step, 0)
            self._step += 1
        work()

    def count_filled(self) -> None:
        """A bucket is filled; the first of a round ends what counts as computing."""
        if self._gate is None:
            return
        if self._filled_buckets % self._buckets == 0:
            self._gate.computed(self._rounds + self._filled_buckets // self._buckets, 1)
        self._filled_buckets += 1

    def wait_to_start(self, transfer: BucketTransfer) -> None:
        """Return when ``transfer`` may go."""
        if self._gate is None or not self._leads:
            return
        with self._counting:  # lanes ask one after the other
            iteration = self._rounds + self._started_transfers // self._transfers
            self._gate.transfer(iteration, self._bytes_left, self._round_bytes)
            self._started_transfers += 1
            self._bytes_left -= transfer.num_bytes
            if self._started_transfers % self._transfers == 0:
                self._bytes_left = self._round_bytes

    def count_arrival(self) -> None:
        """A transfer has arrived; the last of a round ends it."""
        if self._gate is None:
            return
        with self._counting_arrivals:
            self._arrived_transfers += 1
            over = self._arrived_transfers % self._transfers == 0
            iteration = self._rounds + self._arrived_transfers // self._transfers - 1
        if over and self._leads:
            self._gate.transferred(iteration)


def counter_of_environment(*, leads: bool) -> GateCounter:
    """The account of this process's first channel with the environment's gate; other channels have none."""
    gate, begin = None, first_iteration()
    if os.environ.get(GATE_VARIABLE) and _gate_claim.acquire(blocking=False):
        gate = gate_of_environment(begin)
        end_as_lost()
    return GateCounter(gate, begin, leads=leads)
