"""Plans: what reads back, and what cannot run a step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from hocket.errors import FormatError
from hocket.graph import Plan, Predicted, Pull, Push, Reduction, check_plan, load_plan, save_plan
from hocket.network import Network
from hocket.sim import simulate
from tests.strategies import operation, parameter, step

HEAD = (
    '{"format": "hocket.plan/1", "policy": "x", "model": "m", "architecture": "ps", "compute_order": null, '
)
GRAPH = step(
    [parameter("a", 8), parameter("b", 8)],
    [
        operation("one", reads=["a"]),
        operation("two", reads=["b"], inputs=["one"]),
        operation("three", inputs=["two"], produces=["b"], phase="backward"),
        operation("four", inputs=["three"], produces=["a"], phase="backward"),
    ],
)
PLAN = Plan(
    policy="tac",
    model="toy",
    architecture="ps",
    pulls=(Pull(parameters=("a", "b"), priority=0),),
    pushes=(Push(parameters=("b",)), Push(parameters=("a",))),
    compute_order=("one", "two", "three", "four"),
    predicted=Predicted(
        iteration_s=1.0, bound_s=1.0, compute_s=0.5, communication_s=0.5, overlap=0.0, utilization=0.5
    ),
)


def test_a_plan_reads_back_equal(tmp_path: Path) -> None:
    reduced = Plan(
        policy="ddp",
        model="toy",
        architecture="allreduce",
        reductions=(Reduction(parameters=("b", "a"), chunks=4, window="forward"),),
        compute_order=None,
    )
    for plan in (PLAN, reduced):
        save_plan(plan, tmp_path / "plan.json")
        assert load_plan(tmp_path / "plan.json") == plan
        check_plan(plan, GRAPH)
    assert "pulls" not in (tmp_path / "plan.json").read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pulls": (Pull(parameters=("a",), priority=0),)}, "pulls: 'b' is missing (1 of 2 are)"),
        (
            {"pulls": (Pull(parameters=("a", "b", "a"), priority=0),)},
            "pulls[0].parameters: 'a' is a duplicate",
        ),
        ({"pulls": (Pull(parameters=("a", "b", "c"), priority=0),)}, "'c' names no parameter of the step"),
        (
            {"pulls": (Pull(parameters=("a",), priority=1), Pull(parameters=("b",), priority=0))},
            "pulls[1].priority: 0 stands after 1",
        ),
        ({"pushes": ()}, "pushes: 'a' is missing (2 of 2 are)"),
        ({"compute_order": ("one", "two", "three")}, "compute_order: 'four' is missing"),
        (
            {"compute_order": ("one", "two", "three", "four", "five")},
            "compute_order[4]: 'five' names no operation",
        ),
        ({"compute_order": ("one", "one", "two", "three", "four")}, "compute_order[1]: 'one' is a duplicate"),
        ({"compute_order": ("two", "one", "three", "four")}, "'two' stands before its input 'one'"),
        (
            {"pulls": (Pull(parameters=("a", "b"), priority=0, chunks=2),)},
            "pulls[0].chunks: 2 slices of a batch",
        ),
        (
            {
                "pulls": (
                    Pull(parameters=("a",), priority=0, chunks=20_000),
                    Pull(parameters=("b",), priority=0),
                )
            },
            "pulls[0].chunks: 20000 slices of 'a'; it takes at most",
        ),
        (
            {"pushes": (Push(parameters=("a",), chunks=2), Push(parameters=("b",)))},
            "pushes[0].chunks: 'a' is pushed in 2 and pulled in 1 slices",
        ),
        (
            {
                "pulls": tuple(Pull(parameters=(name,), priority=0, chunks=2) for name in "ab"),
                "pushes": (Push(parameters=("b", "a"), chunks=2),),
            },
            "pushes[0].chunks: 2 slices of a batch",
        ),
        (
            {"reductions": (Reduction(parameters=("a", "nope")),)},
            "reductions[0].parameters: 'nope' names no parameter of the step",
        ),
        (
            {
                "architecture": "allreduce",
                "reductions": (Reduction(parameters=("a", "b")),),
                "pulls": (Pull(parameters=("nope",), priority=0),),
            },
            "pulls[0].parameters: 'nope' names no parameter of the step",
        ),
        (
            {
                "architecture": "allreduce",
                "barrier": "parameter",
                "reductions": (Reduction(parameters=("a", "b")),),
            },
            "barrier: 'parameter' is for parameter servers",
        ),
        (
            {
                "architecture": "allreduce",
                "reductions": (Reduction(parameters=("a", "b"), chunks=20_000),),
            },
            "reductions[0].chunks: 20000 is more than 10000",
        ),
    ],
)
def test_a_plan_that_cannot_run_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError) as caught:
        check_plan(msgspec.structs.replace(PLAN, **change), GRAPH, "plan.json")
    assert str(caught.value).startswith("plan.json: ")
    assert message in str(caught.value)


def test_what_the_other_architecture_would_send_changes_nothing() -> None:
    network = Network(bandwidth_bps=1e9, num_workers=2)
    sliced = tuple(Pull(parameters=(name,), priority=0, chunks=2) for name in "ab")
    reductions = (Reduction(parameters=("a", "b")),)
    for own in (PLAN, msgspec.structs.replace(PLAN, architecture="allreduce", reductions=reductions)):
        if own.architecture == "ps":
            slices = tuple(Reduction(parameters=("a",), slice=(k, k + 1, 2)) for k in range(2))
            plain, stray = own, msgspec.structs.replace(own, reductions=slices)
        else:
            plain = msgspec.structs.replace(own, pulls=(), pushes=())
            stray = msgspec.structs.replace(own, pulls=sliced)
        check_plan(stray, GRAPH)
        expected, found = (simulate(GRAPH, plan, network).row for plan in (plain, stray))
        assert msgspec.structs.replace(found, wall_s=expected.wall_s) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format": "hocket.plan/1", "policy": "x", "model": "m", "compute_order": null}', "`architecture`"),
        ('{"format": "hocket.step/1"}', "'hocket.step/1' is not 'hocket.plan/1'"),
        (
            HEAD + '"pulls": [{"parameters": [], "priority": 0}]}',
            "pulls[0].parameters: expected `array` of length >= 1",
        ),
        (
            HEAD + '"pulls": [{"parameters": ["a"], "priority": -1}]}',
            "pulls[0].priority: expected `int` >= 0",
        ),
    ],
)
def test_a_breach_in_a_plan_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(FormatError) as caught:
        load_plan(tmp_path / "plan.json")
    assert message in str(caught.value)
