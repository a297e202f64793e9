"""The check of a prediction against the job that a step was recorded from, its workers and its plan."""

from __future__ import annotations

from dataclasses import dataclass

from hocket.graph import Plan, Reduction, StepGraph
from hocket.graph.recorded_run import RecordedRun
from hocket.network import Network
from hocket.planner import plan as planned
from hocket.sim import simulate
from hocket.text import duration_text

MOST_APART = 0.1
"""The share of a recorded step by which its prediction may be off before it is not to be built on."""


@dataclass(frozen=True, kw_only=True)
class RecordedCheck:
    """A recorded step beside its prediction, and of both what computing and waiting for transfers take."""

    recorded: RecordedRun
    predicted_s: float
    computing_s: float

    @property
    def agrees(self) -> bool:
        """Tell whether the prediction is close enough to be built on."""
        return abs(self.predicted_s / self.recorded.step_s - 1) <= MOST_APART

    @property
    def line(self) -> str:
        """Both steps in words, and where they differ by too much the part that does."""
        run = self.recorded
        said = (
            f"recorded: {run.workers} ranks, {duration_text(run.step_s)} a step; predicted for {run.workers} "
            f"ranks: {duration_text(self.predicted_s)}"
        )
        return said if self.agrees else f"{said}; {self._differing()}"

    def _differing(self) -> str:
        run = self.recorded
        parts = {
            "computing and idle": (run.step_s - run.exposed_s, self.computing_s),
            "exposed communication": (run.exposed_s, self.predicted_s - self.computing_s),
        }
        name, (was_s, is_s) = max(parts.items(), key=lambda part: abs(part[1][1] - part[1][0]))
        apart = self.predicted_s / run.step_s - 1
        was, now = duration_text(was_s), duration_text(max(0.0, is_s))
        return f"{apart:+.0%}, by {name}: recorded {was}, predicted {now}"


def check_recorded(graph: StepGraph, network: Network) -> RecordedCheck | None:
    """Predict the recorded job on ``network``, of its workers; None for a step of no such job."""
    run = graph.recorded
    if run is None or not graph.produced.any():
        return None
    row = simulate(graph, _recorded_plan(graph, run, network), network).row
    return RecordedCheck(recorded=run, predicted_s=row.iteration_s, computing_s=row.compute_s)


def _recorded_plan(graph: StepGraph, run: RecordedRun, network: Network) -> Plan:
    """The all-reduces as they were launched; DDP's where it is not known what was in them."""
    named = {name for reduction in run.reductions for name in reduction}
    if named != {name for name, made in zip(graph.parameter_names, graph.produced, strict=True) if made}:
        return planned(graph, network, "ddp")
    reductions = tuple(Reduction(parameters=names) for names in run.reductions)
    return Plan(
        policy="recorded",
        model=graph.model,
        architecture="allreduce",
        reductions=reductions,
        compute_order=None,
    )
