"""The evaluator of fully sharded plans: the time and the memory of a step, thousands of times a minute.

The simulator itself, on one worker that stands for all and takes the mean of its measured times.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from hocket.graph import Plan, StepGraph
from hocket.network import Network
from hocket.sim.loop import event_loop
from hocket.sim.loop.channels import alike_links
from hocket.sim.loop.step_program import ChannelLinks, ItemTimes, StepDurations
from hocket.sim.lowering.beside import RunsBeside
from hocket.sim.lowering.sharded_step import ShardedStep, lower_sharded_step
from hocket.sim.sharded_memory import sharded_need

_NONE = np.empty(0)
_ONE = np.zeros((1, 1), np.int64)


class ShardedEvaluator:
    """Seconds and bytes of a step of ``graph`` on ``network`` under any fully sharded plan.

    ``beside``: what runs beside computing, None for what the step's device has.
    """

    def __init__(self, graph: StepGraph, network: Network, beside: RunsBeside | None = None) -> None:
        mean = dataclasses.replace(graph, durations_s=graph.durations_s.mean(axis=1, keepdims=True))
        self.graph, self.step = mean, ShardedStep.of(mean, network, beside)
        route, capacity_bps = alike_links(1.0, 1.0)  # of no channel: collectives have lanes
        self._links = ChannelLinks(route, capacity_bps, 0.0, 0.0, 1)
        self.evaluations = 0

    def seconds(self, plan: Plan) -> float:
        """The time of a step under ``plan``, which fits it."""
        self.evaluations += 1
        lowered = lower_sharded_step(self.step, plan, 1, apart=False)
        end_s = np.empty(lowered.num_items(1))
        event_loop.run_event_loop(
            lowered.program,
            lowered.preference[None, :],
            StepDurations(lowered.durations_s, _ONE, lowered.global_durations_s, _ONE[0], np.ones(1)),
            self._links,
            ItemTimes(np.empty_like(end_s), end_s, _NONE, _NONE),
        )
        return float(end_s.max(initial=0.0))

    def memory_bytes(self, plan: Plan) -> float:
        """The memory that a worker's device needs under ``plan``."""
        return sharded_need(self.graph, self.step.schedule(plan), self.step.groups.shards).total_bytes

    def full_bytes(self, plan: Plan) -> int:
        """The most bytes of full parameters that a worker holds at once, or that are on their way to it."""
        return self.step.schedule(plan).most_full_bytes

    def held_bytes(self, plan: Plan) -> int:
        """The most bytes that a worker holds at once beside its shards."""
        return max(self.step.schedule(plan).most_held().values())
