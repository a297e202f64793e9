"""Runs behind TicTac's figures: every model under random orders, TIC and TAC.

Workers are K80s derived by roofline. The durations get lognormal noise, so that computing differs from step
to step and worker to worker as on hardware; without it overlap would follow from the step time alone and
R^2 would be 1 by definition.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from hocket import models
from hocket.graph import StepGraph
from hocket.network import Network
from hocket.planner import POLICIES, plan
from hocket.reproduce.setting import Progress, ReproductionSetting, spread
from hocket.reproduce.steps import TABLE_1, derived
from hocket.sim import Result, simulate
from hocket.sim.lowering.lowered import Floats

NETWORK = Network(bandwidth_bps=10e9, num_workers=4, num_servers=1)
"""Azure's, of section 6; the paper's CPU cluster has 1 Gbit/s and processors that nobody calibrated."""
JITTER, SAMPLES = 0.01, 100
CONSISTENT = "inception_v2"
"""The model of Figs. 13a and 13b."""
OVERLAPPING = "inception_v3"
"""The model of Fig. 4."""

MODELS = TABLE_1
WORKERS = (1, 2, 4, 8, 16)
SERVERS = (1, 2, 4)
FACTORS = (0.5, 1.0, 2.0)


@dataclass(frozen=True, kw_only=True)
class PolicyRun:
    """One model under one policy; times in seconds, means over the simulated steps.

    ``straggler``: the longest wait of a worker, as a fraction of the step; ``operations``: of the step.
    """

    model: str
    inference: bool
    workers: int
    servers: int
    factor: float
    policy: str
    operations: int
    step_s: float
    rho: float
    overlap: float
    utilization: float
    straggler: float


@dataclass(frozen=True, kw_only=True)
class Consistency:
    """Single steps of Inception v2 under one policy: seconds and overlap coefficients of each."""

    policy: str
    inference: bool
    steps_s: tuple[float, ...]
    overlaps: tuple[float, ...]

    @property
    def r_squared(self) -> float:
        """Of the straight line through overlap and step time (Fig. 13a)."""
        return float(np.corrcoef(self.overlaps, self.steps_s)[0, 1] ** 2)

    @property
    def normalized_p95(self) -> float:
        """The fastest step over the 95th percentile (section 6.3): 1 where all steps are alike."""
        return min(self.steps_s) / float(np.percentile(self.steps_s, 95))


@dataclass(frozen=True, kw_only=True)
class ModelRow:
    """A model of the zoo, for Table 1."""

    model: str
    parameters: int
    mib: float
    inference_operations: int
    training_operations: int


@dataclass(frozen=True, kw_only=True)
class TicTacMeasurements:
    """Everything; ``planning_s``: of the longest plan by TAC."""

    zoo: tuple[ModelRow, ...]
    runs: tuple[PolicyRun, ...]
    consistency: tuple[Consistency, ...]
    planning_s: float

    @cached_property
    def _by_key(self) -> dict[tuple[str, bool, int, int, float, str], PolicyRun]:
        return {(r.model, r.inference, r.workers, r.servers, r.factor, r.policy): r for r in self.runs}

    def gain(self, run: PolicyRun) -> float:
        """Throughput over random orders in the same place, less 1."""
        return self.random_of(run).step_s / run.step_s - 1

    def random_of(self, run: PolicyRun) -> PolicyRun:
        """The run with random orders in the place of ``run``."""
        key = (run.model, run.inference, run.workers, run.servers, run.factor, "random")
        return self._by_key[key]

    def select(self, policy: str, where: Callable[[PolicyRun], bool]) -> list[PolicyRun]:
        """The runs by ``policy`` that ``where`` is true of."""
        return [run for run in self.runs if run.policy == policy and where(run)]


def scaled_out(run: PolicyRun) -> bool:
    """True if a run is of Fig. 9: four workers a server, batches of Table 1."""
    return run.factor == 1 and run.servers == max(1, run.workers // 4)


def measure(setting: ReproductionSetting, progress: Progress | None) -> TicTacMeasurements:
    """Simulate all of it; models are spread over the cores."""
    tasks = [(model, inference, setting) for model in MODELS for inference in (True, False)]
    found = spread(runs_of, tasks, progress, "TicTac: models")
    cases = [(policy, inference, setting) for inference in (False, True) for policy in ("random", "tac")]
    consistency = spread(consistency_of, cases, progress, "TicTac: consistency")
    counts = {
        (run.model, run.inference): run.operations for runs, _ in found for run in runs if run.factor == 1
    }
    return TicTacMeasurements(
        zoo=tuple(_model_row(model, counts[model, True], counts[model, False]) for model in MODELS),
        runs=tuple(run for runs, _ in found for run in runs),
        consistency=tuple(consistency),
        planning_s=max(seconds for _, seconds in found),
    )


def runs_of(model: str, inference: bool, setting: ReproductionSetting) -> tuple[list[PolicyRun], float]:
    """Every run of a model that a figure shows, and the seconds that TAC planned for."""
    places = {(workers, max(1, workers // 4), 1.0) for workers in WORKERS}
    places |= {(8, servers, 1.0) for servers in SERVERS} | {(4, 1, factor) for factor in FACTORS}
    places.add((2, 1, 1.0))
    runs, planning_s = [], 0.0
    for workers, servers, factor in sorted(places):
        graph = noisy_step(model, inference, JITTER, factor=factor, seed=setting.seed)
        network = replace(NETWORK, num_workers=workers, num_servers=servers)
        for policy in ("random", "tic", "tac") if workers in (2, 4) and factor == 1 else ("random", "tic"):
            result = ran(graph, policy, network, setting.steps, setting.seed)
            if policy == "tac":
                started = time.perf_counter()
                plan(graph, network, "tac")
                planning_s = max(planning_s, time.perf_counter() - started)
            row = result.row
            runs.append(
                PolicyRun(
                    model=model,
                    inference=inference,
                    workers=workers,
                    servers=servers,
                    factor=factor,
                    policy=policy,
                    operations=graph.num_operations,
                    step_s=row.iteration_s,
                    rho=row.rho,
                    overlap=row.overlap,
                    utilization=row.utilization,
                    straggler=row.straggler_fraction,
                )
            )
    return runs, planning_s


def consistency_of(policy: str, inference: bool, setting: ReproductionSetting) -> Consistency:
    """Many steps of Inception v2, each with its own draw (Fig. 13)."""
    graph = noisy_step(CONSISTENT, inference, JITTER, seed=setting.seed)
    result = ran(graph, policy, NETWORK, setting.noisy_steps, setting.seed)
    return Consistency(
        policy=policy,
        inference=inference,
        steps_s=result.row.iterations_s,
        overlaps=tuple(overlaps(result).tolist()),
    )


def noisy_step(
    model: str, inference: bool, jitter: float, *, factor: float = 1.0, seed: int = 0
) -> StepGraph:
    """A K80's step at ``factor`` times Table 1's batch size, 100 sampled steps of it."""
    batch_size = max(1, round(models.spec(model).default_batch_size * factor))
    return derived(model, batch_size, inference=inference, samples=SAMPLES, jitter=jitter, seed=seed)


def ran(graph: StepGraph, policy: str, network: Network, steps: int, seed: int) -> Result:
    """Plan and simulate; random orders are drawn anew for every worker and step, as TensorFlow does."""
    made = plan(graph, network, policy, seed=seed)
    drawn = POLICIES[policy].drawn_anew
    return simulate(graph, made, network, iterations=steps, seed=seed, random_order=drawn)


def overlaps(result: Result) -> Floats:
    """The overlap coefficient of each step, from its own compute time."""
    communication_s = result.row.communication_s
    shorter_s = np.minimum(communication_s, result.computes_s)
    found: Floats = (communication_s + result.computes_s - np.array(result.row.iterations_s)) / shorter_s
    return found


def _model_row(model: str, inference_operations: int, training_operations: int) -> ModelRow:
    table = models.parameter_table(model)
    return ModelRow(
        model=model,
        parameters=len(table),
        mib=sum(row.num_bytes for row in table) / 2**20,
        inference_operations=inference_operations,
        training_operations=training_operations,
    )
