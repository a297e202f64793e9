"""The tuner never loses, and says no in one line."""

from __future__ import annotations

import dataclasses
import importlib.util
import time
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core import event

import hocket
from hocket.errors import HocketError
from hocket.graph import StepGraph
from hocket.graph.clipped_step import clipped
from hocket.graph.result import LEVEL
from hocket.network import MeasuredReduction, Network
from hocket.planner import policies_of
from hocket.planner.allreduce_baselines import ddp
from hocket.planner.bytescheduler import bytescheduler, partition_of
from hocket.sim import simulate
from hocket.sim.evaluator import PlanEvaluator
from hocket.tuner import Exchange, make_plan, plan, tune
from hocket.tuner.policies import architecture_of, check_request
from hocket.tuner.training_plans import _another, plans_for, plans_to_try
from tests.golden.make import BRANCHES_NETWORK, branches
from tests.strategies import networks, operation, parameter, step, steps


@given(st.data())
@settings(max_examples=25)
def test_what_tune_returns_is_never_slower_than_any_policy(data: st.DataObject) -> None:
    graph = data.draw(steps(training=True, samples=1))
    network = data.draw(networks(graph))
    architecture = data.draw(st.sampled_from(["ps", "allreduce"]))
    if architecture == "allreduce":
        network = dataclasses.replace(network, window_bytes=None)
    found = tune(graph, network, architecture=architecture, budget_s=0.05, iterations=4)
    for policy in policies_of(architecture):
        alone = simulate(graph, plan(graph, network, policy), network, iterations=4).row
        if policy not in ("random", "wfbp"):
            # The usual policy, and DDP's best bucket, stand in front of what is as fast to 0.05%.
            slack = LEVEL if found.best.policy in ("ddp", "fifo", "ddp-best") else 1e-9
            assert found.best.iteration_s <= alone.iteration_s * (1 + slack)
    assert found.best.bound_s <= found.best.iteration_s * (1 + 1e-9)
    # One bound holds for all that keeps the same barrier and cuts nothing.
    assert found.plan == found.plans[found.best.policy]
    assert found.plan.predicted is not None


def test_what_nothing_beats_is_the_usual_policys_plan() -> None:
    """DDP's where no other plan gains more than 0.05%, else its best bucket where no plan beats that."""
    graph = branches()
    level = tune(graph, Network(num_workers=4), architecture="allreduce", budget_s=0.05)
    assert (level.best.policy, level.plan.policy) == ("ddp", "ddp")
    assert min(row.iteration_s for row in level.ranked) == pytest.approx(level.best.iteration_s, rel=LEVEL)
    # The second gradient is hidden behind the last one's computing, unless it travels with that one.
    rows = [operation("forward", reads=["a", "b", "c"])]
    for name, before in zip("cba", ("forward", "backward c", "backward b"), strict=True):
        rows.append(operation(f"backward {name}", 100.0, inputs=[before], produces=[name], phase="backward"))
    sizes = {"a": 1, "b": 5 << 20, "c": 1 << 20}
    layers = step([parameter(name, size) for name, size in sizes.items()], rows)
    slow = Network(num_workers=2, bandwidth_bps=1e6)
    found = tune(layers, slow, architecture="allreduce", budget_s=0.05)
    assert (found.best.policy, found.plan.policy) == ("ddp-best", "ddp-best")


def test_a_search_may_choose_its_barrier_and_its_slices() -> None:
    graph, network = branches(), Network(bandwidth_bps=1000.0, num_workers=2)
    free = make_plan(graph, network, "search", Exchange(architecture="ps"), budget_s=0.3)
    strict = make_plan(graph, network, "search", Exchange(barrier="step"), budget_s=0.3)
    assert (free.plan.barrier, strict.plan.barrier) == ("parameter", "step")
    assert free.evaluations > 0
    seconds = [simulate(graph, made.plan, network).row.iteration_s for made in (free, strict)]
    assert seconds[0] < seconds[1]


