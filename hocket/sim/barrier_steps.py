"""Steps by all-reduce whose updates wait for all reductions: drawn for all workers without an event loop.

A worker of such a step computes without a break, from the end of its last updates to its last gradient, in
one order; it then waits for the last reduction, and updates. So the moments that matter to others are sums of
durations: a reduction is ready once the last worker has its gradients, and all of a step follows from one
maximum over workers for each reduction. Steps are drawn as :class:`hocket.sim.step_runs.StepRuns` does, and
each is as long as there, to within rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from hocket.graph import Plan, StepGraph
from hocket.graph.clipped_step import norm_operations
from hocket.graph.csr import Indices
from hocket.graph.flat_plan import FlatPlan, flatten
from hocket.graph.update_operations import Mask, is_update
from hocket.kernel import kernel, look_for_stop
from hocket.network import Network
from hocket.sim.lowering.allreduce import transfers_s
from hocket.sim.lowering.lowered import Floats, computing_order
from hocket.sim.lowering.slices import slice_step
from hocket.sim.step_runs import WARM_UP_STEPS, draws_of

# As in sim/loop/event_loop.py: events this close (relative to the time) are one instant.
_INSTANT = 1.0 + 1e-12
_LOOK_EVERY = 1 << 22  # moments, a few milliseconds
_DRAWN_STEPS, _DRAWN = 1024, 1 << 20
"""Steps drawn at once, of so many workers together; 4 MB."""
_KEPT = 32  # blocks of them, which numbers of workers and runs share


@dataclass(frozen=True, eq=False, kw_only=True)
class BarrierStep:
    """A step and its plan.

    ``parts_s`` (samples, R + 2): from the start of a worker's step, when what each of the R reductions takes
    is complete, and when all is computed; then the seconds of updates. ``transfers_s`` (R,): of reductions,
    of two that are ready the first one goes first; ``listed``: strictly one after the other.
    """

    parts_s: Floats
    transfers_s: Floats
    listed: bool

    @classmethod
    def of(cls, graph: StepGraph, plan: Plan, network: Network) -> BarrierStep | None:
        """``plan``, which fits ``graph``; None where a worker may wait before its last gradient or update."""
        if plan.architecture != "allreduce" or not plan.reductions:
            return None
        graph, plan = slice_step(graph, plan)
        flat, update = flatten(plan, graph), is_update(graph)
        if flat.gradients.forward.any() or flat.gradients.halves.any() or update.all():
            return None
        order = _computing(graph, plan, update)
        if order is None:
            return None
        clips = len(norm_operations(graph)) > 0
        return cls(
            parts_s=_parts_s(graph, flat, order),
            transfers_s=np.array(transfers_s(graph, network, plan, clips), np.float64),
            listed=flat.listed,
        )

    def step_times(
        self, seed: int, speeds: Sequence[float], iterations: int, watch: Indices
    ) -> tuple[Floats, int]:
        """Seconds of each step, (iterations,), and how many parts and reductions of steps they came from.

        ``speeds`` (W,): what divides the seconds of each worker's operations; watch (1,): how many steps are
        known, for another thread to read.
        """
        steps, known = WARM_UP_STEPS + iterations, 0
        slowness, begin_s = 1.0 / np.asarray(speeds, np.float64), np.zeros(len(speeds))
        computed_s = np.empty(steps)
        while known < steps:
            samples = _draws(seed, len(self.parts_s), known, 1 << (len(speeds) - 1).bit_length())
            samples = samples[: steps - known]
            found_s = computed_s[known : known + len(samples)]
            run_steps(self.parts_s, self.transfers_s, self.listed, slowness, samples, begin_s, found_s)
            known += len(samples)
            watch[0] = max(0, known - WARM_UP_STEPS)
        reductions = len(self.transfers_s)
        return np.diff(computed_s[WARM_UP_STEPS - 1 :]), iterations * (
            reductions + len(speeds) * self.parts_s.shape[1]
        )


@lru_cache(maxsize=_KEPT)
def _draws(seed: int, num_samples: int, first: int, num_workers: int) -> npt.NDArray[np.int32]:
    """The measured step that each worker repeats in steps from ``first`` on, (steps, num_workers).

    Those of fewer workers are the first ones, so that numbers of workers share them.
    """
    count = max(1, min(_DRAWN_STEPS, _DRAWN // num_workers))
    drawn = np.empty((count, num_workers), np.int32)
    for k in range(count):
        drawn[k] = draws_of(seed, first + k).integers(num_samples, size=num_workers)
    return drawn


def _computing(graph: StepGraph, plan: Plan, update: Mask) -> Indices | None:
    """Operations but updates as a worker runs them; None where one of them waits for a later one."""
    operations = np.flatnonzero(~update)
    rank, _ = computing_order(plan, graph, operations)
    place = np.full(graph.num_operations, -1)
    place[operations] = rank
    user, source = graph.inputs.row_of_entry(), graph.inputs.indices
    among = ~update[user]
    if (place[source[among]] >= place[user[among]]).any():
        return None
    return operations[np.argsort(rank)]


def _parts_s(graph: StepGraph, flat: FlatPlan, order: Indices) -> Floats:
    """Moments and updates of each sample, (samples, R + 2), whose operations in ``order`` are no updates."""
    begun_s = np.zeros((graph.num_samples, len(order) + 1))
    np.cumsum(graph.durations_s[order].T, axis=1, out=begun_s[:, 1:])
    place = np.zeros(graph.num_operations, np.int64)
    place[order] = np.arange(1, len(order) + 1)
    complete = np.zeros(graph.num_parameters, np.int64)
    np.maximum.at(complete, graph.produces.indices, place[graph.produces.row_of_entry()])
    last = [complete[batch].max() for batch in flat.gradients.batches()]
    updates_s = graph.durations_s.sum(axis=0) - begun_s[:, -1]
    return np.column_stack((begun_s[:, last], begun_s[:, -1], updates_s))


@kernel
def run_steps(parts_s, transfers_s, listed, slowness, samples, begin_s, computed_s):
    """Moments at which the last worker has computed each step, into ``computed_s`` (steps,).

    samples (steps, at least W): what each worker repeats; begin_s (W,), modified in place: when each begins
    the first of these steps, and the one after them.
    """
    num_workers, num_reductions = len(slowness), len(transfers_s)
    ready_s, unseen = np.empty(num_reductions), 0
    waits = np.empty(num_reductions, np.bool_)
    for k in range(len(computed_s)):
        ready_s[:] = 0.0
        last_s = 0.0
        for w in range(num_workers):
            parts = parts_s[samples[k, w]]
            for r in range(num_reductions):
                ready_s[r] = max(ready_s[r], begin_s[w] + slowness[w] * parts[r])
            last_s = max(last_s, begin_s[w] + slowness[w] * parts[num_reductions])
        computed_s[k] = last_s
        reduced_s = reduce_all(ready_s, transfers_s, listed, waits)
        for w in range(num_workers):
            parts = parts_s[samples[k, w]]
            own_s = begin_s[w] + slowness[w] * parts[num_reductions]
            begin_s[w] = max(reduced_s, own_s) + slowness[w] * parts[num_reductions + 1]
        unseen += num_workers * (num_reductions + 2)
        if unseen > _LOOK_EVERY:
            unseen = 0
            look_for_stop()


@kernel
def reduce_all(ready_s, transfers_s, listed, waits):
    """The moment at which the last of all reductions ends, one at a time, of those ready the first one.

    waits (R,): overwritten.
    """
    now, first = 0.0, 0
    waits[:] = True
    while first < len(ready_s):
        taken, next_s = -1, np.inf
        for r in range(first, first + 1 if listed else len(ready_s)):
            if waits[r] and ready_s[r] <= now * _INSTANT:
                taken = r
                break
            if waits[r]:
                next_s = min(next_s, ready_s[r])
        if taken < 0:
            now = next_s
            continue
        now += transfers_s[taken]
        waits[taken] = False
        while first < len(ready_s) and not waits[first]:
            first += 1
    return now
