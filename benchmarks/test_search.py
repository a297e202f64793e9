"""How close a search of ten seconds comes to the proven bound, on every graph of TicTac's Table 1.

``python -m pytest benchmarks/test_search.py -q -s --benchmark-enable`` takes about a quarter of an hour.
"""

from __future__ import annotations

import numpy as np
import pytest

from hocket.network import Network
from hocket.planner import policies_of
from hocket.reproduce.steps import TABLE_1
from hocket.reproduce.steps import derived as k80
from hocket.sim import simulate
from hocket.tuner import Exchange, PlannedPolicy, make_plan

BUDGET_S = 10.0
SETTINGS = (("ps", None), ("ps", "step"), ("allreduce", None))  # a barrier of None: the search chooses


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("model", TABLE_1)
def test_search_beside_the_bound(benchmark, model: str) -> None:  # type: ignore[no-untyped-def]
    graph = k80(model, 32)
    print(f"\n{model}: over the bound with the best policy -> with search (seconds of the step)")

    def all_settings() -> None:
        for architecture, barrier in SETTINGS:
            for gbit in (1, 10, 25):
                for workers in (4, 16):
                    network = Network(
                        bandwidth_bps=gbit * 1e9,
                        startup_s=50e-6,
                        num_workers=workers,
                        pattern="cheapest" if architecture == "allreduce" else None,
                    )
                    rows = {}
                    for policy in [*policies_of(architecture), "search"]:  # type: ignore[arg-type]
                        made: PlannedPolicy = make_plan(
                            graph,
                            network,
                            policy,
                            Exchange(architecture=architecture, barrier=barrier),  # type: ignore[arg-type]
                            budget_s=BUDGET_S,
                        )
                        row = simulate(
                            graph, made.plan, network, iterations=3, random_order=made.drawn_anew
                        ).row
                        rows[policy] = made.with_bounds(row)
                    found = rows.pop("search")
                    best = min(rows.values(), key=lambda row: row.iteration_s)
                    over = [row.iteration_s / found.bound_s - 1 for row in (best, found)]
                    assert np.isfinite(over).all()
                    print(
                        f"{architecture:9s} barrier {barrier or 'free':4s} {gbit:2d} Gbit/s {workers:2d} W: "
                        f"{best.policy:9s} {over[0]:7.2%} -> {over[1]:6.2%}  ({found.iteration_s:.4f})",
                        flush=True,
                    )

    benchmark.pedantic(all_settings, rounds=1)
