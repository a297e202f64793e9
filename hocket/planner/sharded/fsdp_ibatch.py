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

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hocket.graph.csr import Indices
from hocket.kernel import kernel
from hocket.network import ShardGroups
from hocket.planner.sharded.block_chain import BlockChain

Labels = npt.NDArray[np.float64]
"""(n, 9): rows of units, by the columns below, of which less is better."""
NEXT, LAST = 0, 1
"""Times: from when on the next all-gather may start, and when the last unit begins to compute."""
COMPUTING, QUEUE, SCATTER, OLDER, BETWEEN = 2, 3, 4, 5, 6
"""Seconds to the step's end from: computing before the last unit's backward pass, the queue of collectives,
the newest and the older reduce-scatter that are waited for, and the queue between replicas."""
BYTES, BEFORE = 7, 8
"""Held in the backward pass beside reduce-scatters: for the last unit, and for the one before it."""
_NEVER = -np.inf


@dataclass(frozen=True, kw_only=True)
class HeldLimits:
    """The most bytes that may be held beside shards in each pass."""

    forward: float
    backward: float


@dataclass(frozen=True, eq=False, kw_only=True)
class _Rows:
    """Rows of units that end before the same block, and of each row's last unit what the next one meets.

    ``begin`` (n,): its first block; ``row`` (n,): its label's place; ``computed_s``: when it has computed;
    ``gather_s``, ``gathered``: of its all-gather in the backward pass; ``held``: bytes in the forward pass
    when the next unit is gathered ahead of it; ``scattered``: of its gradients.
    """

    labels: Labels
    begin: Indices
    row: Indices
    computed_s: Labels
    gather_s: Labels
    gathered: Labels
    held: Labels
    scattered: Labels


