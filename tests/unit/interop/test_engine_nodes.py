"""Traces of PyTorch 1.8 and 1.9, which do not say when the engine runs a node: the step of newer ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hocket.graph import Phase
from tests.unit.interop.kinds import DDP, LAYERS, MIB, Training, buckets, steps, usual
from tests.unit.interop.test_kineto import imported
from tests.unit.interop.traces import NODE
from tests.unit.interop.ways import micro_batches

CATEGORIES = {
    "cpu_op": "Operator",
    "user_annotation": "Operator",
    "kernel": "Kernel",
    "cuda_runtime": "Runtime",
}


def as_of_1_8(document: dict[str, Any], *, numbers: bool = False, types: bool = False) -> dict[str, Any]:
    """The document as PyTorch 1.8 wrote it; ``numbers``: with the sequence numbers of 1.8.1 and 1.9."""
    events = []
    for event in document["traceEvents"]:
        args = dict(event.get("args", {}))
        name = event["name"]
        if name.startswith(NODE):
            bare = name.removeprefix(NODE)
            if bare == "torch::autograd::AccumulateGrad":
                continue
            name = bare.removesuffix("0")
        if not numbers:
            args.pop("Sequence number", None)
            args.pop("Fwd thread id", None)
        if "Input Dims" in args:
            args["Input dims"] = args.pop("Input Dims")
            args["Input type"] = args["Input type"] if types else []
        category = CATEGORIES.get(event.get("cat", ""), event.get("cat", ""))
        events.append({**event, "name": name, "cat": category, "args": args})
    return {"schemaVersion": 1, "traceEvents": events}


@pytest.mark.parametrize("numbers", [True, False])
@pytest.mark.parametrize(
    ("hook", "reductions"), [(DDP, 2), (None, 0), (buckets(0, around="nccl:all_reduce"), 1)]
)
def test_the_step_is_that_of_a_newer_trace(numbers: bool, hook: Any, reductions: int, tmp_path: Path) -> None:
    document = steps(Training(), lambda t: usual(t, hook))
    newer, _ = imported(tmp_path, document)
    graph, notes = imported(tmp_path, as_of_1_8(document, numbers=numbers))
    assert (graph.num_samples, graph.num_parameters, graph.parameter_bytes.sum()) == (3, 4, MIB)
    assert graph.phases.tolist() == newer.phases.tolist()
    assert graph.durations_s.tolist() == newer.durations_s.tolist()
    assert [graph.reads.row(i).tolist() for i in range(graph.num_operations)] == [
        newer.reads.row(i).tolist() for i in range(newer.num_operations)
    ]
    assert any("taken to be float32" in note for note in notes)
    assert any(f"{reductions} all-reduce" in note for note in notes) == bool(reductions)


def test_types_that_are_there_are_taken(tmp_path: Path) -> None:
    _, notes = imported(tmp_path, as_of_1_8(steps(Training(), usual), types=True))
    assert not any("float32" in note for note in notes)


def test_passes_of_unlike_operators_have_no_readers(tmp_path: Path) -> None:
    document = as_of_1_8(steps(Training(), usual, 1))
    extra = next(event for event in document["traceEvents"] if event["name"] == "aten::addmm")
    more = {**extra, "ts": extra["ts"] - 3, "dur": 1}
    document["traceEvents"].append(more)
    graph, notes = imported(tmp_path, document)
    assert any("4 parameters without a forward operation" in note for note in notes)
    assert graph.reads.row(0).tolist() == [0, 1, 2, 3]


def test_passes_that_accumulate_are_told_apart(tmp_path: Path) -> None:
    document = steps(Training(), lambda t: micro_batches(t, mark_each=False))
    graph, notes = imported(tmp_path, as_of_1_8(document))
    assert graph.parameter_bytes.sum() == MIB
    assert any("4 backward passes a step accumulate" in note for note in notes)
    assert int((graph.phases == Phase.BACKWARD).sum()) == 4 * len(LAYERS)
