"""Steps of unlike length: how long the slowest of several workers computes, each a step drawn of several."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hocket.sim.lowering.lowered import Floats

_ROUNDING = 1e-12


def slowest_s(samples_s: Floats, speeds: Sequence[float]) -> float:
    """The expected longest of one step of each worker, in seconds.

    ``samples_s`` (R,): a step on a machine of speed 1, of which each worker draws one by itself, all as
    likely; ``speeds`` (W,).
    """
    ordered = np.sort(samples_s)
    kinds, counts = np.unique(np.asarray(speeds, np.float64), return_counts=True)
    lengths = np.unique(ordered / kinds[:, None])
    none_is_longer = np.ones(len(lengths))
    for speed, count in zip(kinds, counts, strict=True):
        within = np.searchsorted(ordered, lengths * speed * (1 + _ROUNDING), side="right")
        none_is_longer *= (within / len(ordered)) ** count
    return float(lengths @ np.diff(none_is_longer, prepend=0.0))


def uneven_s(samples_s: Floats, speeds: Sequence[float]) -> float:
    """Seconds by which the slowest of a step's workers is later than the slowest machine is on average."""
    return max(0.0, slowest_s(samples_s, speeds) - float(samples_s.mean()) / min(speeds))
