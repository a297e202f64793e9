"""The bound of overlapping steps: AllReduce, and parameter servers with a barrier per parameter.

The steady-state time per step is the mean distance between two starts of one operation v, a step apart. What
v's step still has to do after it and the next step before it lies in between: the operations that need v, the
exchange of the gradients they complete, and of what those update the operations that v needs. With heads
counted from one start of v and tails to the next, each resource is a machine
(:func:`hocket.sim.bounds.reach.preemptive_bound`); every v gives a bound. The best ones are where forward
turns into backward, and a few spread over the step are tried.

On a processor everything that must run before or after adds up. An exchange takes at least its bytes at the
best rate of any pattern and number of chunks, and one startup a path, whatever the batches; where parameter
servers and their workers parse messages, one message a path.

Where updates wait for a norm of all gradients, every gradient that v's step completes after v is there before
them. In halves a gradient is two items: what a reduce-scatter takes at least ends before the norm, the rest
before the parameter is read, whether its reduction is in halves or whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hocket.graph import Csr, StepGraph
from hocket.graph.csr import Indices
from hocket.graph.update_operations import is_update
from hocket.network import (
    Network,
    assign_servers,
    collective_cost,
    half_costs,
    patterns_of,
    window_cuts,
)
from hocket.sim.bounds.norm_gate import norm_gate
from hocket.sim.bounds.one_machine import without_preemption
from hocket.sim.bounds.reach import LARGEST, preemptive_bound, reach

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_NUM_CUTS = 12
_MOST_NODES = 200  # of the branch and bound over one link's items


@dataclass(frozen=True)
class GradientReturn:
    """The return of each parameter's gradient as an update, (p,) each; seconds.

    ``machine``: the link on which it waits for others; ``start_s`` before it occupies the link, for
    ``work_s`` with every worker's bytes, at least ``own_s`` for one worker's; ``after_s``: from there until
    the parameter is in place; ``back``: for parameter servers the way down's work, the delay before it, and
    what parsing comes after it; ``second_s``: what of the work can also be after a norm of all gradients,
    ``again_s`` being before it.
    """

    machine: Indices
    start_s: Floats
    work_s: Floats
    own_s: Floats
    after_s: Floats
    back: tuple[Floats, Floats, Floats] | None
    second_s: Floats
    again_s: float = 0.0


def period_bound(
    graph: StepGraph, network: Network, architecture: str, lockstep: bool, halves: bool = False
) -> float:
    """A lower bound of the steady-state seconds per step, whatever the plan; as ``lower_bound`` says."""
    update = is_update(graph)
    work = graph.oracle_s
    if architecture == "allreduce":
        exchange = _allreduce_return(graph, network, update, halves)
    else:
        exchange = _server_return(graph, network, update, lockstep)
    on_worker = np.ones(len(work), bool) if architecture == "allreduce" else ~update
    on_processor_s = float(work[on_worker].sum())
    if exchange.back is not None:
        # Every step parses all bytes, and a message from each server at least.
        on_processor_s += network.parse_s_per_byte * float(graph.parameter_bytes.sum())
        on_processor_s += network.parse_s * len(np.unique(exchange.machine))
    best = max(on_processor_s, _busiest(graph, exchange))
    if graph.num_operations > LARGEST:
        return best
    one_at_a_time = lockstep and network.num_servers <= network.num_workers
    one_at_a_time &= not window_cuts(graph.parameter_bytes.tolist(), network)
    one_at_a_time |= exchange.back is None
    one_at_a_time &= not halves  # other transfers may go between two halves
    step = _OrderedStep(graph, update, work, exchange, one_at_a_time)
    for v in step.cuts():
        best = max(best, step.between(v))
    return best


def _busiest(graph: StepGraph, exchange: GradientReturn) -> float:
    """The most occupied link, in a step's own time."""
    trained = graph.produced
    best = float(np.bincount(exchange.machine[trained], weights=exchange.work_s[trained]).max(initial=0.0))
    if exchange.back is not None:
        best = max(best, float(np.bincount(exchange.machine, weights=exchange.back[0]).max(initial=0.0)))
    return best


