"""Traces of jobs that are made up: a known step, network and plan, ranks that differ, waiting and noise."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from tests.unit.interop.traces import ACCUMULATE, COMMUNICATING, ENGINE, NODE, Kineto

_BEGUN_US = 1e6
_CALL_US = 1.0


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A layer with one parameter; its times in microseconds."""

    forward_us: float
    backward_us: float
    rows: int
    columns: int = 1024

    @property
    def elements(self) -> int:
        return self.rows * self.columns


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job under DDP: each bucket is all-reduced in a + b d when all ranks have come to it.

    ``buckets``: places of layers, in the order of the backward pass; ``skew``: by how much the slowest rank's
    device is slower than the first's; ``noise``: how much an operation's time varies.
    """

    layers: tuple[Layer, ...]
    buckets: tuple[tuple[int, ...], ...]
    update_us: float
    a_us: float
    b_us_per_byte: float
    ranks: int
    steps: int = 6
    skew: float = 0.0
    noise: float = 0.0
    seed: int = 0

    def traces(self) -> tuple[list[Kineto], float]:
        """Each rank's trace, and the microseconds of a step, from the first one's end to the last one's."""
        draw = random.Random(self.seed)
        traces = [Kineto(rank) for rank in range(self.ranks)]
        slower = [1 + self.skew * rank / max(1, self.ranks - 1) for rank in range(self.ranks)]
        at, ends = [_BEGUN_US] * self.ranks, []
        for step in range(self.steps):
            runs = [_RankStep(self, traces[r], step, at[r], slower[r], draw) for r in range(self.ranks)]
            free = [0.0] * self.ranks
            for bucket in self.buckets if self.ranks > 1 else ():
                begins = [max(run.ready_us(bucket), free[r]) for r, run in enumerate(runs)]
                size = 4 * sum(self.layers[i].elements for i in bucket)
                end = max(begins) + self.a_us + self.b_us_per_byte * size
                for r, run in enumerate(runs):
                    run.reduce(bucket, begins[r], end)
                    free[r] = end
            at = [run.finish(free[r]) for r, run in enumerate(runs)]
            ends.append(max(at))
        return traces, (ends[-1] - ends[0]) / (self.steps - 1)


class _RankStep:
    """One rank's step: its host runs ahead, one call a microsecond."""

    def __init__(self, job: Job, trace: Kineto, step: int, begin: float, slower: float, draw: random.Random):
        self._job, self._trace, self._step, self._begin = job, trace, step, begin
        self._host, self._gpu = begin, begin + 5
        self._accumulated: dict[int, float] = {}
        self._ready: dict[int, float] = {}
        self._slower, self._draw = slower, draw
        for i, layer in enumerate(job.layers):
            args = {"Sequence number": i, "Input Dims": [[32, 1024]], "Input type": ["float"]}
            self._run("aten::linear", self._time(layer.forward_us), 1, args)
        for i in reversed(range(len(job.layers))):
            self._run(
                NODE + "AddmmBackward0", self._time(job.layers[i].backward_us), ENGINE, {"Sequence number": i}
            )
            self._ready[i] = self._gpu
            shape = [job.layers[i].rows, job.layers[i].columns]
            self._accumulated[i] = self._host
            trace.host(NODE + ACCUMULATE, self._host, self._host + 3, ENGINE)
            described = {"Input Dims": [shape], "Input type": ["float"]}
            trace.host(ACCUMULATE, self._host + 0.1, self._host + 0.5, ENGINE, **described)
            self._host += 4

    def _time(self, us: float) -> float:
        return us * self._slower * (1 + self._job.noise * self._draw.uniform(-1, 1))

    def _run(self, name: str, took: float, thread: int, args: dict[str, Any]) -> None:
        self._trace.host(name, self._host, self._host + _CALL_US, thread, **args)
        self._trace.launch(self._host + 0.1, self._gpu, self._gpu + took, thread=thread)
        self._host += 2 * _CALL_US
        self._gpu += took

    def ready_us(self, bucket: tuple[int, ...]) -> float:
        return max(self._ready[i] for i in bucket)

    def reduce(self, bucket: tuple[int, ...], begin: float, end: float) -> None:
        at = self._accumulated[bucket[-1]]
        self._trace.host("c10d::allreduce_", at + 1, at + 2.5, ENGINE)
        self._trace.launch(
            at + 1.5, begin, end, thread=ENGINE, stream=COMMUNICATING, name="ncclDevKernel_AllReduce_Sum_f32",
            **{
                "Collective name": "allreduce", "dtype": "Float", "Group size": self._job.ranks,
                "In msg nelems": sum(self._job.layers[i].elements for i in bucket),
                "Process Group Description": "default_pg",
            },
        )  # fmt: skip

    def finish(self, reduced: float) -> float:
        """Run the optimizer behind the last all-reduce; when it ends."""
        self._gpu = max(self._gpu, reduced)
        self._trace.host("Optimizer.step#SGD.step", self._host, self._host + 3, cat="user_annotation")
        self._host += 0.5
        self._run("aten::_foreach_add_", self._time(self._job.update_us), 1, {})
        name = f"ProfilerStep#{self._step}"
        self._trace.host(name, self._begin, self._gpu - 0.5, cat="user_annotation")
        return self._gpu
