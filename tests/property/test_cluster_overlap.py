"""One overlapping job alone on a cluster takes as long as the step simulator says of its step and plan."""

from __future__ import annotations

import random

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from hocket import sim
from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.jobs import Job, JobSet
from hocket.cluster.overlap import lower_step
from hocket.cluster.simulator.simulate import simulate
from hocket.graph import Plan, Reduction, StepGraph
from hocket.network import MeasuredReduction, Network
from tests.strategies import examples, operation, parameter, step

STARTUP_S, PER_BYTE_S = 0.5, 1 / 125


def random_step(rng: random.Random) -> StepGraph:
    """Forward operations that read parameters, backward ones that complete gradients, on one processor."""
    names = [f"p{i}" for i in range(rng.randint(1, 5))]
    forward = [
        operation(
            f"f{i}",
            float(rng.randint(1, 5)),
            inputs=[f"f{i - 1}"] if i and rng.random() < 0.7 else [],
            reads=rng.sample(names, rng.randint(0, min(2, len(names)))),
        )
        for i in range(rng.randint(1, 5))
    ]
    count = rng.randint(1, 5)
    makers = {name: rng.randrange(count) for name in names}
    backward = [
        operation(
            f"b{i}",
            float(rng.randint(1, 5)),
            inputs=[f"b{i - 1}" if i else forward[-1].name],
            produces=[name for name in names if makers[name] == i],
            phase="backward",
        )
        for i in range(count)
    ]
    sizes = [125 * rng.randint(0, 6) for _ in names]
    sizes[-1] = sizes[-1] or 125  # a step that sends nothing is refused
    rows = [parameter(name, size) for name, size in zip(names, sizes, strict=True)]
    return step(rows, [*forward, *backward])


def random_plan(rng: random.Random, graph: StepGraph) -> Plan:
    """A drawn order of drawn batches; operations strictly in the order of the program."""
    left = rng.sample(graph.parameter_names, graph.num_parameters)
    reductions = []
    while left:
        size = rng.randint(1, len(left))
        window = rng.choice(["backward", "forward", "forward"])
        reductions.append(Reduction(parameters=tuple(left[:size]), window=window))
        left = left[size:]
    return Plan(
        policy="drawn",
        model=graph.model,
        architecture="allreduce",
        reductions=tuple(reductions),
        compute_order=tuple(graph.operation_names[i] for i in graph.order),
    )


def ends_s(graph: StepGraph, plan: Plan, iterations: int) -> float:
    job = Job(
        **lower_step(graph, plan), id="a", gpus=2, iterations=iterations, arrival_s=0.0, memory_bytes=0.0
    )
    cluster = Cluster(num_servers=2, gpus_per_server=1, startup_s=STARTUP_S, per_byte_s=PER_BYTE_S)
    return float(
        simulate(JobSet(jobs=(job,)), cluster, Scheduling(placement="ff", policy="srsf-1")).finish_s[0]
    )


@examples(150)
@given(seed=st.integers(0, 2**32))
def test_alone_a_job_takes_what_its_step_takes(seed: int) -> None:
    rng = random.Random(seed)
    graph = random_step(rng)
    plan = random_plan(rng, graph)
    network = Network(
        num_workers=2,
        reduction=MeasuredReduction(workers=2, a_s=STARTUP_S, b_s_per_byte=PER_BYTE_S),
    )
    alone = sim.simulate(graph, plan, network, iterations=60)
    period_s = (ends_s(graph, plan, 120) - ends_s(graph, plan, 60)) / 60
    assert period_s == pytest.approx(alone.row.iteration_s, rel=1e-9)
    if period_s < alone.row.compute_s + alone.row.communication_s:
        event("overlaps")
    if period_s > alone.row.compute_s:
        event("waits")
