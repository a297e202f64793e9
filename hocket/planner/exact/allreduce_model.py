"""An AllReduce step that repeats without pause: the shortest period.

Step k + 1 does at time t + T what step k does at t. Time 0 is the start of some operation on the processor,
so that a step's forward and backward lie in [0, T]; its reductions, and the updates that the next step waits
for, end by 2 T. For a given T that is a question of order alone; the shortest T is found by halving.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from itertools import combinations

from ortools.sat.python import cp_model

from hocket.graph import Plan, Reduction, StepGraph
from hocket.network import Network, collective_cost, halves_s, patterns_of
from hocket.planner.exact.constraint_model import (
    ModelledStep,
    ModelSolution,
    SerialChannel,
    TickScale,
    apart_by_pairs,
    channel_alone,
    channel_in_batches,
    choose_first,
    in_ticks,
    solver_for,
    work_of,
)
from hocket.planner.exact.halved_channel import HalvedChannel, HalvedTicks, channel_in_halves

# Periods that differ by less than this fraction are the same. A finer comparison does not change what is
# found: plans differ by more, and the plan's own period is that of its simulation.
_SAME_PERIOD = 1e-6
_NEAR = 1e-3


def shortest_period(
    graph: StepGraph,
    network: Network,
    *,
    evaluate: Callable[[Plan], float],
    time_limit_s: float,
    seed: int,
    halves: bool = False,
) -> ModelSolution:
    """The plan whose steps follow each other fastest; ``halves``: each whole or in halves."""
    ends_at = time.perf_counter() + time_limit_s
    work = work_of(graph, with_early=True)
    step = _FixedStep(work, network, halves)
    # A first plan: program order, each gradient alone as soon as it is complete.
    last_maker = {p: max(work.main.index(i) for i in work.makers[p]) for p in work.trained}
    plan = _plan(graph, work.main, [[p] for p in sorted(work.trained, key=last_maker.__getitem__)])
    best_s = evaluate(plan)
    # Periods up to ``short`` cannot be kept, ``long`` can; ``low`` is where looking further stopped to pay.
    short = low = step.least_period - 1
    long = step.ticks_of(best_s)
    near = False
    while long - low > 1 + _SAME_PERIOD * long and time.perf_counter() < ends_at:
        near = long - low < _NEAR * long and not near
        if low < step.least_period:
            period = step.least_period
        elif near:
            period = long - max(1, int(_SAME_PERIOD * long))
        else:
            period = (low + long) // 2
        schedule = _Schedule(step, period)
        # A third of what is left: a period that is hard to decide must not take it all.
        solver = solver_for(max(0.01, (ends_at - time.perf_counter()) / 3), seed)
        solver.parameters.cp_model_probing_level = 0  # most periods are decided in less time than it takes
        status = solver.solve(schedule.model)
        if status == cp_model.OPTIMAL:
            found = schedule.plan(solver)
            found_s = evaluate(found)
            long = max(low + 1, min(period, step.ticks_of(found_s)))
            if found_s < best_s:
                plan, best_s = found, found_s
        else:
            low = period
            if status == cp_model.INFEASIBLE:
                short = period
    bound_s = min(best_s, max(0.0, (short + 1) * step.times.tick_s - step.times.error_s))
    tolerance_s = 2 * _SAME_PERIOD * best_s + step.times.error_s
    return ModelSolution(
        plan=plan,
        status="optimal" if best_s - bound_s <= tolerance_s else "feasible",
        objective_s=best_s,
        bound_s=bound_s,
    )


def _plan(graph: StepGraph, order: list[int], batches: list[list[int]], halved: Collection[int] = ()) -> Plan:
    """A plan of ``batches`` as listed, or, where some of the parameters go in halves, as they are ready."""
    return Plan(
        policy="exact",
        model=graph.model,
        architecture="allreduce",
        reductions=tuple(
            # Waiting for every reduction takes at least as long as each reader's waiting for its own.
            Reduction(
                parameters=tuple(graph.parameter_names[p] for p in batch),
                window="forward",
                halves=batch[0] in halved,
            )
            for batch in batches
        ),
        compute_order=tuple(graph.operation_names[i] for i in order),
        issue="ready" if halved else "listed",
    )


def _costs(network: Network) -> list[tuple[float, float]]:
    """Seconds a batch and seconds a byte of every pattern that is the cheapest for some size."""
    found = [collective_cost(pattern, network) for pattern in patterns_of(network)]
    costs = {
        (cost.latency_s + cost.handling_s, cost.wire_s_per_byte + cost.reduce_s_per_byte) for cost in found
    }
    return sorted(cost for cost in costs if not any(a <= cost[0] and b <= cost[1] for a, b in costs - {cost}))


class _FixedStep:
    """The part of the model that no period changes: times in ticks, and who waits for whom.

    ``reductions``: ways to reduce a batch, ticks for the batch and for each parameter. ``readers`` (p rows):
    the forward and backward operations that read each parameter. ``held``: the updates that the next step
    waits for. ``apart``: for each pair of operations of which one comes first, the least ticks from its start
    to the other's; ``unordered``: the other pairs.
    """

    def __init__(self, work: ModelledStep, network: Network, halves: bool) -> None:
        graph, trained = work.graph, work.trained
        self.work = work
        sizes = graph.parameter_bytes[trained].tolist()
        costs = _costs(network)
        times_s, occurrences = graph.durations_s.mean(axis=1).tolist(), [1] * graph.num_operations
        for batch_s, byte_s in costs:
            times_s += [batch_s, *(byte_s * size for size in sizes)]
            occurrences += [len(trained), *[1] * len(trained)]
        parts_s = [halves_s(network, size) for size in sizes] if halves else []
        times_s += [seconds for parts in parts_s for seconds in parts]
        occurrences += [1] * (2 * len(parts_s))
        self.times: TickScale = in_ticks(times_s, occurrences)
        counts = iter(self.times.counts)
        self.ticks = [next(counts) for _ in range(graph.num_operations)]
        self.reductions = [(next(counts), {p: next(counts) for p in trained}) for _ in costs]
        self.halved = self._halved_ticks(list(counts)) if halves and trained else None
        self.readers = [
            [i for i in work.main if p in graph.reads.row(i)] for p in range(graph.num_parameters)
        ]
        self.held = self._held()
        self.apart = self._apart()
        pairs = combinations(range(graph.num_operations), 2)
        self.unordered = [(i, j) for i, j in pairs if not {(i, j), (j, i)} & self.apart.keys()]
        network_ticks = min(batch + sum(each.values()) for batch, each in self.reductions) if trained else 0
        if self.halved is not None:
            parts = sum(self.halved.scatter.values()) + sum(self.halved.gather.values())
            network_ticks = min(network_ticks, parts)
        self.least_period = max(sum(self.ticks), network_ticks)

    def _halved_ticks(self, counts: list[int]) -> HalvedTicks:
        """``counts``: a scatter and a gather for each trained parameter."""
        trained = self.work.trained
        _, whole = min(self.reductions, key=lambda way: sum(way[1].values()))
        return HalvedTicks(
            whole=whole,
            scatter=dict(zip(trained, counts[::2], strict=True)),
            gather=dict(zip(trained, counts[1::2], strict=True)),
        )

    def ticks_of(self, seconds: float) -> int:
        """Whole ticks within which ``seconds`` end, with what rounding may add."""
        return int((seconds + self.times.error_s) / self.times.tick_s) + 1

    def _held(self) -> set[int]:
        graph = self.work.graph
        held: set[int] = set()
        for i in reversed(self.work.updates):
            if i in held or any(self.readers[p] for p in graph.reads.row(i).tolist()):
                held |= {i, *(j for j in graph.inputs.row(i).tolist() if j in self.work.awaited)}
        return held

    def _apart(self) -> dict[tuple[int, int], int]:
        # Updates are in no pair: their places in the period say nothing of the step they belong to.
        before: dict[int, set[int]] = {}
        for i in self.work.main:
            inputs = self.work.graph.inputs.row(i).tolist()
            before[i] = set(inputs).union(*(before[j] for j in inputs))
        # On one processor, all that must come between two operations takes its time between them.
        return {
            (i, j): sum(self.ticks[k] for k in before[j] if k == i or i in before[k])
            for j in self.work.main
            for i in before[j]
        }


class _Schedule:
    """The model for a given period, in ticks: can a step repeat every ``period``?

    An operation's ``place`` is its start modulo the period. Some operation starts at 0, so none runs across
    the period's end, and operations of consecutive steps are apart when their places are.
    """

    def __init__(self, step: _FixedStep, period: int) -> None:
        self._step, self._period = step, period
        self.model = model = cp_model.CpModel()
        graph, work = step.work.graph, step.work
        self._place = [model.new_int_var(0, period - ticks, "") for ticks in step.ticks]
        items = list(zip(self._place, step.ticks, strict=True))
        for i, j in step.unordered:
            choose_first(model, items[i], items[j])
        for (i, j), ticks in step.apart.items():
            model.add(self._place[j] >= self._place[i] + ticks)
        # An update that holds up nothing may run any number of steps later: it only takes its time.
        self._start: dict[int, cp_model.IntVar] = {i: self._place[i] for i in work.main}
        for i in sorted(step.held):
            later = model.new_bool_var("")
            self._start[i] = model.new_int_var(0, 2 * period, "")
            model.add(self._start[i] == self._place[i] + period * later)
        for i, start in self._start.items():
            for j in graph.inputs.row(i).tolist():
                model.add(start >= self._end(j))
        self._channel = self._reduce() if work.trained else None
        for parameter, readers in enumerate(step.readers):
            self._hold_up_next_step(parameter, readers)

    def _end(self, i: int) -> cp_model.LinearExpr:
        return self._start[i] + self._step.ticks[i]

    def _reduce(self) -> SerialChannel | HalvedChannel:
        """One reduction after the other, and each step's before the next step's."""
        model, step, work = self.model, self._step, self._step.work
        costs, horizon = step.reductions, 2 * self._period
        channel: SerialChannel | HalvedChannel
        if step.halved is not None:
            channel = channel_in_halves(model, step.halved, horizon)
        elif any(batch for batch, _ in costs):
            channel = channel_in_batches(model, costs, horizon)
        else:
            cheapest = min((each for _, each in costs), key=lambda each: sum(each.values()))
            channel = channel_alone(model, cheapest, horizon, apart_by_pairs)
        first = model.new_int_var(0, horizon, "")
        for p in work.trained:
            model.add(first <= channel.leave[p])
            model.add(channel.arrive[p] <= first + self._period)
            for i in work.makers[p]:
                model.add(channel.leave[p] >= self._end(i))
        for i in step.held:
            # A norm, which reads no parameter, looks at what is scattered.
            there = channel.arrive
            if isinstance(channel, HalvedChannel) and not len(work.graph.reads.row(i)):
                there = channel.seen
            for p in work.awaited[i]:
                model.add(self._start[i] >= there[p])
        return channel

    def _hold_up_next_step(self, parameter: int, readers: list[int]) -> None:
        """The next step needs a gradient's buffer to be free, and the parameter to be reduced and updated."""
        model, work = self.model, self._step.work
        if self._channel is not None and work.makers[parameter]:
            for i in {*readers, *work.makers[parameter]}:
                model.add(self._channel.arrive[parameter] <= self._start[i] + self._period)
        for update in work.updates:
            if parameter in work.graph.reads.row(update):
                for i in readers:
                    model.add(self._end(update) <= self._start[i] + self._period)

    def plan(self, solver: cp_model.CpSolver) -> Plan:
        """The plan of a solved model."""
        graph, channel = self._step.work.graph, self._channel
        if not isinstance(channel, HalvedChannel):
            batches = [] if channel is None else [batch for _, batch in channel.batches(solver)]
            return _plan(graph, self._order(solver), batches)
        listed = channel.in_order(solver)
        halved = {p for p, in_halves in listed if in_halves}
        return _plan(graph, self._order(solver), [[p] for p, _ in listed], halved)

    def _order(self, solver: cp_model.CpSolver) -> list[int]:
        """Forward and backward as they run."""
        main, ticks = self._step.work.main, self._step.ticks
        begin = {i: solver.value(self._place[i]) for i in main}
        position = {i: k for k, i in enumerate(main)}
        return sorted(main, key=lambda i: (begin[i], begin[i] + ticks[i], position[i]))
