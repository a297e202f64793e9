"""Runs behind iBatch's figures: four steps measured on one core here, and their speedups by policy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from hocket import models
from hocket.graph import ResultRow, StepGraph
from hocket.graph.step import Seconds
from hocket.planner.ibatch import batches_end, optimal_batches
from hocket.planner.ibatch_greedy import greedy_batches
from hocket.planner.layer_chain import Layers, forward_layers
from hocket.profiler import make_step, profile_step, set_num_threads
from hocket.reproduce.ibatch.testbed import (
    STARTUP_S,
    Pushes,
    matching_default,
    on_sliced_servers,
    one_of,
    rows_of,
    speedup,
)
from hocket.reproduce.setting import Progress, ReproductionSetting, spread

MODELS = ("googlenet", "inception_v3", "vgg19", "vgg19_22k")
BATCH_SIZE = 4
NODES = (1, 6, 30, 72)
SPARSE = ("inception_v3", "vgg19")
"""The models of Figs. 6 and 7."""
LAYERED, LAYERED_NODES = "googlenet", 6
"""The model and cluster of Figs. 3 and 4."""
APPROACHES = {
    "default": "default",
    "layerwise": "layer by layer",
    "ibatch-greedy": "iBatch",
    "ibatch": "exact",
}


@dataclass(frozen=True, kw_only=True)
class Speedup:
    """One model on a number of nodes: each policy's speedup and row."""

    model: str
    nodes: int
    pushes: Pushes
    speedups: dict[str, float]
    rows: dict[str, ResultRow]


@dataclass(frozen=True, kw_only=True)
class Chain:
    """Figs. 3 and 4: layers, and the batches that each approach makes of them."""

    layers: Layers
    startup_s: float
    batches: dict[str, list[int]]

    def end_s(self, approach: str) -> float:
        """Seconds at which the forward pass ends, pulls included."""
        return batches_end(
            self.batches[approach], self.layers.transfer_s, self.layers.compute_s, self.startup_s
        )


@dataclass(frozen=True, kw_only=True)
class IBatchMeasurements:
    """Everything; ``at_papers_default``: on networks on which the default meets the paper's speedup."""

    steps: dict[str, StepGraph]
    speedups: tuple[Speedup, ...]
    at_papers_default: tuple[Speedup, ...]
    chain: Chain

    @cached_property
    def _by_key(self) -> dict[tuple[str, int, Pushes], Speedup]:
        return {(each.model, each.nodes, each.pushes): each for each in self.speedups}

    def of(self, model: str, nodes: int, pushes: Pushes = "together") -> Speedup:
        """One model on that many nodes."""
        return self._by_key[model, nodes, pushes]


def measure(
    setting: ReproductionSetting, progress: Progress | None, defaults: dict[tuple[str, int], float]
) -> IBatchMeasurements:
    """Measure steps one after the other, then simulate; ``defaults``: what the paper's default comes to."""
    steps = {}
    for number, model in enumerate(MODELS):
        if progress is not None:
            progress(number, len(MODELS), f"iBatch: {model} on one core")
        # A process of its own, whose number of threads is nobody else's.
        (steps[model],) = spread(step_of, [(model, setting)], None, "")
    found = [
        speedup_of(model, nodes, steps[model], pushes)
        for model in MODELS
        for nodes in NODES
        for pushes in _pushes(model, nodes)
    ]
    met = [
        speedup_of(model, nodes, steps[model], "together", default=default)
        for (model, nodes), default in defaults.items()
        if model in steps
    ]
    return IBatchMeasurements(
        steps=steps,
        speedups=tuple(found),
        at_papers_default=tuple(met),
        chain=chain_of(steps[LAYERED], LAYERED_NODES),
    )


def _pushes(model: str, nodes: int) -> tuple[Pushes, ...]:
    return ("together", "own", "free") if model in SPARSE and nodes > 1 else ("together", "own")


def step_of(model: str, setting: ReproductionSetting) -> StepGraph:
    """The model's step on one core of this machine, every operation's least time, as one sample."""
    set_num_threads(1)
    setup = models.make(model, BATCH_SIZE, seed=setting.seed)
    step = make_step(*setup)
    found = profile_step(step, steps=setting.profiled_steps, warmup=1, name=model, batch_size=BATCH_SIZE)
    return replace(found.graph, durations_s=found.graph.oracle_s[:, None])


def speedup_of(
    model: str, nodes: int, graph: StepGraph, pushes: Pushes, *, default: float | None = None
) -> Speedup:
    """Every policy on ``nodes`` nodes; ``default``: the speedup that the network is to give that policy."""
    network = one_of(nodes) if default is None else matching_default(graph, nodes, default, STARTUP_S)
    rows = rows_of(graph, network, nodes, pushes)
    return Speedup(
        model=model,
        nodes=nodes,
        pushes=pushes,
        speedups={policy: speedup(graph, row, nodes) for policy, row in rows.items()},
        rows=rows,
    )


def chain_of(graph: StepGraph, nodes: int) -> Chain:
    """The layers that the forward pass waits for on ``nodes`` nodes, batched by each approach."""
    network = one_of(nodes)
    layers = forward_layers(on_sliced_servers(graph, nodes), network)
    chain: tuple[Seconds, Seconds, float] = (layers.transfer_s, layers.compute_s, network.startup_s)
    count = len(layers.parameters)
    return Chain(
        layers=layers,
        startup_s=network.startup_s,
        batches={
            "default": [count],
            "layerwise": list(range(1, count + 1)),
            "ibatch-greedy": greedy_batches(*chain),
            "ibatch": optimal_batches(*chain),
        },
    )
