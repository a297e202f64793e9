"""Both ends of a step's rows of units: what is there before the first one, and a whole step's seconds."""

from __future__ import annotations

import numpy as np

from hocket.planner.sharded.unit_chain import UnitChain
from hocket.planner.sharded.unit_rows import (
    BEFORE,
    BETWEEN,
    BYTES,
    COLUMNS,
    COMPUTING,
    LAST,
    NEVER,
    NEXT,
    OLDER,
    QUEUE,
    SCATTER,
    Labels,
    UnitRows,
)


def no_units(units: UnitChain) -> UnitRows:
    """The one row without units: the step's begin, and its end behind the first block's backward pass."""
    chain, rest, groups = units.chain, units.chain.rest, units.groups
    label = np.full(COLUMNS, NEVER)
    computed_s = float(chain.forward_s[0])
    label[NEXT], label[LAST] = 0.0 if units.ahead else computed_s, 0.0
    label[BYTES] = label[BEFORE] = 0.0
    if rest is not None and rest.leads:
        gathered_s = (0.0 if units.ahead else rest.at_s) + groups.gather_s(rest.gathered_bytes)
        begins_s = max(rest.at_s, gathered_s)
        label[NEXT], label[LAST] = gathered_s if units.ahead else begins_s, begins_s
        computed_s = begins_s + computed_s - rest.at_s
    label[COMPUTING] = chain.end_s - float(chain.ends_s[0])
    label[[QUEUE, SCATTER, OLDER, BETWEEN]] = 0.0
    if rest is not None and rest.gradients == "late":
        _add_late_rest(units, label)
    again = rest is not None and rest.leads and rest.gradients == "early"
    gathered = rest.gathered_bytes if rest is not None and again else 0
    one = np.ones(1)
    return UnitRows(
        labels=label[None, :],
        begin=np.full(1, -1),
        row=np.zeros(1, np.int64),
        computed_s=computed_s * one,
        gather_s=(groups.gather_s(gathered) if again else NEVER) * one,
        gathered=gathered * one,
        held=2.0 * units.leading * one,
        scattered=0.0 * one,
    )


def _add_late_rest(units: UnitChain, label: Labels) -> None:
    """Put the reduce-scatter of the rest, behind all blocks, before the step's end."""
    chain, rest, groups = units.chain, units.chain.rest, units.groups
    assert rest is not None
    size = rest.scattered_bytes
    after_s = chain.end_s - rest.back_s[1]
    until_s = rest.back_s[1] - float(chain.ends_s[0])
    behind_s = after_s
    if size:
        reduce_s = groups.reduce_s(size)
        scatter_s = groups.scatter_s(size) + reduce_s
        behind_s = max(after_s, scatter_s)
        label[QUEUE] = scatter_s
        label[BETWEEN] = reduce_s if groups.apart else 0.0
    label[COMPUTING] = until_s + behind_s
    if units.ahead:
        label[SCATTER] = behind_s
    else:
        label[OLDER] = after_s if size else 0.0
    label[BYTES] = rest.gathered_bytes + size
    if not units.ahead:
        label[BYTES] = max(label[BYTES], 3 * size)


def whole_s(units: UnitChain, labels: Labels, begin: int) -> Labels:
    """Seconds of the step, but for updates, of all rows whose last unit begins with block ``begin``."""
    chain, groups, rest, ahead = units.chain, units.groups, units.chain.rest, units.ahead
    copied_s = labels[:, LAST]
    turn_s = copied_s + float(chain.forward_s[-1] - chain.forward_s[begin])
    if rest is not None and not rest.leads:
        copied_s = np.maximum(turn_s, labels[:, NEXT] + groups.gather_s(rest.gathered_bytes))
        turn_s = copied_s + chain.turn_s - rest.at_s
    begins_s = turn_s + float(chain.begins_s[-1]) - chain.turn_s
    gather_s = groups.gather_s(int(units.gathered[-1] - units.gathered[begin]))
    free_s, may_start_s = copied_s, copied_s if ahead else begins_s
    early = rest is not None and rest.gradients == "early"
    if rest is not None and early and not rest.leads:
        # The rest runs backward first, and has the last unit gathered.
        free_s = gather_s + (copied_s if ahead else turn_s + rest.back_s[0] - chain.turn_s)
    gathered_s = free_s
    found_s = np.zeros(len(labels))
    if units.early:
        free_s, found_s = _early_scatter(units, labels, turn_s, free_s)
    if not early or (rest is not None and rest.leads):
        free_s = gathered_s = np.maximum(free_s, may_start_s) + gather_s
    found_s = np.maximum(found_s, np.maximum(begins_s, gathered_s) + labels[:, COMPUTING])
    return np.maximum(found_s, free_s + labels[:, QUEUE])


def _early_scatter(units: UnitChain, labels: Labels, turn_s: Labels, free_s: Labels) -> tuple[Labels, Labels]:
    """The rest's reduce-scatter before all blocks': when the queue is free again, and steps' least ends."""
    groups, rest = units.groups, units.chain.rest
    assert rest is not None
    scatter_s = np.maximum(free_s, turn_s + rest.back_s[1] - units.chain.turn_s)
    scatter_s = scatter_s + groups.scatter_s(units.early)
    reduced_s = scatter_s + groups.reduce_s(units.early)
    least_s = scatter_s + labels[:, SCATTER]
    if groups.apart:
        least_s = np.maximum(least_s, reduced_s + labels[:, BETWEEN])
    return scatter_s if groups.apart else reduced_s, np.maximum(0.0, least_s)
