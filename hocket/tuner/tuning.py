"""The answer of ``tune``: policies ranked, with the plan behind each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hocket.graph import Plan, ResultRow, Timeline
from hocket.graph.plan import ARCHITECTURE_NAMES
from hocket.notebook import ObjectSummary, Summarized, data_frame
from hocket.text import counted, duration_text

_SHOWN = 3


@dataclass(frozen=True, repr=False, kw_only=True)
class Tuning(Summarized):
    """Every policy on one step and network, ranked, with the plan behind each.

    Attributes
    ----------
    ranked
        A :class:`hocket.ResultRow` for each policy, the shortest step first; times in seconds. Where no step
        is shorter than the usual policy's by more than 0.05%, that comes first; else so does ``ddp-best``.
    plans
        The plan behind each row, by policy, with what is predicted of it.
    timelines
        If they were asked for, by policy, those of the best row and of the usual policy (ddp, with servers
        fifo, fully sharded fsdp); of the two best where the usual one is the best.
    alike_s
        Seconds a step if all took the profile's mean, by policy, of the best row, the usual policy's and
        ``ddp-best``'s: the gain that does not come from steps of unlike length. Empty where the best row's
        ``straggler_fraction`` is below 10%.
    alike_bound_s
        Seconds that such a step of the best row takes at least, whatever the order of its transfers; 0 where
        ``alike_s`` is empty.
    unclipped
        Where the step was tuned as one that clips: the best policy's row without clipping, the search left
        out. None otherwise, and where the profile itself clips, of which nobody knows how it is without.
    frontier
        Fully sharded: bytes of memory and seconds of a step, simulated as ``ranked`` is, of the ranked plans
        and those that the search found best by the mean step, of which no other takes less of both, the
        least memory first.
    evaluations
        The number of plans that the search simulated.
    wall_s
        Seconds in all.

    Examples
    --------
    >>> import hocket
    >>> graph = hocket.load_step("step.json")
    >>> found = hocket.tune(graph, hocket.Network(num_workers=4), budget_s=0.1, iterations=2)
    >>> found.plan == found.plans[found.best.policy]
    True
    """

    ranked: list[ResultRow]
    plans: dict[str, Plan]
    timelines: dict[str, Timeline] = field(default_factory=dict)
    alike_s: dict[str, float] = field(default_factory=dict)
    alike_bound_s: float = 0.0
    unclipped: ResultRow | None = None
    frontier: list[tuple[float, float]] = field(default_factory=list)
    evaluations: int
    wall_s: float

    @property
    def best(self) -> ResultRow:
        """The first row."""
        return self.ranked[0]

    @property
    def plan(self) -> Plan:
        """The best row's plan, with what is predicted of it."""
        return self.plans[self.best.policy]

    def to_dataframe(self) -> Any:
        """A pandas DataFrame, a row a policy and the best first; a column for each figure of a row.

        Raises
        ------
        HocketError
            When pandas is not installed.
        """
        names = [name for name in ResultRow.__struct_fields__ if name != "iterations_s"]
        return data_frame({name: getattr(row, name) for name in names} for row in self.ranked)

    def _summary(self) -> ObjectSummary:
        best = self.best
        workers = counted(best.workers, "worker")
        where = f"{ARCHITECTURE_NAMES.get(best.architecture, best.architecture)}, {workers}"
        lines = [
            (f"{k + 1}. {row.title}", f"{duration_text(row.iteration_s)} a step")
            for k, row in enumerate(self.ranked[:_SHOWN])
        ]
        bound = ("bound", f"{duration_text(best.bound_s)}, of the best")
        searched = f"{counted(self.evaluations, 'plan')} searched, {duration_text(self.wall_s)}"
        headline = f"Tuning of {best.model or 'a model'}, {where}: {len(self.ranked)} policies ranked"
        return ObjectSummary(headline, [*lines, bound, ("took", searched)])
