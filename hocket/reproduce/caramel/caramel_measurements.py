"""Runs behind Caramel's figures: five models beside other systems, its stages, depths and patterns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from hocket.graph import Phase, ResultRow
from hocket.network import PATTERNS, reduction_s
from hocket.planner import plan
from hocket.planner.caramel.gradient_batches import depth_of, fit_network
from hocket.reproduce.caramel.systems import MODELS, reducing, run, stages, systems
from hocket.reproduce.setting import Progress, ReproductionSetting, spread
from hocket.reproduce.steps import derived

WORKERS = (8, 16)
PATTERN_WORKERS = (2, 4, 8, 16, 32, 64)
DEPTHS = (1, 2, 4, 8)
DEPTH_BYTES = tuple(10**k for k in range(3, 9))
PATTERN_BYTES = (4 * 2**10, 100 * 2**20)
SPLITS = ("alpha waits", "alpha occupies", "5 : 2")
DEPTH_SPLIT = "5 : 2"
"""Of Figs. 13 and 14: fitted to the paper's worst case of Fig. 13, as its file says."""


@dataclass(frozen=True, kw_only=True)
class ModelFigures:
    """One model: the share of its forward pass, its parameters' bytes, and rows of what was simulated.

    ``rows``: by workers and system; ``stages``: of 8 workers, each stage on top of those before.
    """

    model: str
    forward_share: float
    parameter_bytes: tuple[int, ...]
    rows: dict[tuple[int, str], ResultRow]
    stages: dict[str, ResultRow]


@dataclass(frozen=True, kw_only=True)
class Depth:
    """Seconds of one reduction of ``size_bytes`` by number of chunks (Fig. 13), and what is chosen."""

    size_bytes: int
    fixed_s: tuple[float, ...]
    adaptive_s: float
    chunks: int


@dataclass(frozen=True, kw_only=True)
class Patterned:
    """Seconds of one reduction by pattern (Fig. 14)."""

    split: str
    size_bytes: int
    workers: int
    seconds: dict[str, float]

    @property
    def cheapest(self) -> str:
        """The fastest pattern; of equal ones the first."""
        return min(self.seconds, key=self.seconds.__getitem__)


@dataclass(frozen=True, kw_only=True)
class CaramelMeasurements:
    """Everything; ``halving_s``: of Fig. 4c, seconds by size between 16 workers."""

    models: tuple[ModelFigures, ...]
    depths: tuple[Depth, ...]
    patterns: tuple[Patterned, ...]
    halving_s: dict[int, float]

    @cached_property
    def by_model(self) -> dict[str, ModelFigures]:
        """The figures of each model."""
        return {figures.model: figures for figures in self.models}


def measure(setting: ReproductionSetting, progress: Progress | None) -> CaramelMeasurements:
    """Simulate and compute all of it; models are spread over the cores."""
    found = spread(figures_of, [(model, setting) for model in MODELS], progress, "Caramel: models")
    halving = reducing("halving-doubling", "alpha waits", 16)
    return CaramelMeasurements(
        models=tuple(found),
        depths=tuple(depth(size) for size in DEPTH_BYTES),
        patterns=tuple(
            Patterned(
                split=split,
                size_bytes=size,
                workers=workers,
                seconds={
                    pattern: reduction_s(reducing(pattern, split, workers), size) for pattern in PATTERNS
                },
            )
            for split in SPLITS
            for size in PATTERN_BYTES
            for workers in PATTERN_WORKERS
        ),
        halving_s={size: reduction_s(halving, size) for size in DEPTH_BYTES},
    )


def figures_of(model: str, setting: ReproductionSetting) -> ModelFigures:
    """All that is simulated of one model, on a K80 at its default batch size."""
    graph = derived(model)
    spent_s = [float(graph.oracle_s[graph.phases == phase].sum()) for phase in Phase]
    rows = {
        (workers, name): run(graph, made, network, steps=setting.steps, seed=setting.seed)
        for workers in WORKERS
        for name, (made, network) in systems(graph, workers, setting.seed).items()
    }
    mpi, network = (
        reducing("ring", "alpha waits", WORKERS[0]),
        reducing("cheapest", "alpha waits", WORKERS[0]),
    )
    steps = {
        "Horovod": rows[WORKERS[0], "Horovod"],
        "program order": run(graph, plan(graph, mpi, "horovod"), mpi, steps=setting.steps, seed=setting.seed),
    }
    for name, made in stages(graph, network).items():
        steps[name] = run(graph, made, network, steps=setting.steps, seed=setting.seed)
    return ModelFigures(
        model=model,
        forward_share=spent_s[Phase.FORWARD] / sum(spent_s),
        parameter_bytes=tuple(graph.parameter_bytes.tolist()),
        rows=rows,
        stages=steps,
    )


def depth(size_bytes: int, split: str = DEPTH_SPLIT) -> Depth:
    """One reduction by shuffle between 8 workers, in each fixed number of chunks and the chosen one."""
    network = reducing("shuffle", split, 8)
    chunks = depth_of(size_bytes, network, fit_network(network))
    return Depth(
        size_bytes=size_bytes,
        fixed_s=tuple(reduction_s(network, size_bytes, fixed) for fixed in DEPTHS),
        adaptive_s=reduction_s(network, size_bytes, chunks),
        chunks=chunks,
    )
