"""Plans for AllReduce with reductions in halves: what files say, and who refuses them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hocket.cluster.overlap import lower_step
from hocket.errors import FormatError
from hocket.graph import Plan, Reduction, load_plan, save_plan
from hocket.interop.chakra.chakra_export import chakra_bytes
from hocket.tuner.distribute import resolve_plan
from tests.strategies import operation, parameter, step

GRAPH = step(
    [parameter("a", 300)],
    [
        operation("read a", 1.0, reads=["a"]),
        operation("make a", 2.0, inputs=["read a"], produces=["a"], phase="backward"),
    ],
)
HALVED = Plan(
    policy="drawn",
    model="toy",
    architecture="allreduce",
    reductions=(Reduction(parameters=("a",), window="forward", halves=True),),
    compute_order=None,
)


def test_a_file_says_halves_where_there_are_some(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    save_plan(HALVED, path)
    assert load_plan(path) == HALVED
    document = json.loads(path.read_text())
    assert document["reductions"][0]["halves"] is True
    del document["reductions"][0]["halves"]
    path.write_text(json.dumps(document))
    whole = load_plan(path)
    assert not whole.reductions[0].halves
    save_plan(whole, path)
    assert "halves" not in path.read_text()
    assert "1 in halves" in repr(HALVED)


def test_halves_are_true_or_false(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    save_plan(HALVED, path)
    document = json.loads(path.read_text())
    document["reductions"][0]["halves"] = "yes"
    path.write_text(json.dumps(document))
    with pytest.raises(FormatError, match=r"reductions.*halves.*bool"):
        load_plan(path)


def test_who_reduces_whole_gradients_refuses_halves(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    save_plan(HALVED, path)
    told = r"reductions\[0\]\.halves: true is for simulation and training, and .*; plan without --clip"
    assert resolve_plan(str(path))[0] == HALVED  # training does not
    for refuse in (
        lambda: lower_step(GRAPH, HALVED),
        lambda: chakra_bytes(GRAPH, HALVED),
    ):
        with pytest.raises(FormatError, match=told):
            refuse()
