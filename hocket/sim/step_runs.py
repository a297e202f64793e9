"""A lowered plan, simulated step after step with what each step draws."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hocket.graph import Plan, StepGraph, check_plan
from hocket.graph.csr import Indices
from hocket.memory import check_memory
from hocket.network import Network, check_exchange
from hocket.network.topology import Topology
from hocket.signals import look
from hocket.sim.busy import busy_s
from hocket.sim.loop import event_loop
from hocket.sim.loop.step_program import ItemTimes, StepDurations
from hocket.sim.lowering.allreduce import allreduce_step, lower_allreduce_step
from hocket.sim.lowering.lowered import Floats, Lowered
from hocket.sim.lowering.machine_links import channel_links, check_machines
from hocket.sim.lowering.parameter_server import server_step
from hocket.sim.lowering.server_plan import lower_server_step
from hocket.sim.lowering.sharded_step import ShardedStep, lower_sharded_step
from hocket.sim.lowering.slices import slice_step

# Overlapping steps settle into their rhythm before they are measured, and the last ones, which nothing
# follows, are left out.
WARM_UP_STEPS = 8
COOL_DOWN_STEPS = 2
# Overlapping steps are simulated in one go, up to this many items at a time: some 20 bytes each, or 45.
_LARGEST_RUN = 20_000_000
_ITEM_BYTES = 60.0


def lower(graph: StepGraph, plan: Plan, network: Network, *, shown: bool = True) -> Lowered:
    """Lower ``plan`` for all workers of ``network``.

    ``shown``: each operation is a node of its own, as a timeline needs it; a fully sharded step can do
    without, and where all workers do the same, with one of them.

    Raises
    ------
    FormatError, HocketError
        When the plan does not fit the step, there are too many servers, or the network has a window or a
        pattern that the plan cannot use.
    """
    check_plan(plan, graph)
    check_exchange(network, plan.architecture)
    if plan.architecture == "fsdp":
        sharded = ShardedStep.of(graph, network)
        if shown or graph.num_samples > 1:
            return lower_sharded_step(sharded, plan, network.num_workers, apart=shown)
        return _sharded_for_one(sharded, plan)
    cut, cut_plan = slice_step(graph, plan)
    if plan.architecture == "allreduce":
        return lower_allreduce_step(allreduce_step(cut, network), cut_plan, network.num_workers)
    step = server_step(cut, network, overlapping=plan.barrier == "parameter")
    return lower_server_step(step, cut_plan, network.num_workers)


def lower_for_one(graph: StepGraph, plan: Plan, network: Network) -> Lowered:
    """As :func:`lower`, of a plan without servers: a single worker, whose reductions cost what all cost.

    Raises
    ------
    FormatError, HocketError
        As :func:`lower`.
    """
    check_plan(plan, graph)
    check_exchange(network, plan.architecture)
    if plan.architecture == "fsdp":
        return _sharded_for_one(ShardedStep.of(graph, network), plan)
    cut, cut_plan = slice_step(graph, plan)
    lowered = lower_allreduce_step(allreduce_step(cut, network), cut_plan, 1)
    return dataclasses.replace(lowered, network=dataclasses.replace(network, num_workers=1))


def _sharded_for_one(step: ShardedStep, plan: Plan) -> Lowered:
    lowered = lower_sharded_step(step, plan, 1, apart=False)
    return dataclasses.replace(lowered, network=dataclasses.replace(step.network, num_workers=1, shards=None))


def draws_of(seed: int, step: int) -> np.random.Generator:
    """The generator of all that chance decides in a step."""
    return np.random.default_rng((seed, step))


@dataclass(frozen=True)
class SimulatedStep:
    """One simulated step: its window, the wait of its first worker for its last, and what was drawn.

    ``compute_s``: for how long processors compute in the window, the mean over workers; ``communication_s``:
    for how long reductions occupy the network in it; of parameter servers, what a whole step transfers.
    """

    start_s: float
    end_s: float
    wait_s: float
    samples: Indices
    compute_s: float
    communication_s: float


class StepRuns:
    """A lowered step with its random draws; ``start`` and ``end`` hold the items of the last run.

    ``speeds`` (W,): what divides the seconds of each worker's operations, and of what it parses, 1 by
    default; servers keep theirs. ``topology``: the links between workers and servers, by default the equal
    ones of the network; an AllReduce costs what the network says it does, whatever the topology.
    In step k everything that chance decides is drawn with the seed (``seed``, k).

    Raises
    ------
    HocketError
        When speeds and topology are not those of as many machines, or memory would not do.
    """

    def __init__(
        self,
        lowered: Lowered,
        seed: int,
        random_order: bool,
        *,
        speeds: Sequence[float] | None = None,
        topology: Topology | None = None,
    ) -> None:
        check_machines(lowered, speeds, topology)
        self._lowered = lowered
        self._seed, self._random_order = seed, random_order
        self._workers = lowered.network.num_workers
        self._items = lowered.num_items(self._workers)
        run_up = 0 if lowered.done_node < 0 else WARM_UP_STEPS + COOL_DOWN_STEPS
        check_memory(
            _ITEM_BYTES * self._items * (1.0 + run_up),
            f"{self._items} operations and transfers of {self._workers} workers' step",
            "simulate fewer workers, or a step of fewer operations",
        )
        self._speeds = np.ones(self._workers) if speeds is None else np.array(speeds, np.float64)
        self._links = channel_links(lowered, topology)
        self.start, self.end = np.empty(0), np.empty(0)
        self._stop_s, self._resume_s = np.empty(0), np.empty(0)

    @property
    def events_a_step(self) -> int:
        """The number of operations, transfers and messages in a step of all workers."""
        return self._lowered.num_events(self._workers)

    def steps(self, iterations: int) -> Iterator[SimulatedStep]:
        """The measured steps, one after the other."""
        whole_s = self._lowered.durations_s.sum(axis=1)
        if self._lowered.done_node < 0:
            for k in range(iterations):
                samples = self._simulate(k, 1)[0]
                ends = self._worker_ends()
                yield SimulatedStep(
                    start_s=0.0,
                    end_s=float(self.end.max(initial=0.0)),
                    wait_s=float(ends.max() - ends.min()),
                    samples=samples,
                    compute_s=float((whole_s[samples] / self._speeds).mean()),
                    communication_s=self._lowered.communication_s,
                )
            return
        for first, count in self._blocks(iterations):
            drawn = self._simulate(first, WARM_UP_STEPS + count + COOL_DOWN_STEPS)
            done = self.done_times_s()[WARM_UP_STEPS - 1 : WARM_UP_STEPS + count]
            edges_s = done.max(axis=1)
            compute_s, communication_s = self._busy_s(edges_s)
            for k in range(count):
                yield SimulatedStep(
                    start_s=float(edges_s[k]),
                    end_s=float(edges_s[k + 1]),
                    wait_s=float(edges_s[k + 1] - done[k + 1].min()),
                    samples=drawn[WARM_UP_STEPS + k],
                    compute_s=float(compute_s[k]),
                    communication_s=float(communication_s[k]),
                )

    def window(self, k: int, iterations: int) -> tuple[Floats, Floats, float, float]:
        """Start and end of all that measured step k may show, and the step's own window.

        Both (turns, steps, S): transfers that stop have a second turn; NaN where there is none.
        """
        if self._lowered.done_node < 0:
            self._simulate(k, 1)
            return *self._turns(), 0.0, float(self.end.max(initial=0.0))
        first, count = next((f, c) for f, c in self._blocks(iterations) if f <= k < f + c)
        self._simulate(first, WARM_UP_STEPS + count + COOL_DOWN_STEPS)
        done = self.done_times_s().max(axis=1)
        here = WARM_UP_STEPS + k - first
        return *self._turns(), float(done[here - 1]), float(done[here])

    def draw(self, k: int) -> tuple[Indices, int]:
        """The measured step that each worker repeats in step k, shape (W,), and the servers' one."""
        samples = draws_of(self._seed, k).integers(len(self._lowered.durations_s), size=self._workers + 1)
        return samples[:-1], int(samples[-1])

    def done_times_s(self) -> Floats:
        """Seconds at which each worker was done with each step of the last run, shape (steps, W).

        Only where steps overlap.
        """
        per_worker = self._lowered.num_locals
        steps = self.end.reshape(-1, self._items)
        return steps[:, self._lowered.done_node + per_worker * np.arange(self._workers)]

    def _blocks(self, iterations: int) -> Iterator[tuple[int, int]]:
        size = max(1, min(iterations, _LARGEST_RUN // self._items - WARM_UP_STEPS - COOL_DOWN_STEPS))
        for first in range(0, iterations, size):
            yield first, min(size, iterations - first)

    def _simulate(self, first: int, count: int) -> Indices:
        """Simulate ``count`` steps with the draws from ``first`` on; the measured steps drawn, (count, W)."""
        look()
        lowered = self._lowered
        draws = [self.draw(k) for k in range(first, first + count)]
        samples = np.array([drawn for drawn, _ in draws])
        global_rows = len(lowered.global_durations_s)
        global_samples = np.array([sample % global_rows for _, sample in draws])
        self.start, self.end = np.empty(count * self._items), np.empty(count * self._items)
        if lowered.network.window_bits:
            self._stop_s, self._resume_s = np.empty_like(self.start), np.empty_like(self.start)
        completed = event_loop.run_event_loop(
            lowered.program,
            self._keys(first, count),
            StepDurations(
                lowered.durations_s, samples, lowered.global_durations_s, global_samples, self._speeds
            ),
            self._links,
            ItemTimes(self.start, self.end, self._stop_s, self._resume_s),
        )
        assert completed == len(self.end), "a plan that passed its checks cannot deadlock"
        return samples

    def _busy_s(self, edges_s: Floats) -> tuple[Floats, Floats]:
        """Seconds of computing (the mean over workers) and of communication in each of the windows."""
        lowered = self._lowered
        start, end = self.start.reshape(-1, self._items), self.end.reshape(-1, self._items)

        def within(first: int, count: int) -> Floats:
            items = slice(first, first + count)
            found: Floats = busy_s(start[:, items], end[:, items], edges_s)
            return found

        num_ops = lowered.durations_s.shape[1]
        of_workers = lowered.program.num_globals + lowered.num_locals * np.arange(self._workers)
        computing_s = np.array([within(first, num_ops) for first in of_workers.tolist()])
        if lowered.program.num_servers == 0:
            return computing_s.mean(axis=0), within(0, lowered.global_durations_s.shape[1])
        return computing_s.mean(axis=0), np.full(len(edges_s) - 1, lowered.communication_s)

    def _turns(self) -> tuple[Floats, Floats]:
        """Start and end of each turn of the last run's items, (turns, steps, S)."""
        start, end = [self.start], [self.end]
        if len(self._stop_s):
            stopped = self._stop_s >= 0.0
            start.append(np.where(stopped, self._resume_s, np.nan))
            end = [np.where(stopped, self._stop_s, self.end), np.where(stopped, self.end, np.nan)]
        shape = (len(start), -1, self._items)
        return np.concatenate(start).reshape(shape), np.concatenate(end).reshape(shape)

    def _keys(self, first: int, count: int) -> Indices:
        lowered = self._lowered
        if not self._random_order or not len(lowered.drawn_places):
            return lowered.preference[None, :]
        keys = np.repeat(lowered.preference[None, :], count * self._workers, axis=0)
        groups = int(lowered.drawn_group.max()) + 1
        row = 0
        for k in range(first, first + count):
            for worker in draws_of(self._seed, k).spawn(self._workers):
                keys[row, lowered.drawn_places] = worker.permutation(groups)[lowered.drawn_group]
                row += 1
        return keys

    def _worker_ends(self) -> Floats:
        """Seconds at which each worker's last operation or transfer of a single step, parsed, ended, (W,)."""
        own = self.end[self._lowered.program.num_globals :].reshape(self._workers, -1)
        ends: npt.NDArray[np.float64] = own.max(axis=1)
        return ends
