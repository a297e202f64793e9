"""Fully sharded plans: what reads back, and what contradicts itself or the step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hocket.errors import FormatError
from hocket.graph import Plan, check_plan, load_plan, save_plan
from tests.strategies import operation, parameter, step

GRAPH = step(
    [parameter("a", 8), parameter("b", 8), parameter("c", 8)],
    [
        operation("one", reads=["a"]),
        operation("two", reads=["b"], inputs=["one"]),
        operation("three", reads=["c"], inputs=["two"]),
        operation("four", inputs=["three"], produces=["c", "b"], phase="backward"),
        operation("five", inputs=["four"], produces=["a"], phase="backward"),
    ],
)
PLAN = Plan(
    policy="fsdp",
    model="toy",
    architecture="fsdp",
    units=(("a",), ("b",), ("c",)),
    forward_prefetch=((1, 2), (2,), ()),
    backward_prefetch=None,
    reshard_after_forward=(False, True, True),
    compute_order=None,
)


def test_a_fully_sharded_plan_reads_back_equal(tmp_path: Path) -> None:
    save_plan(PLAN, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == PLAN
    written = json.loads((tmp_path / "plan.json").read_text())
    assert written["forward_prefetch"] == [[1, 2], [2], []]
    assert written["backward_prefetch"] is None
    assert not {"pulls", "pushes", "reductions", "barrier"} & set(written)
    check_plan(PLAN, GRAPH)


def test_other_plans_are_written_without_units(tmp_path: Path) -> None:
    save_plan(
        Plan(policy="ddp", model="toy", architecture="allreduce", compute_order=None), tmp_path / "p.json"
    )
    assert not {"units", "forward_prefetch", "reshard_after_forward"} & set(
        json.loads((tmp_path / "p.json").read_text())
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"units": []}, "units: is empty; list each unit's parameters"),
        ({"units": [["a"], [], ["c"]]}, "units[1]: expected `array` of length >= 1"),
        (
            {"units": [["a"], ["b", "a"], ["c"]]},
            "units[1]: 'a' is a duplicate; each parameter is in one unit",
        ),
        (
            {"reshard_after_forward": [True]},
            "reshard_after_forward: has 1 entries for 3 units; give one for each",
        ),
        (
            {"forward_prefetch": [[], []]},
            "forward_prefetch: has 2 entries for 3 units; give one for each unit",
        ),
        ({"forward_prefetch": [[3], [], []]}, "forward_prefetch[0][0]: 3 is no unit; there are 0 to 2"),
        (
            {"forward_prefetch": [[], [1], []]},
            "forward_prefetch[1][0]: 1 is not behind unit 1; prefetch units",
        ),
        ({"forward_prefetch": [[1, 1], [], []]}, "forward_prefetch[0]: [1, 1] names a unit twice"),
        (
            {"backward_prefetch": [[], [], [2]]},
            "backward_prefetch[2][0]: 2 is not before unit 2; the backward pass",
        ),
        ({"backward_prefetch": [[], [], [-1]]}, "backward_prefetch[2][0]: expected `int` >= 0"),
        ({"compute_order": ["one"]}, "compute_order: is not for architecture 'fsdp'"),
        ({"reductions": [{"parameters": ["a"], "chunks": 1}]}, "reductions: is not for architecture 'fsdp'"),
        ({"barrier": "parameter"}, "barrier: 'parameter' is for parameter servers; leave it out"),
        ({"architecture": "ps"}, "units: is for architecture 'fsdp', and this plan's is 'ps'; leave it out"),
    ],
)
def test_a_breach_in_a_file_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    document = {"format": "hocket.plan/1", **msgspec.to_builtins(PLAN), **change}
    (tmp_path / "plan.json").write_text(json.dumps(document))
    with pytest.raises(FormatError) as caught:
        load_plan(tmp_path / "plan.json")
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "plan.json"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"units": (("a",), ("b",), ("d",))}, "units[2].parameters: 'd' names no parameter of the step"),
        ({"units": (("a",), ("c",), ("b",))}, "units[2]: is read before unit 1; list units in"),
        (
            {
                "units": (("a",), ("b",)),
                "forward_prefetch": None,
                "reshard_after_forward": (True, True),
            },
            "units: 'c' is missing (1 of 3 are); cover each parameter once",
        ),
        (
            {"model": "other", "units": (("a",), ("b",), ("d",))},
            "the plan is of model 'other', the step of 'toy': make one of this step: hocket plan STEP",
        ),
    ],
)
def test_units_that_do_not_fit_the_step_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError) as caught:
        check_plan(msgspec.structs.replace(PLAN, **change), GRAPH, "plan.json")
    assert message in str(caught.value)
