"""Fully sharded steps against a transcript of torch's hooks and streams, job for job, and their memory."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.graph import Phase, Plan, StepGraph
from hocket.graph.clipped_step import clipped, norm_operations
from hocket.network import (
    MeasuredHalves,
    MeasuredLine,
    MeasuredReduction,
    Network,
    Nodes,
    ShardGroups,
    number_s,
)
from hocket.sim import simulate
from hocket.sim.lowering.beside import ASYNCHRONOUS_GATHERS, BLOCKING
from hocket.sim.lowering.sharded_step import ShardedStep, lower_sharded_step
from hocket.sim.sharded_evaluator import ShardedEvaluator
from hocket.sim.step_runs import StepRuns, lower
from tests.naive import sharded as naive
from tests.strategies import examples, steps

NODES = Nodes(gpus=2, intra_bps=32e3, intra_startup_s=0.25)
ALL_REDUCES = MeasuredReduction(workers=3, a_s=0.25, b_s_per_byte=1e-3)
HALVES = dataclasses.replace(
    ALL_REDUCES,
    halves=MeasuredHalves(
        gather=MeasuredLine(a_s=0.5, b_s_per_byte=2e-3),
        scatter=MeasuredLine(a_s=0.75, b_s_per_byte=5e-3),
        exchange=MeasuredLine(a_s=1.0, b_s_per_byte=3e-3),
    ),
)


@st.composite
def plans(draw: st.DrawFn, graph: StepGraph) -> Plan:
    """Any fully sharded plan of ``graph``: every parameter in one unit, any prefetch that may be."""
    first = dict(zip(graph.parameter_names, graph.first_reader().tolist(), strict=True))
    members: dict[int, list[str]] = {}
    for name in graph.parameter_names:
        members.setdefault(draw(st.integers(0, graph.num_parameters - 1)), []).append(name)
    units = sorted(members.values(), key=lambda unit: min(first[name] for name in unit))
    count = len(units)

    def lists(forward: bool) -> tuple[tuple[int, ...], ...] | None:
        if draw(st.booleans()):
            return None
        others = [range(i + 1, count) if forward else range(i) for i in range(count)]
        return tuple(
            tuple(draw(st.lists(st.sampled_from(list(each)), unique=True, max_size=3))) if each else ()
            for each in others
        )

    return Plan(
        policy="any",
        model=graph.model,
        architecture="fsdp",
        units=tuple(map(tuple, units)),
        forward_prefetch=lists(True),
        backward_prefetch=lists(False),
        reshard_after_forward=tuple(draw(st.booleans()) for _ in units),
        compute_order=None,
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[StepGraph, Plan, Network]:
    graph = draw(steps(training=True, max_parameters=6, max_operations=12))
    if draw(st.booleans()):
        graph = dataclasses.replace(graph, device="cpu")
    if draw(st.booleans()):
        graph = clipped(graph)
    workers = draw(st.sampled_from([1, 2, 4]))
    reduction = draw(st.sampled_from([None, ALL_REDUCES, HALVES]))
    network = Network(
        bandwidth_bps=8e3,
        startup_s=draw(st.sampled_from([0.0, 0.5])),
        num_workers=workers,
        nodes=None if reduction is not None else draw(st.sampled_from([None, NODES])),
        reduction=reduction,
        shards=draw(st.sampled_from([None, *[n for n in (1, 2, 4) if workers % n == 0]])),
    )
    return graph, draw(plans(graph)), network


@given(cases())
@examples(200)
def test_every_job_runs_when_torchs_streams_run_it(case: tuple[StepGraph, Plan, Network]) -> None:
    graph, plan, network = case
    lowered = lower(graph, plan, network)
    runs = StepRuns(lowered, 0, False)
    start, end, _, whole_s = runs.window(1, 2)
    schedule = ShardedStep.of(graph, network).schedule(plan)
    samples = runs.draw(1)[0].tolist()
    norm_s = number_s(network) if len(norm_operations(graph)) else None
    groups = ShardGroups.of(network, exchanged=graph.device == "cpu")
    expected = naive.run_step(graph, plan, groups, samples, norm_s)
    assert whole_s == pytest.approx(expected.end_s)
    found = {}
    for shown in lowered.timeline_nodes:
        if shown.lane == "compute":
            for w in range(network.num_workers):
                item = shown.node + w * lowered.num_locals
                found[w, shown.name] = start[0, 0, item], end[0, 0, item]
    assert found.keys() == expected.operations.keys()
    for job, times in expected.operations.items():
        assert found[job] == pytest.approx(times), job
    assert len(schedule.collectives) == len(expected.collectives)
    for k, (each, (kind, unit, *took)) in enumerate(
        zip(schedule.collectives, expected.collectives, strict=True)
    ):
        assert (each.kind, each.unit) == (kind, unit)
        assert [start[0, 0, k], end[0, 0, k]] == pytest.approx(took), each
    assert schedule.most_held() == expected.most_held
    assert sum(held.size_bytes for held in schedule.held) == 0


@given(cases(), st.booleans())
@examples(100)
def test_what_blocks_the_program_is_waited_for_as_it_is_issued(
    case: tuple[StepGraph, Plan, Network], gathers: bool
) -> None:
    graph, plan, network = case
    graph = dataclasses.replace(graph, device="cpu", durations_s=graph.durations_s[:, :1])
    beside = ASYNCHRONOUS_GATHERS if gathers else BLOCKING
    step = ShardedStep.of(graph, network, beside)
    blocks = ["scatter"] if gathers else ["gather", "scatter"]
    norm_s = number_s(network) if len(norm_operations(graph)) else None
    expected = naive.run_step(graph, plan, ShardGroups.of(network), [0] * network.num_workers, norm_s, blocks)
    assert ShardedEvaluator(graph, network, beside).seconds(plan) == pytest.approx(expected.end_s)
    schedule = step.schedule(plan)
    assert [(each.kind, each.unit) for each in schedule.collectives] == [
        (kind, unit) for kind, unit, *_ in expected.collectives
    ]
    assert schedule.most_held() == expected.most_held
    if not gathers:
        computing_s = float(graph.durations_s[graph.phases != Phase.UPDATE].sum())
        updates_s = float(graph.durations_s[graph.phases == Phase.UPDATE].sum()) / step.groups.shards
        sums_s = sum(step.seconds_of(each) for each in schedule.collectives) + (norm_s or 0.0)
        if step.groups.replicas is None:
            assert expected.end_s == pytest.approx(computing_s + updates_s + sums_s)


@given(cases())
@examples(60)
def test_runs_of_operations_take_what_their_operations_take(case: tuple[StepGraph, Plan, Network]) -> None:
    graph, plan, network = case
    one = dataclasses.replace(graph, durations_s=graph.durations_s[:, :1])
    step = ShardedStep.of(one, network)
    whole = [
        StepRuns(lower_sharded_step(step, plan, network.num_workers, apart=apart), 0, False).window(0, 1)[3]
        for apart in (True, False)
    ]
    assert whole[0] == pytest.approx(whole[1])


@given(cases())
@examples(60)
def test_a_step_is_not_shorter_than_its_bound(case: tuple[StepGraph, Plan, Network]) -> None:
    graph, plan, network = case
    row = simulate(graph, plan, network, iterations=3).row
    assert row.bound_s <= row.iteration_s * (1 + 1e-9)
    assert row.architecture == "fsdp"
    assert row.servers == 0
