"""The exact units of blocks against the simulator's own judgement of all of them."""

from __future__ import annotations

import dataclasses
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.errors import HocketError
from hocket.graph import MemoryMoment, OperationRow, StepGraph, StepMemory
from hocket.network import Network, Nodes
from hocket.planner.sharded.pieces import Pieces, UnitChoice
from hocket.tuner import Exchange, make_plan, policy_names, tune
from hocket.tuner.sharded_plans import ShardedPlanners
from tests.strategies import examples, operation, parameter, step

NODES = Nodes(gpus=2, intra_bps=32e3, intra_startup_s=0.25)


@st.composite
def block_steps(draw: st.DrawFn, *, min_blocks: int = 1, max_blocks: int = 6) -> StepGraph:
    """Blocks in a row, with parameters before, behind and around them, some of which are frozen."""
    count = draw(st.integers(min_blocks, max_blocks))
    sizes, seconds = st.integers(1, 6).map(lambda k: 125 * k), st.integers(0, 5).map(float)
    blocks = [f"layers.{k}" for k in range(count)]
    rests = draw(st.sampled_from([(), ("embed",), ("head",), ("embed", "head"), ("embed", "tied")]))
    trained = {name: draw(st.sampled_from([True, True, False])) for name in rests}
    order = [*(["embed"] if "embed" in rests else []), *blocks, *(["head"] if "head" in rests else [])]
    parameters = [parameter(f"{name}.weight", draw(sizes)) for name in [*blocks, *rests] if name != "tied"]
    biased = {name for name in blocks if draw(st.booleans())}
    parameters += [parameter(f"{name}.bias", draw(sizes)) for name in blocks if name in biased]
    operations: list[OperationRow] = []
    last: list[str] = []

    def add(name: str, phase: str, reads: list[str], produces: list[str]) -> None:
        nonlocal last
        for k in range(draw(st.integers(0, 1))):
            between = f"before {len(operations)} {k}"
            operations.append(operation(between, draw(seconds), inputs=last, phase=phase))
            last = [between]
        made = f"{name} {phase} {len(operations)}"
        operations.append(
            operation(made, draw(seconds), inputs=last, reads=reads, produces=produces, phase=phase)
        )
        last = [made]

    for name in order:
        add(name, "forward", [f"{name}.weight"], [])
        if name in biased:
            add(name, "forward", [f"{name}.bias"], [])
    if "tied" in rests:
        add("tied", "forward", ["embed.weight"], [])
        add("tied", "backward", ["embed.weight"], [])
    for name in reversed(order):
        if name in rests and not trained[name]:
            continue
        if name in biased:
            add(name, "backward", [], [f"{name}.bias"])
        add(name, "backward", [f"{name}.weight"], [f"{name}.weight"])
    # What follows the last gradient shows who waits for which reduce-scatter.
    behind = draw(st.integers(0, 50).map(float))
    operations.append(operation("input", behind, inputs=last, phase="backward"))
    operations.append(operation("update", draw(seconds), inputs=last, phase="update"))
    made = step(parameters, operations)
    return dataclasses.replace(
        made, device=draw(st.sampled_from(["cpu", "toy"])), memory=draw(memories(made))
    )


@st.composite
def memories(draw: st.DrawFn, graph: StepGraph) -> StepMemory | None:
    if draw(st.booleans()):
        return None
    moments = [
        MemoryMoment(
            phase=phase,
            gradients_bytes=0.0,
            fixed_bytes=draw(st.integers(0, 3)) * 500.0,
            bytes_per_example=0.0,
        )
        for phase in ("forward", "backward", "update")
    ]
    total = float(graph.parameter_bytes.sum())
    return StepMemory(
        batch_size=graph.batch_size,
        parameters_bytes=total,
        gradients_bytes=total,
        optimizer_bytes=2 * total,
        moments=tuple(moments),
    )


@st.composite
def networks(draw: st.DrawFn) -> Network:
    workers = draw(st.sampled_from([2, 4]))
    return Network(
        bandwidth_bps=draw(st.sampled_from([1e3, 4e3, 16e3])),
        startup_s=draw(st.sampled_from([0.0, 0.5, 2.0])),
        num_workers=workers,
        nodes=draw(st.sampled_from([None, NODES])),
        shards=draw(st.sampled_from([None, *[n for n in (1, 2, 4) if workers % n == 0]])),
    )


def _costs(graph: StepGraph, network: Network) -> list[tuple[float, float]]:
    """Bytes and seconds of all units of consecutive blocks, by the simulator."""
    blocks, judge = len(Pieces.of(graph).blocks), ShardedPlanners(graph, network)
    plans = [
        judge.plan(UnitChoice(cuts=cuts, forward=1, backward=1))
        for count in range(blocks)
        for cuts in combinations(range(1, blocks), count)
    ]
    return [(judge.memory_bytes(plan), judge.cost(plan)[1]) for plan in plans]


def _check(graph: StepGraph, network: Network, share: float) -> None:
    costs = _costs(graph, network)
    needs = sorted({need for need, _ in costs})
    # From below the least need to above the largest.
    limits = [needs[0] * 0.999, *needs, np.inf]
    limit = limits[min(int(share * len(limits)), len(limits) - 1)]
    planners = ShardedPlanners(graph, network, limit)
    expected = min((max(0.0, need - limit), seconds) for need, seconds in costs)
    assert planners.cost(planners.ibatch().plan) == pytest.approx(expected)


@given(block_steps(), networks(), st.floats(0, 1))
@examples(150)
def test_the_program_finds_the_best_of_all_units_within_the_limit(
    graph: StepGraph, network: Network, share: float
) -> None:
    _check(graph, network, share)


@given(block_steps(min_blocks=11, max_blocks=12), networks(), st.floats(0, 1))
@examples(5)
def test_it_does_so_for_twelve_blocks(graph: StepGraph, network: Network, share: float) -> None:
    _check(graph, network, share)


@given(block_steps(max_blocks=3), networks(), st.floats(0, 1))
@examples(12)
def test_exact_is_never_above_any_policy(graph: StepGraph, network: Network, share: float) -> None:
    needs = sorted(need for need, _ in _costs(graph, network))
    limit = needs[0] + share * (needs[-1] - needs[0])
    judge, exchange = (
        ShardedPlanners(graph, network, limit),
        Exchange(architecture="fsdp", memory_bytes=limit),
    )
    made = {
        name: make_plan(graph, network, name, exchange, budget_s=60.0 if name == "exact" else 0.05)
        for name in policy_names("fsdp")
    }
    assert made["exact"].status == "optimal"
    assert {"fsdp-ibatch", "simplefsdp", "search"} < made.keys()
    least = judge.cost(made["exact"].plan)
    for name, other in made.items():
        assert least <= judge.cost(other.plan), name


def test_steps_that_are_no_chain_are_refused_in_a_line() -> None:
    names = ["layers.0.w", "layers.1.w"]
    operations = [
        operation("one", reads=names[:1]),
        operation("two", inputs=["one"], reads=names[1:]),
        operation("first", inputs=["two"], produces=names[:1], phase="backward"),
        operation("second", inputs=["first"], produces=names[1:], phase="backward"),
    ]
    graph = step([parameter(name, 100) for name in names], operations)
    network = Network(num_workers=2)
    with pytest.raises(HocketError, match=r"whose blocks follow one another: its blocks do not .*; search$"):
        make_plan(graph, network, "fsdp-ibatch")
    found = tune(graph, network, architecture="fsdp", iterations=1, budget_s=0.1)
    assert "fsdp-ibatch" not in {row.policy for row in found.ranked}