def _allreduce_return(graph: StepGraph, network: Network, update: Mask, halves: bool) -> GradientReturn:
    """The fastest that any batching into reductions can be: bytes at the best rate, the least startup.

    ``halves``: any of them may go in halves.
    """
    costs = [collective_cost(pattern, network) for pattern in patterns_of(network)]
    start_s = min(cost.latency_s + cost.handling_s for cost in costs)
    rate = min(max(cost.wire_s_per_byte, cost.reduce_s_per_byte) for cost in costs)
    second_rate = 0.0
    if halves:
        ways = half_costs(network)
        start_s = min(start_s / 2, *(first.latency_s + first.handling_s for first, _ in ways))
        second_rate = min(second.wire_s_per_byte for _, second in ways)
        scatter_rate = min(max(first.wire_s_per_byte, first.reduce_s_per_byte) for first, _ in ways)
        rate = min(rate, scatter_rate + second_rate)
        second_rate = min(second_rate, rate)
    p = graph.num_parameters
    sizes = graph.parameter_bytes.astype(np.float64)
    again_s = start_s if halves else 0.0
    work_s: Floats = rate * sizes
    # Updates of a parameter run on the processor between its arrival and its readers.
    reader, read = graph.reads.row_of_entry(), graph.reads.indices
    of_update = update[reader]
    after_s: Floats = np.zeros(p)
    np.add.at(after_s, read[of_update], graph.oracle_s[reader[of_update]])
    return GradientReturn(
        machine=np.zeros(p, np.int64),
        start_s=np.full(p, start_s),
        work_s=work_s,
        own_s=work_s + again_s,
        after_s=after_s,
        back=None,
        second_s=second_rate * sizes,
        again_s=again_s,
    )


def _server_return(graph: StepGraph, network: Network, update: Mask, lockstep: bool) -> GradientReturn:
    """Up to the parameter's server with every worker's bytes, one update at least, and down again."""
    p = graph.num_parameters
    alone_s: Floats = graph.parameter_bytes.astype(np.float64) * (8.0 / network.bandwidth_bps)
    reader, read = graph.reads.row_of_entry(), graph.reads.indices
    of_update = update[reader]
    update_s = np.zeros(p)
    np.maximum.at(update_s, read[of_update], graph.oracle_s[reader[of_update]])
    own_s = network.num_workers * alone_s if lockstep else alone_s
    parse_s: Floats = network.parse_s + network.parse_s_per_byte * graph.parameter_bytes.astype(np.float64)
    until_back_s = parse_s + update_s + network.startup_s
    return GradientReturn(
        machine=assign_servers(graph.parameter_bytes.tolist(), network.num_servers),
        start_s=np.full(p, network.startup_s),
        work_s=network.num_workers * alone_s,
        own_s=own_s,
        after_s=until_back_s + own_s + parse_s,
        back=(network.num_workers * alone_s, until_back_s, parse_s),
        second_s=np.zeros(p),
    )


