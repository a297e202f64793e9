"""A worker that replays a step, over and over."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from hocket.errors import HocketError
from hocket.graph import Plan, StepGraph
from hocket.graph.flat_plan import flatten
from hocket.graph.step import Seconds
from hocket.launch import ServedJob
from hocket.runtime.replay.reductions import Reductions
from hocket.runtime.replay.replayed_processor import Mailbox, Processor, WallClock
from hocket.runtime.replay.servers import WorkersSide
from hocket.runtime.transfers.channel_groups import ChannelGroups


class Replay(NamedTuple):
    """The ends of each step's operations, on ``perf_counter``, by round; of pulls the fraction overtaken."""

    ends_s: list[list[float]]
    out_of_order: float


class ReplayRounds(NamedTuple):
    """Rounds of steps, each of which begins its delay after a moment that all workers are told.

    Attributes
    ----------
    steps : steps of each round.
    delays_s : seconds from that moment until this worker begins, of each round.
    together : that moment in seconds on ``perf_counter``; called whenever this worker is ready for a round.
    """

    steps: int
    delays_s: Sequence[float] = (0.0,)
    together: Callable[[], float] = time.perf_counter


def replay_with_servers(
    graph: StepGraph,
    plan: Plan,
    job: ServedJob,
    rounds: ReplayRounds,
    *,
    worker: int,
    drawn_anew: bool = False,
    seed: int = 0,
) -> Replay:
    """Replay ``rounds`` of steps of ``graph`` as ``worker`` of ``job``.

    Each step repeats one of the graph's sampled ones, drawn with ``seed``; ``drawn_anew``: pulls in a new
    random order each.

    Raises
    ------
    HocketError
        When a parameter has no gradient, or a server is gone or silent for longer than the job allows.
    """
    if not graph.produced.all():
        name = graph.parameter_names[int(np.flatnonzero(~graph.produced)[0])]
        raise HocketError(f"'{name}' has no gradient; servers hold what is trained, replay a training step")
    clock = WallClock()
    mailbox = Mailbox(clock, job.timeout_s)
    processor = Processor(
        graph,
        clock,
        rank=flatten(plan, graph).rank,
        strict=plan.compute_order is not None,
        needs=[graph.reads.row(i).tolist() for i in range(graph.num_operations)],
        num_messages=graph.num_parameters,
    )
    gradients = CompletedGradients(graph)
    ends_s: list[list[float]] = []
    with WorkersSide(graph, plan, job, worker, mailbox, drawn_anew=drawn_anew) as side:

        def push_gradients(op: int) -> None:
            for parameter in gradients.completed_by(op):
                side.push(parameter)

        for number, delay_s in enumerate(rounds.delays_s):
            clock.sleep_until(rounds.together() + delay_s)
            ends_s.append([])
            for step in range(number * rounds.steps, (number + 1) * rounds.steps):
                begin_s = clock.now_s()
                side.begin()
                processor.run(_durations_s(graph, seed, worker, step), begin_s, side, push_gradients)
                side.end()
                ends_s[-1].append(clock.now_s())
        out_of_order = side.out_of_order
    return Replay(ends_s, out_of_order)


def replay_with_reductions(
    graph: StepGraph,
    plan: Plan,
    groups: ChannelGroups,
    *,
    worker: int,
    steps: int,
    seed: int = 0,
    timeout_s: float = 60.0,
) -> Replay:
    """As :func:`replay_with_servers`, in one round, with AllReduces between workers; steps overlap."""
    clock = WallClock()
    mailbox = Mailbox(clock, timeout_s)
    reductions = Reductions(plan, graph, groups, mailbox, timeout_s)
    processor = Processor(
        graph,
        clock,
        rank=flatten(plan, graph).rank,
        strict=plan.compute_order is not None,
        needs=reductions.needs,
        num_messages=reductions.num_messages,
    )
    ends_s: list[float] = []
    with reductions:
        ended_s = clock.now_s()
        for step in range(steps):
            begin_s = reductions.begin(ended_s)
            ended_s = processor.run(
                _durations_s(graph, seed, worker, step), begin_s, reductions, reductions.send_buckets_of
            )
            ends_s.append(ended_s)
    return Replay([ends_s], 0.0)


class CompletedGradients:
    """Gradients by the operation that completes them: the last of a step to add to them."""

    def __init__(self, graph: StepGraph) -> None:
        self._produces = [graph.produces.row(i).tolist() for i in range(graph.num_operations)]
        self._makers = np.bincount(graph.produces.indices, minlength=graph.num_parameters).tolist()
        self._missing_makers = list(self._makers)

    def completed_by(self, op: int) -> list[int]:
        """The parameters whose gradient is complete now that ``op`` has ended, once a step."""
        found = []
        for parameter in self._produces[op]:
            self._missing_makers[parameter] -= 1
            if self._missing_makers[parameter] == 0:
                self._missing_makers[parameter] = self._makers[parameter]
                found.append(parameter)
        return found


def _durations_s(graph: StepGraph, seed: int, worker: int, step: int) -> Seconds:
    """The durations of one sampled step, (n,)."""
    sample = np.random.default_rng((seed, worker, step)).integers(graph.num_samples)
    column: Seconds = graph.durations_s[:, sample]
    return column
