"""Every option with every policy: it is taken, or refused in one line, and never passed over."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hocket.errors import HocketError, UnknownNameError
from hocket.graph import load_step
from hocket.network import Network
from hocket.planner import POLICIES
from hocket.predictor import Machines, predict
from hocket.sim import simulate
from hocket.tuner import Exchange, make_plan, policy_names

GRAPH = load_step(Path(__file__).parents[2] / "golden" / "branches.step.json")
SERVED = frozenset(policy_names("ps"))
REDUCED = frozenset(policy_names("allreduce"))
SHARDED = frozenset(policy_names("fsdp"))
EVERY = SERVED | REDUCED | SHARDED

# Of a network and of planning: what each option is taken with; all other policies refuse it.
TAKEN: dict[str, tuple[dict[str, Any], dict[str, Any], frozenset[str]]] = {
    "nothing": ({}, {}, EVERY),
    "workers": ({"num_workers": 3}, {}, EVERY),
    "bandwidth and latency": ({"bandwidth_bps": 2000.0, "startup_s": 0.01}, {}, EVERY),
    "seed": ({}, {"seed": 3}, EVERY),
    "parse alpha": ({"parse_s_per_byte": 1e-3}, {}, EVERY - {"exact"}),
    "parse beta": ({"parse_s": 0.01}, {}, EVERY),
    "barrier": ({}, {"exchange": Exchange(barrier="parameter")}, SERVED - {"exact"}),
    "window": ({"window_bytes": 28e6}, {}, SERVED),
    "no window": ({"window_bytes": 0.0}, {}, EVERY),
    "ps": ({}, {"exchange": Exchange(architecture="ps")}, SERVED),
    "allreduce": ({}, {"exchange": Exchange(architecture="allreduce")}, REDUCED),
    "fsdp": ({}, {"exchange": Exchange(architecture="fsdp")}, SHARDED),
    "shards": ({"shards": 1}, {"exchange": Exchange(architecture="fsdp")}, SHARDED),
    "memory": ({}, {"exchange": Exchange(architecture="fsdp", memory_bytes=1e9)}, SHARDED),
    "pattern": ({"pattern": "tree"}, {}, REDUCED | SHARDED),
    "fusion": ({}, {"exchange": Exchange(fusion_bytes=2000)}, frozenset({"horovod"})),
}


def one_line(error: HocketError) -> bool:
    return bool(str(error)) and "\n" not in str(error)


@pytest.mark.parametrize("policy", sorted(EVERY))
def test_an_option_is_taken_or_refused_whatever_the_policy(policy: str) -> None:
    if policy == "exact":
        pytest.importorskip("ortools")
    for option, (of_network, of_planning, takers) in TAKEN.items():
        network = Network(**{"bandwidth_bps": 1000.0, "num_workers": 2, **of_network})
        if policy not in takers:
            with pytest.raises(HocketError) as refused:
                make_plan(GRAPH, network, policy, budget_s=0.01, **of_planning)
            assert one_line(refused.value), option
            continue
        budget_s = 5.0 if policy == "exact" else 0.01
        made = make_plan(GRAPH, network, policy, budget_s=budget_s, **of_planning)
        row = simulate(GRAPH, made.plan, network, iterations=2, random_order=made.drawn_anew).row
        figures = [value for value in msgspec.structs.astuple(row) if isinstance(value, float)]
        assert all(map(math.isfinite, figures)), option
        assert row.iteration_s >= row.bound_s > 0, option


def test_the_policies_are_all_there() -> None:
    assert (
        {*POLICIES, "ddp-best", "fsdp-ibatch", "simplefsdp", "exact", "search"}
        == EVERY
        == set(policy_names())
    )
    assert {"ddp-best", "fsdp-ibatch", "simplefsdp"} == EVERY - set(POLICIES) - SERVED


def test_policies_of_an_architecture_that_there_is_not_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="architecture 'rings' is unknown"):
        policy_names("rings")  # type: ignore[arg-type]


ALL_WAYS = {("async", "ps"), ("sync", "ps"), ("sync", "allreduce")}
# Of machines: what each is taken with, by mode and architecture.
MACHINES: dict[str, tuple[Machines, set[tuple[str, str]]]] = {
    "nothing": (Machines(), ALL_WAYS),
    "speeds": (Machines(speeds=(1.0, 0.5)), ALL_WAYS),
    "workers' links": (Machines(worker_bps=(100.0,)), ALL_WAYS),
    "servers' links": (Machines(server_bps=(500.0,)), {("async", "ps"), ("sync", "ps")}),
    "racks": (Machines(racks=2, oversubscription=4.0), ALL_WAYS),
    "background": (Machines(background=0.5), ALL_WAYS),
    "backup": (Machines(backup=1), {("sync", "ps")}),
    "spread": (Machines(spread=True), {("async", "ps")}),
}


@pytest.mark.parametrize("machines", MACHINES)
@pytest.mark.parametrize("architecture", ["ps", "allreduce"])
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_machines_that_differ_are_predicted_or_refused(mode: str, architecture: str, machines: str) -> None:
    differ, takers = MACHINES[machines]
    request: dict[str, Any] = {
        "mode": mode,
        "architecture": architecture,
        "workers": 2,
        "steps": 4,
        "skip": 1,
    }
    network = Network(bandwidth_bps=1000.0)
    if (mode, architecture) not in takers:
        with pytest.raises(HocketError) as refused:
            predict(GRAPH, network, machines=differ, **request)
        assert one_line(refused.value)
        return
    (row,) = predict(GRAPH, network, machines=differ, **request)
    (alike,) = predict(GRAPH, network, **request)
    assert math.isfinite(row.throughput)
    # Each of them changes something: none is taken and passed over.
    assert (machines == "nothing") == (row.throughput == alike.throughput)


@pytest.mark.parametrize("policy", sorted(EVERY - {"exact", "search"}))
def test_a_prediction_is_made_whatever_the_policy(policy: str) -> None:
    for mode in ("async", "sync") if policy in SERVED else ("sync",):
        (row,) = predict(
            GRAPH, Network(bandwidth_bps=1000.0), policy=policy, mode=mode, workers=2, steps=4, skip=1
        )  # type: ignore[arg-type]
        assert math.isfinite(row.throughput)
        assert row.throughput > 0