def test_the_gain_that_is_not_of_unlike_steps_is_simulated_of_the_mean_step() -> None:
    graph = branches()
    even = tune(graph, BRANCHES_NETWORK, architecture="allreduce", budget_s=0.05)
    assert (even.alike_s, even.alike_bound_s) == ({}, 0.0)  # workers with steps of one length wait for nobody
    unlike = dataclasses.replace(graph, durations_s=graph.durations_s * [0.4, 1.0, 1.6])
    found = tune(unlike, BRANCHES_NETWORK, architecture="allreduce", budget_s=0.05)
    assert found.best.straggler_fraction > 0.1
    assert found.alike_s.keys() == {found.best.policy, "ddp", "ddp-best"}
    for policy, seconds in found.alike_s.items():
        alone = simulate(graph, found.plans[policy], BRANCHES_NETWORK, iterations=20).row
        assert seconds == pytest.approx(alone.iteration_s)
    of_best = simulate(graph, found.plan, BRANCHES_NETWORK, iterations=20).row
    assert found.alike_bound_s == pytest.approx(of_best.bound_s)
    assert found.best.bound_s != pytest.approx(of_best.bound_s)


def test_timelines_of_the_best_and_of_ddp() -> None:
    found = tune(branches(), BRANCHES_NETWORK, architecture="allreduce", budget_s=0.2, timelines=True)
    best = found.ranked[0].policy
    assert set(found.timelines) == {best, found.ranked[1].policy if best == "ddp" else "ddp"}
    assert hocket.tune is tune


def test_requests_that_make_no_sense() -> None:
    graph = branches()
    with pytest.raises(HocketError, match="policy 'tac' is not for architecture 'allreduce'"):
        architecture_of("tac", "allreduce")
    with pytest.raises(HocketError, match="pattern 'ring' is one of all-reduce"):
        check_request(graph, Network(pattern="ring"), "ps")
    with pytest.raises(HocketError, match="5 servers cannot share 4 parameters"):
        tune(graph, Network(num_servers=5))
    with pytest.raises(HocketError, match="policy 'best' is unknown"):
        plan(graph, Network(), "best")


def test_what_is_written_does_what_the_ranking_says_even_where_chance_wins() -> None:
    # Workers that draw their own orders drift apart and can end sooner than any that keep one order.
    graph = branches()
    for startup_s in (0.0, 0.5, 2.0):
        network = Network(bandwidth_bps=1000.0, startup_s=startup_s, num_workers=4)
        for architecture in ("ps", "allreduce"):
            found = tune(graph, network, architecture=architecture, budget_s=0.05, iterations=6)  # type: ignore[arg-type]
            again = simulate(graph, found.plan, network, iterations=6).row
            assert again.iteration_s == pytest.approx(found.best.iteration_s)
            assert [row.iteration_s for row in found.ranked] == sorted(
                row.iteration_s for row in found.ranked
            )


@given(st.data())
@settings(max_examples=15)
def test_a_search_is_checked_with_all_measured_steps(data: st.DataObject) -> None:
    graph = data.draw(steps(samples=3))
    network = data.draw(networks(graph))
    made = make_plan(graph, network, "search", Exchange(architecture="ps"), budget_s=0.05, seed=1).plan
    ours = simulate(graph, made, network, seed=1).row.iteration_s
    for policy in policies_of("ps"):
        row = simulate(graph, plan(graph, network, policy, seed=1), network, seed=1).row
        assert ours <= row.iteration_s * (1 + 1e-9)


def test_parse_costs_are_priced_and_ranked_but_not_proven() -> None:
    graph = branches()
    network = Network(bandwidth_bps=1000.0, num_workers=2, parse_s=0.25, parse_s_per_byte=1 / 500)
    found = tune(graph, network, architecture="ps", barrier="step", budget_s=0.2)
    assert "exact" not in {row.policy for row in found.ranked}
    assert found.best.bound_s <= found.best.iteration_s
    free = tune(graph, Network(bandwidth_bps=1000.0, num_workers=2), barrier="step", budget_s=0.2)
    assert found.best.iteration_s > free.best.iteration_s


