"""Placement of gradient batches beside the backward or the next forward pass (Caramel section 4.3).

The paper packs in two dimensions, time and data size. A network that carries one reduction at a time turns
bytes into time: a batch takes the whole network for as long as its bytes cost, and fits where that is free.

Differs from the paper
----------------------
* A placed batch is not pinned to its slot: when another joins, batches of the backward pass travel as they
  become ready, which ends soonest, and then those of the forward pass by first use, which makes the worst
  delay least once all are ready (Jackson's rule). The runtime issues them so.
* A batch of the forward pass may start while the backward pass still runs, when the network is free.
* What was placed early may stand in the way of what came later. The placement is compared with those that
  send the largest batches beside one pass and all others beside the other; from the best of them, as long as
  one batch's going over to the other pass shortens the step, it goes.
* Batches of the forward pass end before the next step's first batch is ready, so that steps do not mix.
* Updates are left out: they push the next step's reads back, so windows are at least as long as assumed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hocket.graph.csr import Indices
from hocket.graph.step import Seconds

_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False, kw_only=True)
class BatchTimes:
    """Batches of gradients, arrays of shape (b,) in bytes and seconds.

    ``ready_s``: when the last gradient is complete; ``used_s``: when the next step first needs one of the
    reduced, both from the step's beginning. ``travel_s``: how long the reduction takes.
    """

    sizes: Indices
    ready_s: Seconds
    used_s: Seconds
    travel_s: Seconds


def place_batches(batches: BatchTimes, compute_s: float) -> tuple[list[int], list[int]]:
    """The batches for the backward and those for the forward pass, both in the order in which they travel.

    By descending size: beside the backward pass if that delays nothing, else beside the forward pass. What
    fits neither way goes, in a second round, where it adds less to the time of a step, to the backward pass
    if that is equal. Then batches change over where that helps. ``compute_s``: how long the step
    computes.
    """
    by_size = np.lexsort((batches.ready_s, -batches.sizes)).tolist()
    backward, forward = np.zeros(len(by_size), dtype=bool), np.zeros(len(by_size), dtype=bool)

    def delay_in(window: _Mask, batch: int) -> float:
        window[batch] = True
        added_s = delay_s(batches, compute_s, backward, forward)
        window[batch] = False
        return added_s

    left_over = []
    for batch in by_size:
        if delay_in(backward, batch) == 0:
            backward[batch] = True
        elif delay_in(forward, batch) == 0:
            forward[batch] = True
        else:
            left_over.append(batch)
    for batch in left_over:
        window = forward if delay_in(forward, batch) < delay_in(backward, batch) else backward
        window[batch] = True
    # Where batches are in each other's way, also what the largest ones do against all the rest.
    for count in range(len(by_size) + 1):
        largest = np.zeros(len(by_size), dtype=bool)
        largest[by_size[:count]] = True
        for first, then in ((largest, ~largest), (~largest, largest)):
            if delay_s(batches, compute_s, first, then) < delay_s(batches, compute_s, backward, forward):
                backward, forward = first, then
    while _move_one(by_size, backward, forward, lambda: delay_s(batches, compute_s, backward, forward)):
        pass
    return _by_ready(batches, backward).tolist(), _by_use(batches, forward).tolist()


def _move_one(by_size: list[int], backward: _Mask, forward: _Mask, delay: Callable[[], float]) -> bool:
    """Move the largest batch whose going over to the other pass shortens the step; whether there is one."""
    least = delay()
    for batch in by_size:
        backward[batch], forward[batch] = forward[batch], backward[batch]
        if delay() < least:
            return True
        backward[batch], forward[batch] = forward[batch], backward[batch]
    return False


def delay_s(batches: BatchTimes, compute_s: float, backward: _Mask, forward: _Mask) -> float:
    """For how long computing pauses in a step: after the backward pass, and before reads in the forward."""
    first, then = _by_ready(batches, backward), _by_use(batches, forward)
    ends = _ends(batches.ready_s[first], batches.travel_s[first], 0.0)
    free_s = float(ends.max(initial=0.0))
    begins_s = max(compute_s, free_s)
    limits = np.minimum(batches.used_s[then], batches.ready_s.min(initial=np.inf))
    late_s = _ends(batches.ready_s[then], batches.travel_s[then], free_s) - (begins_s + limits)
    # A pause before one read gives every later one as much more time, so the longest is the sum of all.
    return begins_s - compute_s + float(late_s.max(initial=0.0))


def _by_ready(batches: BatchTimes, chosen: _Mask) -> Indices:
    members = np.flatnonzero(chosen)
    return members[np.argsort(batches.ready_s[members], kind="stable")]


def _by_use(batches: BatchTimes, chosen: _Mask) -> Indices:
    members = np.flatnonzero(chosen)
    return members[np.lexsort((batches.ready_s[members], batches.used_s[members]))]


def _ends(ready_s: Seconds, travel_s: Seconds, free_s: float) -> Seconds:
    """Seconds at which transfers end that go one by one from ``free_s`` on, none before it is ready."""
    done = np.cumsum(travel_s)
    ends: Seconds = done + np.maximum.accumulate(np.maximum(ready_s, free_s) - (done - travel_s))
    return ends