class UnitProgram:
    """The program for one chain.

    ``ahead``: the step's program runs ahead of its device, as on GPUs.
    """

    def __init__(self, chain: BlockChain, groups: ShardGroups, limits: HeldLimits, *, ahead: bool) -> None:
        self._chain, self._groups, self._limits, self._ahead = chain, groups, limits, ahead
        self._gathered, self._scattered = (
            np.concatenate(([0], sizes.cumsum())) for sizes in (chain.gathered, chain.scattered)
        )
        rest = chain.rest
        self._leading = rest.gathered_bytes if rest is not None and rest.leads else 0
        self._kept = rest.gathered_bytes if rest is not None and rest.gradients != "early" else 0
        self._early = rest.scattered_bytes if rest is not None and rest.gradients == "early" else 0
        self._known: dict[tuple[int, int], tuple[Labels, Indices, Indices]] = {}
        self._buffers = 1 if ahead else 2  # of a reduce-scatter: sent and, on CPUs, received

    def cuts(self) -> tuple[int, ...] | None:
        """The blocks before which a unit begins, of the best units; None where none keep to the limits."""
        count = len(self._chain.gathered)
        for begin in range(count):
            rows = self._first() if begin == 0 else self._ending_before(begin)
            for end in range(begin + 1, count + 1):
                self._known[begin, end] = self._with_unit(rows, begin, end)
        best_s, best = np.inf, None
        for begin in range(count):
            seconds = self._whole_s(begin)
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

    def _first(self) -> _Rows:
        """The one row without units: the step's begin, and its end behind the first block's backward pass."""
        chain, rest, ahead = self._chain, self._chain.rest, self._ahead
        label = np.full(9, _NEVER)
        computed_s = float(chain.forward_s[0])
        label[NEXT], label[LAST] = 0.0 if ahead else computed_s, 0.0
        label[BYTES] = label[BEFORE] = 0.0
        if rest is not None and rest.leads:
            gathered_s = (0.0 if ahead else rest.at_s) + self._groups.gather_s(rest.gathered_bytes)
            begins_s = max(rest.at_s, gathered_s)
            label[NEXT], label[LAST] = gathered_s if ahead else begins_s, begins_s
            computed_s = begins_s + computed_s - rest.at_s
        left_s = chain.end_s - float(chain.ends_s[0])
        label[COMPUTING], label[QUEUE], label[SCATTER], label[OLDER], label[BETWEEN] = (
            left_s,
            0.0,
            0.0,
            0.0,
            0.0,
        )
        if rest is not None and rest.gradients == "late":
            self._add_late_rest(label)
        again = rest is not None and rest.leads and rest.gradients == "early"
        gathered = rest.gathered_bytes if rest is not None and again else 0
        one = np.ones(1)
        return _Rows(
            labels=label[None, :],
            begin=np.full(1, -1),
            row=np.zeros(1, np.int64),
            computed_s=computed_s * one,
            gather_s=(self._groups.gather_s(gathered) if again else _NEVER) * one,
            gathered=gathered * one,
            held=2.0 * self._leading * one,
            scattered=0.0 * one,
        )

    def _add_late_rest(self, label: Labels) -> None:
        """Put the reduce-scatter of the rest, behind all blocks, before the step's end."""
        chain, rest, groups = self._chain, self._chain.rest, self._groups
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
        if self._ahead:
            label[SCATTER] = behind_s
        else:
            label[OLDER] = after_s if size else 0.0
        label[BYTES] = rest.gathered_bytes + size
        if not self._ahead:
            label[BYTES] = max(label[BYTES], 3 * size)

    def _ending_before(self, block: int) -> _Rows:
        """All rows whose last unit ends before ``block``."""
        labels, begins, places = [], [], []
        for first in range(block):
            known = self._known[first, block][0]
            labels.append(known)
            begins.append(np.full(len(known), first))
            places.append(np.arange(len(known)))
        begin, every = np.concatenate(begins), np.concatenate(labels)
        gathered = (self._gathered[block] - self._gathered[begin]).astype(np.float64)
        gather_s = np.array(
            [self._groups.gather_s(size) for size in self._gathered[block] - self._gathered[:block]]
        )
        return _Rows(
            labels=every,
            begin=begin,
            row=np.concatenate(places),
            computed_s=every[:, LAST] + self._chain.forward_s[block] - self._chain.forward_s[begin],
            gather_s=gather_s[begin],
            gathered=gathered,
            held=self._leading + 2 * gathered,
            scattered=(self._scattered[block] - self._scattered[begin]).astype(np.float64),
        )

    def _with_unit(self, rows: _Rows, begin: int, end: int) -> tuple[Labels, Indices, Indices]:
        """``rows`` with the unit of blocks from ``begin`` to ``end``: those left, and what they grew from."""
        added = self._held(rows, begin, end)
        within = np.flatnonzero(added[:, BYTES] < np.inf)
        if len(within) == 0:
            return added[:0], within, within
        self._run(rows, begin, end, added)
        added = added[within]
        order = np.lexsort(added.T[::-1])
        kept = order[undominated(np.ascontiguousarray(added[order]))]
        grown = within[kept]
        return added[kept], rows.begin[grown], rows.row[grown]

    def _run(self, rows: _Rows, begin: int, end: int, added: Labels) -> None:
        """Fill in times, and seconds to the step's end, of ``added``."""
        chain, groups, known = self._chain, self._groups, rows.labels
        size = int(self._gathered[end] - self._gathered[begin])
        trained = int(self._scattered[end] - self._scattered[begin])
        gathered_s = known[:, NEXT] + groups.gather_s(size)
        added[:, LAST] = np.maximum(rows.computed_s, gathered_s)
        added[:, NEXT] = np.maximum(gathered_s, known[:, LAST]) if self._ahead else added[:, LAST]
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
        if self._ahead:
            added[:, SCATTER], added[:, OLDER] = computed_s, 0.0
        else:
            added[:, SCATTER], added[:, OLDER] = known[:, OLDER], from_end_s
        next_s = scattered_s if begin == 0 else np.maximum(scattered_s, known[:, COMPUTING])
        added[:, QUEUE] = next_s + np.maximum(rows.gather_s, 0.0)
        added[:, COMPUTING] = np.maximum(computed_s + own_s, next_s + rows.gather_s)

    def _held(self, rows: _Rows, begin: int, end: int) -> Labels:
        """New labels with the bytes that are held; infinite where those are beyond the limits."""
        size = float(self._gathered[end] - self._gathered[begin])
        trained = float(self._scattered[end] - self._scattered[begin])
        known, rest, kept, limits = rows.labels, self._chain.rest, self._kept, self._limits
        added = np.zeros((len(known), 9))
        forward = np.maximum(rows.held + size, self._leading + 2 * size)
        own = kept + np.maximum(2 * size, size + rows.gathered + trained)
        behind = kept + rows.gathered + (2 if self._ahead else 3) * trained
        if self._ahead:
            backward = np.maximum(known[:, BYTES] + trained, behind)
        else:
            own = np.maximum(own, behind)
            backward = known[:, BEFORE] + 2 * (rows.scattered + trained)
        if end == len(self._chain.gathered):
            early = self._early if self._ahead else 2 * self._early
            backward = np.maximum(backward, own + early)
            if not self._ahead:
                backward = np.maximum(backward, known[:, BYTES] + 2 * trained + early)
            if rest is not None and not rest.leads:
                forward = np.maximum(forward, 2 * size + rest.gathered_bytes)
                backward = np.maximum(backward, size + max(rest.gathered_bytes, early) + self._early)
        within = (forward <= limits.forward) & (backward <= limits.backward)
        if limits.backward < np.inf:
            added[:, BYTES], added[:, BEFORE] = own, 0.0 if self._ahead else known[:, BYTES]
        added[~within, BYTES] = np.inf
        return added

    def _whole_s(self, begin: int) -> Labels:
        """Seconds of the step, but for updates, of all rows whose last unit begins with block ``begin``."""
        chain, groups, rest, ahead = self._chain, self._groups, self._chain.rest, self._ahead
        labels = self._known[begin, len(chain.gathered)][0]
        copied_s = labels[:, LAST]
        turn_s = copied_s + float(chain.forward_s[-1] - chain.forward_s[begin])
        if rest is not None and not rest.leads:
            copied_s = np.maximum(turn_s, labels[:, NEXT] + groups.gather_s(rest.gathered_bytes))
            turn_s = copied_s + chain.turn_s - rest.at_s
        begins_s = turn_s + float(chain.begins_s[-1]) - chain.turn_s
        gather_s = groups.gather_s(int(self._gathered[-1] - self._gathered[begin]))
        free_s, may_start_s = copied_s, copied_s if ahead else begins_s
        whole_s = np.zeros(len(labels))
        early = rest is not None and rest.gradients == "early"
        if rest is not None and early and not rest.leads:
            # The rest runs backward first, and has the last unit gathered.
            free_s = gather_s + (copied_s if ahead else turn_s + rest.back_s[0] - chain.turn_s)
        gathered_s = free_s
        if rest is not None and self._early:
            scatter_s = np.maximum(free_s, turn_s + rest.back_s[1] - chain.turn_s)
            scatter_s = scatter_s + groups.scatter_s(self._early)
            reduced_s = scatter_s + groups.reduce_s(self._early)
            free_s = scatter_s if groups.apart else reduced_s
            whole_s = np.maximum(whole_s, scatter_s + labels[:, SCATTER])
            if groups.apart:
                whole_s = np.maximum(whole_s, reduced_s + labels[:, BETWEEN])
        if not early or (rest is not None and rest.leads):
            free_s = gathered_s = np.maximum(free_s, may_start_s) + gather_s
        whole_s = np.maximum(whole_s, np.maximum(begins_s, gathered_s) + labels[:, COMPUTING])
        return np.maximum(whole_s, free_s + labels[:, QUEUE])


@kernel
def undominated(labels: Labels) -> npt.NDArray[np.bool_]:
    """Tell of each row, in the order of their columns, if no other is as good in every column."""
    n, width = labels.shape
    kept = np.ones(n, np.bool_)
    for i in range(1, n):
        for j in range(i):
            if kept[j]:
                better = True
                for k in range(width):
                    if labels[j, k] > labels[i, k]:
                        better = False
                        break
                if better:
                    kept[i] = False
                    break
    return kept