@pytest.mark.parametrize(
    ("of_network", "barrier", "architecture"),
    [
        ({}, None, "allreduce"),
        ({"window_bytes": 0.0}, None, "allreduce"),
        ({"num_servers": 2}, None, "ps"),
        ({"window_bytes": 28e6}, None, "ps"),
        ({}, "step", "ps"),
    ],
)
def test_all_reduce_is_planned_for_unless_servers_are_asked_for(
    of_network: dict[str, Any], barrier: Any, architecture: str
) -> None:
    network = Network(bandwidth_bps=1000.0, num_workers=2, **of_network)
    for policy in ("search", "exact") if importlib.util.find_spec("ortools") else ("search",):
        made = make_plan(branches(), network, policy, Exchange(barrier=barrier), budget_s=1.0)
        assert made.plan.architecture == architecture
    found = tune(branches(), network, barrier=barrier, budget_s=0.05)
    assert found.best.architecture == architecture


def test_options_of_the_other_architecture() -> None:
    graph = branches()
    with pytest.raises(HocketError, match=r"barrier 'step' is for parameter servers"):
        tune(graph, Network(num_workers=2), architecture="allreduce", barrier="step")
    with pytest.raises(HocketError, match=r"a window of 200 B is for transfers of parameter servers"):
        tune(graph, Network(num_workers=2, window_bytes=200.0), architecture="allreduce")
    with pytest.raises(HocketError, match=r"fusion 64 B is Horovod's"):
        tune(graph, Network(num_workers=2), architecture="ps", fusion_bytes=64)
    with pytest.raises(HocketError, match=r"barrier 'parameter' is for parameter servers"):
        make_plan(graph, Network(), "search", Exchange(architecture="allreduce", barrier="parameter"))


def _chain(seconds: list[float], size_bytes: int = 4 << 20) -> StepGraph:
    """Six layers, forward and backward, one after the other; operations take ``seconds`` in the steps."""
    layers = range(6)
    names = [*(f"f{i}" for i in layers), *(f"b{i}" for i in reversed(layers))]
    return step(
        [parameter(f"p{i}", size_bytes) for i in layers],
        [
            operation(
                name,
                seconds,
                inputs=names[:k][-1:],
                reads=[f"p{name[1]}"],
                produces=[f"p{name[1]}"] if name[0] == "b" else [],
                phase="backward" if name[0] == "b" else "forward",
            )
            for k, name in enumerate(names)
        ],
    )


def test_a_disturbed_step_of_a_profile_does_not_change_what_is_tried() -> None:
    network = Network(num_workers=2, bandwidth_bps=1e9)
    tried = plans_to_try(_chain([0.02] * 3), network)
    assert tried
    assert plans_to_try(_chain([0.02, 0.4, 0.02]), network) == tried


def test_of_a_step_that_clips_plans_in_halves_are_tried_and_a_whole_one() -> None:
    network = Network(num_workers=2, bandwidth_bps=5e8)
    graph = _chain([0.02])
    assert not any(r.halves for each in plans_to_try(graph, network) for r in each.reductions)
    tried = plans_to_try(clipped(graph), network)
    in_halves = [any(r.halves for r in each.reductions) for each in tried]
    assert in_halves[0]
    assert not all(in_halves)
    assert all(
        each.policy.endswith(" in halves") == halved for each, halved in zip(tried, in_halves, strict=True)
    )
    for each in tried:
        assert each.compute_order is None or set(each.compute_order) <= set(graph.operation_names)
    (asked,) = plans_for("caramel", clipped(graph), network)
    assert any(r.halves for r in asked.reductions)


