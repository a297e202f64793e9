"""The check of a prediction against the job that a step was recorded from, its workers and its plan."""

from __future__ import annotations

from dataclasses import dataclass

from hocket.graph import StepGraph
from hocket.graph.format_rules import check_plan
from hocket.graph.recorded_plan import recorded_plan
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
    """Predict the recorded job on ``network``, of its workers; None for a step of no such job.

    Where it is not known what was exchanged together, it is as by default: DDP's buckets, FSDP2's units.

    Raises
    ------
    FormatError
        When what was recorded is no plan for the step.
    """
    run = graph.recorded
    if run is None or not graph.produced.any():
        return None
    plan = recorded_plan(graph) or planned(graph, network, "fsdp" if run.sharded is not None else "ddp")
    check_plan(plan, graph, "recorded")
    row = simulate(graph, plan, network).row
    return RecordedCheck(recorded=run, predicted_s=row.iteration_s, computing_s=row.compute_s)
