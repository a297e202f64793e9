"""A worker that replays a step, over and over."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hocket.graph import Plan, StepGraph
from hocket.graph.flat_plan import flatten
from hocket.graph.step import Seconds
from hocket.runtime.allreduce import Groups
from hocket.runtime.group import Group
from hocket.runtime.replay.messages import Traffic
from hocket.runtime.replay.processor import Mailbox, Processor, WallClock
from hocket.runtime.replay.reductions import Reductions
from hocket.runtime.replay.servers import WorkersSide


def replay_with_servers(
    graph: StepGraph,
    plan: Plan,
    pairs: Sequence[Group],
    traffic: Traffic,
    *,
    worker: int,
    steps: int,
    delay_s: float = 0.0,
    seed: int = 0,
    timeout_s: float = 60.0,
) -> list[float]:
    """Replay ``steps`` steps of ``graph`` as ``worker``, after ``delay_s``; when each of them ended.

    Times are ``perf_counter``'s. ``pairs``: the group with each server, which serves ``traffic``, the
    messages of ``plan``. Each step repeats one of the graph's sampled ones, drawn with ``seed``.

    Raises
    ------
    HocketError, RuntimeError
        When a server is gone, or silent for longer than its group allows.
    """
    clock = WallClock()
    mailbox = Mailbox(clock, timeout_s)
    rank, strict = flatten(plan, graph).rank, plan.compute_order is not None
    pull_of = {p: index for index, message in enumerate(traffic.pulls) for p in message.parameters}
    needs = [sorted({pull_of[p] for p in graph.reads.row(i).tolist()}) for i in range(graph.num_operations)]
    processor = Processor(
        graph, clock, rank=rank, strict=strict, needs=needs, num_messages=len(traffic.pulls)
    )
    pushes = Pushes(graph, traffic)
    ends_s = []
    with WorkersSide(worker, pairs, traffic, mailbox) as side:
        clock.sleep_until(clock.now_s() + delay_s)
        for step in range(steps):
            pushes.begin()
            begin_s = clock.now_s()
            side.begin(step)

            def finished(op: int) -> None:
                for index in pushes.complete(op):
                    side.push(index)

            processor.run(_durations_s(graph, seed, worker, step), begin_s, mailbox, finished)
            side.wait_for_end()
            ends_s.append(clock.now_s())
    return ends_s


def replay_with_reductions(
    graph: StepGraph,
    plan: Plan,
    groups: Groups,
    *,
    worker: int,
    steps: int,
    seed: int = 0,
    timeout_s: float = 60.0,
) -> list[float]:
    """As :func:`replay_with_servers`, with AllReduces between the workers of ``groups``.

    Steps overlap: one ends with its operations.
    """
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
                _durations_s(graph, seed, worker, step), begin_s, reductions, reductions.finished
            )
            ends_s.append(ended_s)
    return ends_s


class Pushes:
    """Which pushes an operation completes: those of which it makes the last gradient.

    A message waits for every gradient of its transfer, also of those that go to other servers.
    """

    def __init__(self, graph: StepGraph, traffic: Traffic) -> None:
        places = {p: message.place for message in traffic.pushes for p in message.parameters}
        self._places = [
            [places[p] for p in graph.produces.row(i).tolist()] for i in range(graph.num_operations)
        ]
        self._indices: dict[int, list[int]] = {}
        for index, message in enumerate(traffic.pushes):
            self._indices.setdefault(message.place, []).append(index)
        self._left: dict[int, int] = {}

    def begin(self) -> None:
        """A step begins."""
        self._left = dict.fromkeys(self._indices, 0)
        for made in self._places:
            for place in made:
                self._left[place] += 1

    def complete(self, op: int) -> list[int]:
        """The pushes that are ready now that ``op`` has ended."""
        found: list[int] = []
        for place in self._places[op]:
            self._left[place] -= 1
            if self._left[place] == 0:
                found += self._indices[place]
        return found


def _durations_s(graph: StepGraph, seed: int, worker: int, step: int) -> Seconds:
    """The durations of one sampled step, (n,)."""
    sample = np.random.default_rng((seed, worker, step)).integers(graph.num_samples)
    column: Seconds = graph.durations_s[:, sample]
    return column