def test_kernels_that_are_compiled_first_take_nothing_of_a_searchs_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judged, compiled = PlanEvaluator.seconds, []

    def compiles_first(*arguments: Any, **options: Any) -> float:
        if not compiled:
            compiled.append(True)
            with event.trigger_event("numba:compile"):  # type: ignore[no-untyped-call]
                time.sleep(1.0)
        return judged(*arguments, **options)

    graph, network = _chain([0.02] * 3), Network(num_workers=2, bandwidth_bps=1e9)
    warm = tune(graph, network, budget_s=0.5).evaluations
    monkeypatch.setattr(PlanEvaluator, "seconds", compiles_first)
    assert tune(graph, network, budget_s=0.5).evaluations > warm / 4
    assert compiled


def simulated_s(graph: StepGraph, network: Network, tried: list[hocket.Plan]) -> list[float]:
    step = graph.typical()
    return [simulate(step, each, network, iterations=4).row.iteration_s for each in tried]


def test_of_plans_alike_in_simulation_the_best_and_that_of_the_fewest_transfers_are_tried() -> None:
    graph, network = _chain([0.02]), Network(num_workers=2, bandwidth_bps=1e10, startup_s=2e-4)
    tried = plans_to_try(graph, network)
    best_s, other_s = simulated_s(graph, network, tried)
    assert best_s <= other_s < 1.02 * best_s
    best, fewest = (len(each.reductions) for each in tried)
    assert fewest < best


def test_where_the_best_plan_has_the_fewest_transfers_its_like_with_the_most_is_tried() -> None:
    assert _another(4, [4, 2, 3], [0, 0, 9, 7, 5]) == [2]
    assert _another(4, [4, 2, 3], [0, 0, 9, 4, 5]) == [3]
    assert _another(4, [4, 2], [0, 0, 5, 4, 5]) == []


def test_nothing_is_tried_that_is_not_faster_than_ddp_in_simulation() -> None:
    network = Network(num_workers=2, bandwidth_bps=1e12)
    assert plans_to_try(_chain([0.1]), network) == []


def test_no_plan_is_tried_twice_under_two_names() -> None:
    # No gradient is larger than the smallest slices.
    reduction = MeasuredReduction(workers=2, a_s=0.001, b_s_per_byte=3.2e-8)
    network = Network(num_workers=2, reduction=reduction)
    tried = plans_to_try(_chain([0.001], size_bytes=40_000), network)
    assert len(tried) == len({(each.reductions, each.compute_order) for each in tried})


@given(st.data())
@settings(max_examples=25)
def test_what_is_tried_first_is_the_best_in_simulation_and_the_others_differ(data: st.DataObject) -> None:
    graph = data.draw(steps(training=True, samples=2))
    network = dataclasses.replace(data.draw(networks(graph)), window_bytes=None)
    tried = plans_to_try(graph, network)
    assert len(tried) == len({each.policy for each in tried}) <= 3
    others = [
        plan(graph, network, "caramel"),
        *(bytescheduler(graph, network, round(f * partition_of(network))) for f in (0.5, 1.0, 2.0, 4.0)),
        *(ddp(graph, network, mb << 20) for mb in (1, 5)),
    ]
    usual, least = ddp(graph, network), min(simulated_s(graph, network, others))
    (usual_s,) = simulated_s(graph, network, [usual])
    if not tried:
        assert least >= usual_s / 1.02 * (1 - 1e-9)
        return
    seconds = simulated_s(graph, network, tried)
    assert seconds[0] <= least * (1 + 1e-9)
    assert max(seconds) < usual_s / 1.02 * (1 + 1e-9)
    # But for the second, which may be the best one's like.
    assert all(b > 1.02 * a * (1 - 1e-9) for a, b in pairwise([seconds[0], *seconds[2:]]))


def test_iterations_are_checked_before_the_search_spends_its_budget() -> None:
    tried: list[str] = []
    with pytest.raises(HocketError, match="0 iterations cannot be averaged"):
        tune(
            branches(),
            BRANCHES_NETWORK,
            iterations=0,
            budget_s=0.05,
            progress=lambda name, done, total: tried.append(name),
        )
    assert tried == []
