"""iBatch's question of FSDP2: which consecutive blocks make a unit, so that a step ends soonest, exactly.

A dynamic program over the last unit. The forward pass so far is a few times; what is left of the
backward pass, whose units run in reverse, is the longest path from each thing that it waits for to the step's
end. Units are added in forward order: each adds to the times, and to the front of the paths. Of two rows of
units with the same last one, a row that is no better in any of these, and in memory, is dropped.

It is exact for plans that gather one unit ahead in both passes, reshard units of blocks after their forward
pass, and keep the rest: no other units of consecutive blocks end a simulated step sooner within the limit.
Where the least units do not keep to it either, plans of no more memory than theirs are compared.

Source: iBatch (batches of layers), and :mod:`hocket.sim.lowering.unit_schedule` for what waits for what.

Differs from the paper
----------------------
* Both passes and reduce-scatters share one queue, and memory is limited.
* Updates come behind all transfers, as FSDP2 has them, and add the same to any plan.
"""

from __future__ import annotations

import numpy as np

from hocket.graph.csr import Indices
from hocket.network import ShardGroups
from hocket.planner.sharded.block_chain import BlockChain
from hocket.planner.sharded.step_ends import no_units, whole_s
from hocket.planner.sharded.unit_chain import UnitChain
from hocket.planner.sharded.unit_memory import HeldLimits, with_held
from hocket.planner.sharded.unit_rows import (
    BETWEEN,
    BYTES,
    COMPUTING,
    LAST,
    NEXT,
    OLDER,
    QUEUE,
    SCATTER,
    Labels,
    UnitRows,
    undominated,
)


class UnitProgram:
    """The program for one chain.

    ``ahead``: the step's program runs ahead of its device, as on GPUs.
    """

    def __init__(self, chain: BlockChain, groups: ShardGroups, limits: HeldLimits, *, ahead: bool) -> None:
        self._units, self._limits = UnitChain(chain, groups, ahead=ahead), limits
        self._known: dict[tuple[int, int], tuple[Labels, Indices, Indices]] = {}

    def cuts(self) -> tuple[int, ...] | None:
        """The blocks before which a unit begins, of the best units; None where none keep to the limits."""
        count = self._units.count
        for begin in range(count):
            rows = no_units(self._units) if begin == 0 else self._ending_before(begin)
            for end in range(begin + 1, count + 1):
                self._known[begin, end] = self._with_unit(rows, begin, end)
        best_s, best = np.inf, None
        for begin in range(count):
            seconds = whole_s(self._units, self._known[begin, count][0], begin)
            if len(seconds) and seconds.min() < best_s:
                best_s, best = float(seconds.min()), (begin, int(seconds.argmin()))
        if best is None:
            return None
        begin, row = best
        end, cuts = count, []
        while begin > 0:
            cuts.append(begin)
            _, begins, rows_before = self._known[begin, end]
            begin, end, row = int(begins[row]), begin, int(rows_before[row])
        return tuple(reversed(cuts))

    def _ending_before(self, block: int) -> UnitRows:
        """All rows whose last unit ends before ``block``."""
        units, labels, begins, places = self._units, [], [], []
        for first in range(block):
            known = self._known[first, block][0]
            labels.append(known)
            begins.append(np.full(len(known), first))
            places.append(np.arange(len(known)))
        begin, every = np.concatenate(begins), np.concatenate(labels)
        gathered = (units.gathered[block] - units.gathered[begin]).astype(np.float64)
        gather_s = np.array(
            [units.groups.gather_s(size) for size in units.gathered[block] - units.gathered[:block]]
        )
        return UnitRows(
            labels=every,
            begin=begin,
            row=np.concatenate(places),
            computed_s=every[:, LAST] + units.chain.forward_s[block] - units.chain.forward_s[begin],
            gather_s=gather_s[begin],
            gathered=gathered,
            held=units.leading + 2 * gathered,
            scattered=(units.scattered[block] - units.scattered[begin]).astype(np.float64),
        )

    def _with_unit(self, rows: UnitRows, begin: int, end: int) -> tuple[Labels, Indices, Indices]:
        """``rows`` with the unit of blocks from ``begin`` to ``end``: those left, and what they grew from."""
        added = with_held(self._units, self._limits, rows, begin, end)
        within = np.flatnonzero(added[:, BYTES] < np.inf)
        if len(within) == 0:
            return added[:0], within, within
        self._run(rows, begin, end, added)
        added = added[within]
        order = np.lexsort(added.T[::-1])
        kept = order[undominated(np.ascontiguousarray(added[order]))]
        grown = within[kept]
        return added[kept], rows.begin[grown], rows.row[grown]

    def _run(self, rows: UnitRows, begin: int, end: int, added: Labels) -> None:
        """Fill in times, and seconds to the step's end, of ``added``."""
        units, known = self._units, rows.labels
        chain, groups = units.chain, units.groups
        size = int(units.gathered[end] - units.gathered[begin])
        trained = int(units.scattered[end] - units.scattered[begin])
        gathered_s = known[:, NEXT] + groups.gather_s(size)
        added[:, LAST] = np.maximum(rows.computed_s, gathered_s)
        added[:, NEXT] = np.maximum(gathered_s, known[:, LAST]) if units.ahead else added[:, LAST]
        scatter_s, reduce_s = groups.scatter_s(trained), groups.reduce_s(trained)
        own_s = float(chain.ends_s[begin] - chain.begins_s[end - 1])
        between_s = float(chain.begins_s[begin - 1] - chain.ends_s[begin]) if begin else 0.0
        from_end_s = known[:, COMPUTING] + between_s
        in_queue_s = 0.0 if groups.apart else reduce_s
        scattered_s = np.maximum(known[:, QUEUE] + in_queue_s, known[:, SCATTER])
        if groups.apart:
            scattered_s = np.maximum(scattered_s, known[:, BETWEEN] + reduce_s)
        added[:, BETWEEN] = known[:, BETWEEN] + (reduce_s if groups.apart else 0.0)
        scattered_s += scatter_s
        computed_s = np.maximum(from_end_s, scattered_s)
        if units.ahead:
            added[:, SCATTER], added[:, OLDER] = computed_s, 0.0
        else:
            added[:, SCATTER], added[:, OLDER] = known[:, OLDER], from_end_s
        next_s = scattered_s if begin == 0 else np.maximum(scattered_s, known[:, COMPUTING])
        added[:, QUEUE] = next_s + np.maximum(rows.gather_s, 0.0)
        added[:, COMPUTING] = np.maximum(computed_s + own_s, next_s + rows.gather_s)