class _OrderedStep:
    """One step's operations with everything before and after each of them.

    ``one_at_a_time``: a link carries one transfer after the other: the network that reductions share, and
    channels of workers in lockstep that are no fewer than the servers, if no HTTP/2 window stops a transfer
    for others.
    """

    def __init__(
        self, graph: StepGraph, update: Mask, work: Floats, exchange: GradientReturn, one_at_a_time: bool
    ) -> None:
        self._graph, self._exchange = graph, exchange
        self._gate = norm_gate(graph, update) if exchange.back is None else None
        self._one_at_a_time = one_at_a_time
        self._main, self._work = ~update, np.where(update, 0.0, work)
        n, p = graph.num_operations, graph.num_parameters
        self._users = graph.inputs.transpose(n)
        self._before = reach(graph.inputs, graph.order)
        self._after = reach(self._users, graph.order[::-1].copy())
        self._producers = graph.produces.transpose(p)
        main_reads = self._main[graph.reads.row_of_entry()]
        rows: list[list[int]] = [[] for _ in range(p)]
        reader, read = graph.reads.row_of_entry()[main_reads], graph.reads.indices[main_reads]
        for op, parameter in zip(reader.tolist(), read.tolist(), strict=True):
            rows[parameter].append(op)
        self._readers = Csr.from_rows(rows)

    def cuts(self) -> list[int]:
        """Operations with most of the step before or after them: the turn, and some spread over the step."""
        main = np.flatnonzero(self._main)
        if not len(main):
            return []
        alone, everything = Csr.from_rows([[int(i)] for i in main]), np.ones(len(self._work), bool)
        related = self._before.work_before(alone, self._work, everything)
        related += self._after.work_before(alone, self._work, everything) - self._work[main]
        among = main[related >= 0.98 * related.max()]
        place = np.empty(len(self._work), np.int64)
        place[self._graph.order] = np.arange(len(self._work))
        among = among[np.argsort(place[among])]
        picked = among[np.linspace(0, len(among) - 1, min(_NUM_CUTS, len(among))).astype(np.int64)]
        turn = among[self._graph.phases[among] == 0][-1:]
        return list(dict.fromkeys([*turn.tolist(), *picked.tolist()]))

    def between(self, v: int) -> float:
        """The least time between two starts of ``v``."""
        exchange, work = self._exchange, self._work
        past, future = self._before.mask(v), self._after.mask(v)
        past[v] = False
        past &= self._main
        future &= self._main
        # Gradients that v's step completes after v, of parameters that v's next step reads up to v.
        made = _any(self._producers, future)
        awaited = _any(self._readers, past) | _any(self._readers, np.arange(len(work)) == v)
        head = self._before.work_before(self._producers, work, future)
        tail = self._after.work_before(self._readers, work, past)
        gate_s = 0.0 if self._gate is None else self._gate.rest_s(awaited, tail)
        through = np.flatnonzero(made if gate_s else made & awaited)
        if not len(through):
            return 0.0
        # Seconds from a gradient's arrival to the next v: of its own parameter, and of all behind the norm.
        own_rest_s = np.where(awaited, exchange.after_s + tail, 0.0)
        rest_s = np.maximum(own_rest_s + exchange.second_s * awaited, gate_s)
        first_s = exchange.work_s - exchange.second_s
        best = 0.0
        for machine in range(int(exchange.machine.max()) + 1):
            here = through[exchange.machine[through] == machine]
            start = head[here] + exchange.start_s[here]
            later = here[awaited[here] & (exchange.second_s[here] > 0.0)]
            heads = np.concatenate([start, (head + exchange.start_s + first_s + exchange.again_s)[later]])
            works = np.concatenate([first_s[here], exchange.second_s[later]])
            tails = np.concatenate([rest_s[here], own_rest_s[later]])
            best = max(best, preemptive_bound(heads, works, tails))
            if self._one_at_a_time:
                best = max(best, without_preemption(heads, works, tails, _MOST_NODES))
            if exchange.back is not None:
                back_work, delay, parse_s = exchange.back
                ready = start + exchange.own_s[here] + delay[here]
                best = max(best, preemptive_bound(ready, back_work[here], parse_s[here] + tail[here]))
        arrives, leaves = np.zeros(len(head)), exchange.start_s + first_s + gate_s
        come = np.flatnonzero(made & awaited)
        least = exchange.start_s + exchange.own_s + exchange.after_s
        arrives[come] = (head + least)[come]
        leaves[come] = np.maximum(leaves, least + tail)[come]
        if self._gate is not None and gate_s:
            starts = (head + exchange.start_s)[through]
            norm_s = preemptive_bound(starts, first_s[through], np.zeros(len(through))) + self._gate.norm_s
            arrives = np.where(
                self._gate.gated & awaited, np.maximum(arrives, norm_s + self._gate.after_s), arrives
            )
        return max(best, self._processor(past, future, arrives, leaves, through))

    def _processor(
        self, past: Mask, future: Mask, arrives: Floats, leaves: Floats, through: Indices
    ) -> float:
        """The worker's own machine: backward operations before their exchanges, forward ones after them.

        ``arrives`` (p,): the earliest moment at which each parameter can be in place again; ``leaves`` (p,):
        seconds from the completion of each gradient ``through`` to the next start of v, at least.
        """
        graph, work = self._graph, self._work
        forward, backward = np.flatnonzero(past), np.flatnonzero(future)
        alone = Csr.from_rows([[int(i)] for i in [*forward, *backward]])
        num_forward = len(forward)
        before = self._before.work_before(alone, work, future)[num_forward:] - work[backward]
        after = self._after.work_before(alone, work, past)[:num_forward] - work[forward]
        # Seconds that an operation's gradients still take, and at which a reader's parameters are there.
        out_tail, in_head = np.zeros(len(work)), np.zeros(len(work))
        carried = np.zeros(graph.num_parameters, bool)
        carried[through] = True
        op, parameter = graph.produces.row_of_entry(), graph.produces.indices
        kept = carried[parameter] & future[op]
        np.maximum.at(out_tail, op[kept], leaves[parameter[kept]])
        op, parameter = graph.reads.row_of_entry(), graph.reads.indices
        kept = past[op]
        np.maximum.at(in_head, op[kept], arrives[parameter[kept]])
        for i in graph.order[::-1].tolist():
            if future[i]:
                for j in self._users.row(i).tolist():
                    if future[j]:
                        out_tail[i] = max(out_tail[i], work[j] + out_tail[j])
        for i in graph.order.tolist():
            if past[i]:
                for j in graph.inputs.row(i).tolist():
                    if past[j]:
                        in_head[i] = max(in_head[i], in_head[j] + work[j])
        heads = np.concatenate([in_head[forward], before])
        tails = np.concatenate([after, out_tail[backward]])
        return float(preemptive_bound(heads, np.concatenate([work[forward], work[backward]]), tails))


def _any(rows: Csr, among: Mask) -> Mask:
    """For each row, whether one of its entries is ``among``."""
    mask = np.zeros(rows.num_rows, bool)
    mask[rows.row_of_entry()[among[rows.indices]]] = True
    return mask
