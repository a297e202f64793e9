"""Plans ranked by simulation: a row for each, the best first, and what is shown of the best."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import msgspec

from hocket.graph import Plan, ResultRow, StepGraph, Timeline
from hocket.graph.result import LEVEL, WAITING, is_level
from hocket.planner.named_planners import BEST_BUCKETS, SEARCH, USUAL
from hocket.sim import Result, simulate
from hocket.tuner.policies import PlannedPolicy
from hocket.tuner.tuning_request import TuningRequest


class RankedRows:
    """The rows of ``planned``, ranked as ``request`` asks; one that chance made the best is drawn once.

    ``within_s``: seconds of a step that no plan within the limit of memory beats, 0 where that is unknown.
    """

    def __init__(self, request: TuningRequest, planned: dict[str, PlannedPolicy], within_s: float) -> None:
        self._request, self._within_s = request, within_s
        self.planned = planned
        rows: list[ResultRow] = []
        for name, made in planned.items():
            where = f"policy {len(rows) + 1} of {len(planned)}"
            request.report(f"simulating {name}, {where}", len(rows), len(planned))
            rows.append(self._row_of(made))
        self.rows = sorted(rows, key=lambda row: (self._beyond(row), row.iteration_s))
        while planned[self.rows[0].policy].drawn_anew:
            # Chance has won, but a plan holds one draw: it is ranked as it would be run.
            name = self.rows[0].policy
            planned[name] = dataclasses.replace(planned[name], drawn_anew=False)
            self.rows[0] = self._row_of(planned[name])
            self.rows.sort(key=lambda row: row.iteration_s)
        usual = [name for name in (USUAL[request.architecture], BEST_BUCKETS) if name in planned]
        self._prefer([*usual, *(row.policy for row in self.rows if row.policy != SEARCH)])

    def _simulated(self, graph: StepGraph, made: PlannedPolicy, *, timeline: bool = False) -> Result:
        return simulate(
            graph,
            made.plan,
            self._request.network,
            iterations=self._request.iterations,
            seed=self._request.seed,
            random_order=made.drawn_anew,
            timeline=timeline,
        )

    def _row_of(self, made: PlannedPolicy) -> ResultRow:
        row = self._simulated(self._request.graph, made).row
        if self._within_s and self._beyond(row) == 0:
            bound_s = min(max(row.bound_s, self._within_s), row.iteration_s)
            row = msgspec.structs.replace(row, bound_s=bound_s)
        return made.with_bounds(row)

    def _beyond(self, row: ResultRow) -> float:
        """Bytes that the plan of ``row`` needs beyond the limit."""
        limit_bytes = self._request.memory_bytes
        if limit_bytes is None or row.memory_bytes is None:
            return 0.0
        return max(0.0, row.memory_bytes - limit_bytes)

    def _prefer(self, names: Sequence[str]) -> None:
        """Put the first of ``names`` that nothing beats in front: what gains nothing is not worth its use.

        Nor is a search's plan another name for what a policy finds, too.

        One whose rows are of orders drawn anew stays in its place, as a plan holds one draw.
        """
        best = self.rows[0]
        for name in names:
            row = next(row for row in self.rows if row.policy == name)
            if self._beyond(row) > self._beyond(best):
                continue
            if is_level(row.iteration_s, best.iteration_s) and not self.planned[name].drawn_anew:
                self.rows.remove(row)
                self.rows.insert(0, row)
                return

    def alike(self) -> dict[str, ResultRow]:
        """Rows of the best plan, the usual one and DDP's best if all steps took the profile's mean.

        None where the best row's workers wait little for stragglers.
        """
        if self.rows[0].straggler_fraction < WAITING:
            return {}
        graph, usual = self._request.graph, USUAL[self._request.architecture]
        mean = dataclasses.replace(graph, durations_s=graph.durations_s.mean(axis=1, keepdims=True))
        return {
            name: self._simulated(mean, self.planned[name]).row
            for name in dict.fromkeys((self.rows[0].policy, usual, BEST_BUCKETS))
            if name in self.planned
        }

    def frontier(self, tried: Sequence[Plan]) -> list[tuple[float, float]]:
        """Bytes and seconds of plans, ranked or ``tried``, of which none takes less of both, by bytes."""
        others = [self._simulated(self._request.graph, PlannedPolicy(plan=plan)).row for plan in tried]
        found: list[tuple[float, float]] = []
        for memory_bytes, step_s in sorted(
            (row.memory_bytes or 0.0, row.iteration_s) for row in (*self.rows, *others)
        ):
            if not found or step_s < found[-1][1] * (1 - LEVEL):
                found.append((memory_bytes, step_s))
        return found

    def timelines(self) -> dict[str, Timeline]:
        """Timelines of the best row and of the usual policy's, or of the two best where that is the best."""
        usual = USUAL[self._request.architecture]
        other = next((row for row in self.rows[1:] if row.policy == usual), self.rows[1])
        shown = {}
        for row in (self.rows[0], other):
            result = self._simulated(self._request.graph, self.planned[row.policy], timeline=True)
            assert result.timeline is not None
            shown[row.policy] = result.timeline
        return shown
