"""The memory of rows of units: what is held beside shards while a further one computes, in either pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hocket.planner.sharded.unit_chain import UnitChain
from hocket.planner.sharded.unit_rows import BEFORE, BYTES, Labels, UnitRows


@dataclass(frozen=True, kw_only=True)
class HeldLimits:
    """The most bytes that may be held beside shards in each pass."""

    forward: float
    backward: float


def with_held(units: UnitChain, limits: HeldLimits, rows: UnitRows, begin: int, end: int) -> Labels:
    """New labels with the bytes that are held; infinite where those are beyond the limits.

    Of ``rows`` with the unit of blocks from ``begin`` to ``end`` behind them.
    """
    size = float(units.gathered[end] - units.gathered[begin])
    trained = float(units.scattered[end] - units.scattered[begin])
    known = rows.labels
    forward = np.maximum(rows.held + size, units.leading + 2 * size)
    own = units.kept + np.maximum(2 * size, size + rows.gathered + trained)
    behind = units.kept + rows.gathered + (2 if units.ahead else 3) * trained
    if units.ahead:
        backward = np.maximum(known[:, BYTES] + trained, behind)
    else:
        own = np.maximum(own, behind)
        backward = known[:, BEFORE] + 2 * (rows.scattered + trained)
    if end == units.count:
        backward = np.maximum(backward, _at_turn(units, known, own, trained))
        rest = units.chain.rest
        if rest is not None and not rest.leads:
            forward = np.maximum(forward, 2 * size + rest.gathered_bytes)
            backward = np.maximum(backward, size + max(rest.gathered_bytes, _early(units)) + units.early)
    within = (forward <= limits.forward) & (backward <= limits.backward)
    added = np.zeros_like(known)
    if limits.backward < np.inf:
        added[:, BYTES], added[:, BEFORE] = own, 0.0 if units.ahead else known[:, BYTES]
    added[~within, BYTES] = np.inf
    return added


def _at_turn(units: UnitChain, known: Labels, own: Labels, trained: float) -> Labels:
    """Bytes held in the last units' backward passes, while the rest's early gradients are scattered."""
    early = _early(units)
    if units.ahead:
        return own + early
    return np.maximum(own + early, known[:, BYTES] + 2 * trained + early)


def _early(units: UnitChain) -> int:
    """Bytes of the buffers of the rest's early reduce-scatter: sent and, on CPUs, received."""
    return units.early if units.ahead else 2 * units.early
