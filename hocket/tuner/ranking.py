"""Every policy and a search on one step and network, ranked, beside the proven bound."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from hocket.graph import Plan, ResultRow, StepGraph, Timeline
from hocket.graph.clipped_step import clipped_for
from hocket.graph.plan import ARCHITECTURE_NAMES, has_halves
from hocket.graph.result import WAITING, is_level
from hocket.network import Network
from hocket.notebook import ObjectSummary, Summarized, data_frame
from hocket.planner import Architecture, Barrier
from hocket.planner import plan as plan_by_policy
from hocket.planner.named_planners import BEST_BUCKETS, POLICIES, USUAL
from hocket.planner.sharded.block_chain import is_chain
from hocket.sim import check_iterations, simulate
from hocket.text import counted, duration_text
from hocket.tuner.best_buckets import best_buckets
from hocket.tuner.improve import Improved, SearchChoices, improve
from hocket.tuner.policies import (
    Exchange,
    PlannedPolicy,
    can_be_exact,
    check_request,
    for_workers,
    make_plan,
    policy_names,
    usual_architecture,
)
from hocket.tuner.sharded_plans import ShardedPlan, ShardedPlanners
from hocket.tuner.unclipped import best_unclipped

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
    unclipped
        Where the step was tuned as one that clips: the best policy's row without clipping, the search left
        out. None otherwise, and where the profile itself clips, of which nobody knows how it is without.
    frontier
        Fully sharded: bytes of memory and seconds of a step of the plans that the search tried, of which no
        other takes less of both, the least memory first.
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


def tune(
    graph: StepGraph,
    network: Network,
    *,
    architecture: Architecture | None = None,
    barrier: Barrier | None = None,
    iterations: int = 20,
    seed: int = 0,
    fusion_bytes: int = 0,
    budget_s: float = 10.0,
    timelines: bool = False,
    clip: bool = False,
    memory_bytes: float | None = None,
    progress: Callable[[str, float, float], None] | None = None,
) -> Tuning:
    """Simulate every policy of an architecture, search for a better plan from theirs, and rank them all.

    Of a step that clips a policy whose plan has reductions in halves is ranked without them, too, as
    "caramel whole", say.

    A step that ``exact`` can plan is planned by it too. With AllReduce DDP is ranked with its default buckets
    ("ddp") and with the best of several sizes ("ddp-best", of ``bucket_bytes``). The search's plan is one of
    the ranked, so what is returned is never slower than any of them.

    Parameters
    ----------
    graph
        One worker's step.
    network
        Links and costs, and the numbers of workers and servers.
    architecture
        "ps", "allreduce" or "fsdp"; None: AllReduce, unless several servers, a window or a barrier ask for
        servers.
    barrier
        "step" or "parameter" in place of the policies' own, of parameter servers.
    iterations
        Steps to simulate of each plan, at least 1.
    seed
        Decides every random draw.
    fusion_bytes
        Horovod's buffer, in bytes, for that policy alone; 0: none.
    budget_s
        Seconds that the search may take, above 0, and ``exact`` as many.
    timelines
        Keep timelines of the best plan and of the usual policy's, as in :class:`hocket.Tuning`.
    clip
        The step clips its gradients by their norm, whether or not it was measured so: caramel, bytescheduler
        and the search may cut reductions in halves, and so may ``exact`` where
        transfers cost nothing to start.
    memory_bytes
        The memory of a worker's device: fully sharded plans that need more are ranked behind all others, and
        the search keeps to it; None: no limit.
    progress
        Called with what is being done, and how much of how much: policies while they are planned and
        simulated; seconds during the search, whose name holds the best step so far.

    Returns
    -------
    The ranking, a :class:`hocket.Tuning`; its ``plan`` is the best one, ``to_dataframe()`` its table.

    Raises
    ------
    HocketError
        When the request cannot be served: a value out of its range, an option of the other architecture, more
        servers than parameters.

    Examples
    --------
    >>> import hocket
    >>> graph = hocket.load_step("step.json")
    >>> found = hocket.tune(graph, hocket.Network(num_workers=4), budget_s=0.1, iterations=2)
    >>> found.best.iteration_s <= 1.001 * min(row.iteration_s for row in found.ranked)
    True
    """
    began = time.perf_counter()
    check_iterations(iterations)
    architecture = architecture or usual_architecture(network, barrier)
    check_request(graph, network, architecture, barrier, fusion_bytes)
    report = progress or (lambda name, done, total: None)
    measured = graph
    if clip:
        graph = clipped_for(graph, architecture)
    is_exact = can_be_exact(graph, network, architecture, barrier, clip)
    left_out = {"search"} if is_exact else {"search", "exact"}
    if architecture == "fsdp" and not is_chain(graph):
        left_out.add("fsdp-ibatch")
    names = [name for name in policy_names(architecture) if name not in left_out]
    planned: dict[str, PlannedPolicy] = {}
    for name in names:
        report(name, len(planned), len(names) + 1)
        if name == BEST_BUCKETS:
            # Chosen by the steps that rank it, so that it never stands behind ddp.
            buckets = best_buckets(graph, network, iterations=iterations, seed=seed)
            planned[name] = PlannedPolicy(plan=for_workers(buckets, network))
            continue
        exchange = Exchange(
            architecture=architecture,
            barrier=barrier,
            fusion_bytes=fusion_bytes if name == "horovod" else 0,
            clip=clip,
            memory_bytes=memory_bytes,
        )
        planned[name] = make_plan(graph, network, name, exchange, seed=seed, budget_s=budget_s)
        if has_halves(planned[name].plan) and name in POLICIES:
            whole = for_workers(plan_by_policy(graph, network, name, seed=seed), network)
            whole = msgspec.structs.replace(whole, policy=f"{name} whole")
            planned[whole.policy] = PlannedPolicy(plan=whole)
    report("search", len(names), len(names) + 1)
    known = [made.plan for made in planned.values()]
    better: Improved | ShardedPlan
    frontier: list[tuple[float, float]] = []
    within_s = 0.0
    if architecture == "fsdp":
        limited = ShardedPlanners(graph, network, np.inf if memory_bytes is None else memory_bytes)
        better = limited.search(known, seed=seed, budget_s=budget_s)
        frontier = limited.frontier()
        if graph.num_samples == 1:  # a bound of mean steps is none of a few that are drawn
            within_s = limited.bound_s()
    else:
        better = improve(
            graph,
            network,
            known,
            choices=SearchChoices(barrier=barrier, halves=clip),
            seed=seed,
            budget_s=budget_s,
            progress=lambda spent_s, best_s: report(f"search ({best_s:.4g} s)", spent_s, budget_s),
        )
    planned["search"] = PlannedPolicy(plan=for_workers(better.plan, network), evaluations=better.evaluations)

    def row_of(made: PlannedPolicy, drawn_anew: bool) -> ResultRow:
        result = simulate(
            graph, made.plan, network, iterations=iterations, seed=seed, random_order=drawn_anew
        )
        row = result.row
        if within_s and fits(row, memory_bytes):
            row = msgspec.structs.replace(row, bound_s=min(max(row.bound_s, within_s), row.iteration_s))
        return made.with_bounds(row)

    rows: list[ResultRow] = []
    for name, made in planned.items():
        report(f"simulating {name}", len(rows), len(planned))
        rows.append(row_of(made, made.drawn_anew))
    ranked = sorted(rows, key=lambda row: (_beyond(row, memory_bytes), row.iteration_s))
    while planned[ranked[0].policy].drawn_anew:
        # Chance has won, but a plan holds one draw: it is ranked as it would be run.
        name = ranked[0].policy
        planned[name] = dataclasses.replace(planned[name], drawn_anew=False)
        ranked[0] = row_of(planned[name], False)
        ranked.sort(key=lambda row: row.iteration_s)
    _prefer(
        ranked,
        [name for name in (USUAL[architecture], BEST_BUCKETS) if name in planned],
        planned,
        memory_bytes,
    )
    alike_s = {}
    if ranked[0].straggler_fraction >= WAITING:
        mean = dataclasses.replace(graph, durations_s=graph.durations_s.mean(axis=1, keepdims=True))
        for name in dict.fromkeys((ranked[0].policy, USUAL[architecture], BEST_BUCKETS)):
            if name not in planned:
                continue
            made = planned[name]
            result = simulate(
                mean, made.plan, network, iterations=iterations, seed=seed, random_order=made.drawn_anew
            )
            alike_s[name] = result.row.iteration_s
    shown = {}
    if timelines:
        usual = next((row for row in ranked[1:] if row.policy == USUAL[architecture]), ranked[1])
        for row in (ranked[0], usual):
            made = planned[row.policy]
            result = simulate(
                graph,
                made.plan,
                network,
                iterations=iterations,
                seed=seed,
                random_order=made.drawn_anew,
                timeline=True,
            )
            assert result.timeline is not None
            shown[row.policy] = result.timeline
    return Tuning(
        ranked=ranked,
        plans={
            row.policy: msgspec.structs.replace(planned[row.policy].plan, predicted=row.predicted())
            for row in ranked
        },
        timelines=shown,
        alike_s=alike_s,
        unclipped=None
        if measured is graph
        else best_unclipped(measured, network, architecture, iterations=iterations, seed=seed),
        frontier=frontier,
        evaluations=planned["search"].evaluations,
        wall_s=time.perf_counter() - began,
    )


def fits(row: ResultRow, memory_bytes: float | None) -> bool:
    """Tell whether the plan of ``row`` keeps to a limit of memory, or has none."""
    return _beyond(row, memory_bytes) == 0


def _beyond(row: ResultRow, memory_bytes: float | None) -> float:
    """Bytes that the plan of ``row`` needs beyond a limit."""
    if memory_bytes is None or row.memory_bytes is None:
        return 0.0
    return max(0.0, row.memory_bytes - memory_bytes)


def _prefer(
    ranked: list[ResultRow],
    names: Sequence[str],
    planned: Mapping[str, PlannedPolicy],
    memory_bytes: float | None,
) -> None:
    """Put the first of ``names`` that nothing beats in front: a plan that gains nothing is not worth its use.

    One whose rows are of orders drawn anew stays in its place, as a plan holds one draw.
    """
    for name in names:
        row = next(row for row in ranked if row.policy == name)
        if _beyond(row, memory_bytes) > _beyond(ranked[0], memory_bytes):
            continue
        if is_level(row.iteration_s, ranked[0].iteration_s) and not planned[name].drawn_anew:
            ranked.remove(row)
            ranked.insert(0, row)
            return
