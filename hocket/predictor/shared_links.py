"""Streams that share links, in the prediction kernel.

Where all workers share one server's link alike, each direction keeps one virtual clock that advances by the
bits which every active worker has got: a transfer ends when the clock shows what it showed at its start plus
its bits, so nobody is looked at when others come or go. Any other topology is shared by
:func:`hocket.network.max_min.fill`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hocket.kernel import kernel
from hocket.network.max_min import fill
from hocket.predictor.program import Floats, Ints
from hocket.sim.loop.lanes import set_time

IDLE, STARTING, MOVING = 0, 1, 2


class Streams(NamedTuple):
    """The channels' streams where links differ, and arrays for ``fill`` to work in."""

    stage: Ints  # (2 W M,)
    chunk_bits: Floats  # left of the chunk, as of rate_at
    rate: Floats  # bit/s
    old_rate: Floats
    rate_at: Floats  # seconds
    room_bps: Floats  # (links,)
    load: Ints  # (links,)


@kernel
def advance(clock, clock_at, way, active, worker_bps, server_bps, now):
    """Bring one direction's clock, the bits that each active worker has got, up to date."""
    if active[way] > 0:
        clock[way] += min(worker_bps, server_bps / active[way]) * (now - clock_at[way])
    clock_at[way] = now


@kernel
def first_ends(clock, clock_at, active, end_on_clock, worker_bps, server_bps, end_s):
    """Set ``end_s`` (2,) to when the first transfer of each direction ends; inf where none is on its way."""
    for way in range(2):
        end_s[way] = np.inf
        if active[way] > 0:
            bps = min(worker_bps, server_bps / active[way])
            end_s[way] = clock_at[way] + (end_on_clock[way, 1] - clock[way]) / bps


@kernel
def refill(tree, lanes_of, streams, route, capacity_bps, now):
    """Share any topology anew among the streams that move; those whose rate changed get a new end."""
    chunk_bits, rate, old_rate, rate_at = streams.chunk_bits, streams.rate, streams.old_rate, streams.rate_at
    flows = np.flatnonzero(streams.stage == MOVING)
    for c in flows:
        old_rate[c] = rate[c]
    fill(route, capacity_bps, flows, rate, streams.room_bps, streams.load)
    for c in flows:
        if rate[c] != old_rate[c]:
            chunk_bits[c] = max(0.0, chunk_bits[c] - old_rate[c] * (now - rate_at[c]))
            rate_at[c] = now
            set_time(tree, lanes_of[c], now + chunk_bits[c] / rate[c])
