"""Every policy and a search on one step and network, ranked, beside the proven bound."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from hocket.graph import Plan, ResultRow, StepGraph, Timeline
from hocket.network import Network
from hocket.planner import Architecture, Barrier
from hocket.sim import simulate
from hocket.tuner.choose import (
    Planned,
    can_be_exact,
    check_request,
    make_plan,
    policy_names,
    usual_architecture,
)
from hocket.tuner.improve import improve


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What :func:`tune` found.

    ``ranked``: a row a policy, the shortest step first; ``plans``: the plan behind each row; ``timelines`` of
    the best and the worst row; ``evaluations``: plans that the search simulated; ``wall_s``: seconds in all.
    """

    ranked: list[ResultRow]
    plans: dict[str, Plan]
    timelines: dict[str, Timeline] = field(default_factory=dict)
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
    progress: Callable[[str, float, float], None] | None = None,
) -> Tuning:
    """Simulate every policy of ``architecture``, then search from their plans for ``budget_s`` seconds.

    ``architecture`` is :func:`hocket.tuner.choose.usual_architecture` by default.
    A step that ``exact`` can plan is planned by it too, for as long. The search's plan is one of the ranked,
    so what is returned is never slower than any of them. ``progress`` is called with what is being tried, and
    how much of how much of it is done.

    Raises
    ------
    HocketError
        When the request cannot be served.
    """
    began = time.perf_counter()
    architecture = architecture or usual_architecture(network, barrier)
    check_request(graph, network, architecture, barrier, fusion_bytes)
    report = progress or (lambda name, done, total: None)
    names = [name for name in policy_names(architecture) if name != "search"]
    planned: dict[str, Planned] = {}
    for name in names:
        report(name, len(planned), len(names) + 1)
        if name == "exact" and not can_be_exact(graph, network, architecture, barrier):
            continue
        planned[name] = make_plan(
            graph,
            network,
            name,
            architecture=architecture,
            barrier=barrier,
            seed=seed,
            fusion_bytes=fusion_bytes if name == "horovod" else 0,
            budget_s=budget_s,
        )
    better = improve(
        graph,
        network,
        [made.plan for made in planned.values()],
        barrier=barrier,
        seed=seed,
        budget_s=budget_s,
        progress=lambda spent_s, best_s: report(f"search ({best_s:.4g} s)", spent_s, budget_s),
    )
    planned["search"] = Planned(plan=better.plan, evaluations=better.evaluations)

    def row_of(made: Planned, drawn_anew: bool) -> ResultRow:
        result = simulate(
            graph, made.plan, network, iterations=iterations, seed=seed, random_order=drawn_anew
        )
        return made.judged(result.row)

    rows: list[ResultRow] = []
    for name, made in planned.items():
        report(f"simulating {name}", len(rows), len(planned))
        rows.append(row_of(made, made.drawn_anew))
    ranked = sorted(rows, key=lambda row: row.iteration_s)
    while planned[ranked[0].policy].drawn_anew:
        # Chance has won, but a plan holds one draw: it is ranked as it would be run.
        name = ranked[0].policy
        planned[name] = dataclasses.replace(planned[name], drawn_anew=False)
        ranked[0] = row_of(planned[name], False)
        ranked.sort(key=lambda row: row.iteration_s)
    shown = {}
    if timelines:
        for row in (ranked[0], ranked[-1]):
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
        evaluations=planned["search"].evaluations,
        wall_s=time.perf_counter() - began,
    )
