"""The baselines' orders, on a network with two-parameter layers, a skip and a parameter that nobody reads."""

from __future__ import annotations

import pytest

from hocket.errors import UnknownNameError
from hocket.network import Network
from hocket.planner import POLICIES, plan, policies_of
from tests.strategies import operation, parameter, step

GRAPH = step(
    [parameter(name, 8) for name in ("w2", "b2", "w1", "unread", "b1")],
    [
        operation("layer 1", reads=["w1", "b1"]),
        operation("layer 2", reads=["w2", "b2"], inputs=["layer 1"]),
        operation("layer 2 again", reads=["w1"], inputs=["layer 2"]),
        operation("back 2", inputs=["layer 2 again"], produces=["b2"], phase="backward"),
        operation("back 2w", inputs=["back 2"], produces=["w2"], phase="backward"),
        operation("back 1", inputs=["back 2w"], produces=["w1", "b1"], phase="backward"),
    ],
)


def pulls(policy: str, seed: int = 0) -> list[tuple[str, ...]]:
    return [pull.parameters for pull in plan(GRAPH, Network(), policy, seed=seed).pulls]


def test_each_baseline_pulls_in_its_order() -> None:
    assert pulls("fifo") == [("w2",), ("b2",), ("w1",), ("unread",), ("b1",)]
    assert pulls("reverse") == pulls("fifo")[::-1]
    assert pulls("layerwise") == [("w1", "b1"), ("w2", "b2"), ("unread",)]
    assert sorted(pulls("random")) == sorted(pulls("fifo"))
    assert pulls("random", 1) == pulls("random", 1)
    assert len({tuple(pulls("random", seed)) for seed in range(20)}) > 10


def test_gradients_leave_as_they_appear_and_layers_as_their_last_one_does() -> None:
    assert [p.parameters for p in plan(GRAPH, Network(), "tac").pushes] == [
        ("b2",),
        ("w2",),
        ("w1",),
        ("b1",),
    ]
    assert [p.parameters for p in plan(GRAPH, Network(), "layerwise").pushes] == [("b2", "w2"), ("w1", "b1")]


def test_an_unknown_policy_lists_the_known_ones() -> None:
    with pytest.raises(
        UnknownNameError, match=r"policy 'tak' is unknown; did you mean 'tac'\? choose one of: fifo"
    ):
        plan(GRAPH, Network(), "tak")
    assert policies_of("ps")[:4] == ["fifo", "random", "reverse", "default"]
    assert policies_of("allreduce")[:5] == ["wfbp", "ddp", "horovod", "caramel", "bytescheduler"]
    assert policies_of("fsdp") == ["fsdp", "fsdp-zero2", "fsdp-tic", "fsdp-tac"]
    assert len(POLICIES) == sum(len(policies_of(each)) for each in ("ps", "allreduce", "fsdp"))
