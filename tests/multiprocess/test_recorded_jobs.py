"""Traces of real jobs of two processes, with kernels for what processors did: what their import finds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hocket.graph import StepGraph
from hocket.graph.recorded_run import RecordedUnits
from hocket.interop.kineto.kineto_step import import_kineto
from tests.multiprocess.launch import run
from tests.multiprocess.recorded_cases import ROWS, SIDE
from tests.unit.interop.on_gpu import on_gpu

CASES = "tests.multiprocess.recorded_cases"
ROOT = 2 * ROWS * SIDE + ROWS  # elements of the embedding and the head
BLOCK = 2 * 4 * SIDE * SIDE + 4 * SIDE + SIDE
AHEAD = ((), (2, 3), (3, 4), (4,), ()), ((), (), (1,), (2, 1), (3, 2))


def imported(folder: Path) -> StepGraph:
    paths = sorted(folder.glob("job.rank*.json"))
    for path in paths:
        path.write_text(json.dumps(on_gpu(json.loads(path.read_text()))))
    return import_kineto(paths)[0]


@pytest.mark.slow
def test_units_are_those_of_fully_shard(tmp_path: Path) -> None:
    kinds = ["plain", "kept", "listed", "bf16"]
    for kind in kinds:
        (tmp_path / kind).mkdir()
    run(f"{CASES}:sharded", kinds=kinds, folder=str(tmp_path))
    for kind in kinds:
        check_units(imported(tmp_path / kind), kind)


def check_units(graph: StepGraph, kind: str) -> None:
    assert graph.recorded is not None
    found = graph.recorded.sharded
    assert isinstance(found, RecordedUnits)
    size_of = dict(zip(graph.parameter_names, graph.parameter_bytes.tolist(), strict=True))
    item = 2 if kind == "bf16" else 4
    assert [sum(size_of[name] for name in unit) for unit in found.units] == [
        item * elements for elements in (ROOT, BLOCK, BLOCK, BLOCK, BLOCK)
    ]
    assert [len(unit) for unit in found.units] == [3, 4, 4, 4, 4]
    assert found.reshard_after_forward == (False, *([kind != "kept"] * 4))
    lists = AHEAD if kind == "listed" else (None, None)
    assert (found.forward_prefetch, found.backward_prefetch) == lists
    assert found.scattered_per_gathered == 4 / item
    assert graph.produced.all()


@pytest.mark.slow
def test_all_reduces_of_a_compiled_backward_pass_are_its_gradients(tmp_path: Path) -> None:
    run(f"{CASES}:compiled", folder=str(tmp_path))
    graph = imported(tmp_path)
    assert sorted(graph.parameter_bytes.tolist()) == [4 * SIDE, 4 * SIDE, 4 * SIDE**2, 4 * SIDE**2]
    assert graph.recorded is not None
    assert [len(reduced) for reduced in graph.recorded.reductions] == [1] * 4
