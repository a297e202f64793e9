"""Fully sharded plans: the default, limits of memory, and what is proven."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from hocket.errors import HocketError
from hocket.graph import StepGraph, check_plan
from hocket.network import Network, Nodes, ShardGroups
from hocket.planner import policies_of
from hocket.sim import simulate
from hocket.sim.sharded_evaluator import ShardedEvaluator
from hocket.tuner import Exchange, make_plan, tune
from tests.strategies import operation, parameter, step

NETWORK = Network(bandwidth_bps=8e9, startup_s=0.001, num_workers=4)


def model(num_blocks: int = 3, block_bytes: int = 100_000_000) -> StepGraph:
    """An embedding, some blocks and a head, whose blocks compute for 20 ms and 40 ms."""
    blocks = [f"layers.{k}" for k in range(num_blocks)]
    names = ["embed.weight", *(f"{block}.weight" for block in blocks), "head.weight"]
    sizes = [50_000_000, *[block_bytes] * num_blocks, 50_000_000]
    operations = []
    last: list[str] = []
    for name in names:
        operations.append(operation(name, 0.02, inputs=last, reads=[name]))
        last = [name]
    for name in reversed(names):
        back = f"{name} back"
        operations.append(operation(back, 0.04, inputs=last, reads=[name], produces=[name], phase="backward"))
        last = [back]
    operations.append(operation("update", 0.01, inputs=last, reads=names, phase="update"))
    return step([parameter(n, size) for n, size in zip(names, sizes, strict=True)], operations)


def test_the_default_is_a_unit_a_block_and_the_roots() -> None:
    made = make_plan(model(), NETWORK, "fsdp").plan
    assert made.units == (
        ("embed.weight", "head.weight"),
        ("layers.0.weight",),
        ("layers.1.weight",),
        ("layers.2.weight",),
    )
    assert made.reshard_after_forward == (False, True, True, True)
    assert made.forward_prefetch is None is made.backward_prefetch
    check_plan(made, model())


def test_exact_is_never_above_any_and_the_bound_never_above_it() -> None:
    found = tune(model(), NETWORK, architecture="fsdp", iterations=1, budget_s=30.0)
    exact = next(row for row in found.ranked if row.policy == "exact")
    assert exact.status == "optimal"
    assert exact.iteration_s == pytest.approx(min(row.iteration_s for row in found.ranked))
    assert all(row.bound_s <= exact.iteration_s for row in found.ranked)


def test_plans_keep_to_the_memory_where_that_can_be() -> None:
    free = tune(model(), NETWORK, architecture="fsdp", iterations=1, budget_s=5.0)
    least = min(row.memory_bytes or 0.0 for row in free.ranked)
    assert free.best.memory_bytes is not None
    assert free.best.memory_bytes > least
    kept = tune(model(), NETWORK, architecture="fsdp", iterations=1, budget_s=5.0, memory_bytes=least)
    assert kept.best.memory_bytes == least
    assert kept.best.iteration_s >= free.best.iteration_s
    sizes = [size for size, _ in free.frontier]
    seconds = [step_s for _, step_s in free.frontier]
    assert sizes == sorted(sizes)
    assert seconds == sorted(seconds, reverse=True)


def uneven(seed: int) -> StepGraph:
    """The model, measured ten times, with operations up to five times as long now and then."""
    graph = model()
    factors = np.random.default_rng(seed).choice([1.0, 1.0, 1.0, 5.0], (graph.num_operations, 10))
    return dataclasses.replace(graph, durations_s=graph.durations_s * factors)


@pytest.mark.parametrize("seed", range(3))
def test_uneven_steps_are_ranked_searched_and_weighed_against_memory_by_the_same_times(seed: int) -> None:
    graph = uneven(seed)
    found = tune(graph, NETWORK, architecture="fsdp", iterations=20, budget_s=0.5)
    searched = next(row for row in found.ranked if row.policy == "search")
    assert searched.iteration_s == pytest.approx(found.best.iteration_s, rel=1e-9)
    for row in found.ranked:
        assert row.memory_bytes is not None
        assert any(
            size <= row.memory_bytes and step_s <= row.iteration_s * 1.001 for size, step_s in found.frontier
        )
    assert (found.best.memory_bytes, found.best.iteration_s) in [
        (size, pytest.approx(seconds, rel=1e-3)) for size, seconds in found.frontier
    ]


@pytest.mark.parametrize("seed", range(3))
def test_exact_units_of_uneven_steps_are_as_short_as_any_policys_by_the_times_that_rank_them(
    seed: int,
) -> None:
    graph, network = uneven(seed), dataclasses.replace(NETWORK, bandwidth_bps=3e10)
    made = make_plan(graph, network, "exact", Exchange(architecture="fsdp"), budget_s=30.0)
    plans = [make_plan(graph, network, name).plan for name in policies_of("fsdp")]
    exact_s, *others_s = (simulate(graph, plan, network).row.iteration_s for plan in (made.plan, *plans))
    assert exact_s <= min(others_s)
    mean = dataclasses.replace(graph, durations_s=graph.durations_s.mean(axis=1, keepdims=True))
    judge = ShardedEvaluator(mean, network)
    least_s = judge.seconds(make_plan(mean, network, "exact", Exchange(architecture="fsdp")).plan)
    assert (made.status == "optimal") == (judge.seconds(made.plan) <= least_s * (1 + 1e-9))


def test_groups_of_shards_gather_inside_and_reduce_between() -> None:
    nodes = Nodes(gpus=4, intra_bps=1e12)
    network = Network(bandwidth_bps=8e9, num_workers=8, nodes=nodes, shards=4)
    groups = ShardGroups.of(network)
    assert (groups.shards, groups.apart) == (4, True)
    assert groups.replicas is not None
    # All four workers of a node share its way out.
    assert groups.replicas.bandwidth_bps == pytest.approx(8e9 / 4)
    whole = ShardGroups.of(Network(bandwidth_bps=8e9, num_workers=8, nodes=nodes))
    assert groups.gather_s(1e8) < whole.gather_s(1e8)


@pytest.mark.parametrize(
    ("shards", "message"),
    [(3, "3 shards do not divide 4 workers into whole groups"), (0, "0 shards cannot train")],
)
def test_groups_that_do_not_fit_are_refused(shards: int, message: str) -> None:
    with pytest.raises(HocketError, match=message):
        make_plan(
            model(),
            Network(num_workers=4, shards=shards),
            "fsdp-tac",
            Exchange(architecture="fsdp"),
        )


def test_shards_are_refused_for_other_exchanges() -> None:
    with pytest.raises(HocketError, match="only fully sharded training has some"):
        make_plan(model(), Network(num_workers=4, shards=2), "ddp")


def test_too_many_blocks_for_the_exact_planner_are_refused_in_a_line() -> None:
    with pytest.raises(HocketError, match=r"12 blocks leave .* choices, too many"):
        make_plan(model(12), NETWORK, "exact", Exchange(architecture="fsdp"))


def test_a_timeline_has_the_memory_that_the_schedule_holds_and_lanes_of_collectives() -> None:
    graph = model()
    plan = make_plan(graph, NETWORK, "fsdp").plan
    timeline = simulate(graph, plan, NETWORK, iterations=1, timeline=True).timeline
    assert timeline is not None
    held = [point.held_bytes for point in timeline.memory]
    assert held[-1] == 0
    assert max(held) >= ShardedEvaluator(graph, NETWORK).full_bytes(plan)
    assert all(0.0 <= point.at_s <= timeline.end_s for point in timeline.memory)
    shared = [lane.name for lane in timeline.lanes if lane.process == "network"]
    assert shared == ["all-gathers", "reduce-scatters"]
