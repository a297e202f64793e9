"""Jobs whose backward pass compiled autograd runs: what their all-reduces tell, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hocket.errors import FormatError
from hocket.graph import StepGraph
from hocket.interop.kineto.kineto_step import import_kineto
from tests.unit.interop.kinds import SIDE, Training, steps
from tests.unit.interop.traces import MAIN
from tests.unit.interop.ways import compiled_autograd

WITHOUT_IT = r"record with torch\._dynamo\.config\.compiled_autograd = False"


def read(folder: Path, one: Callable[[Training], None]) -> tuple[StepGraph, str]:
    path = folder / "job.json"
    path.write_text(json.dumps(steps(Training(layers=(SIDE, 2 * SIDE, 3 * SIDE)), one)))
    graph, notes = import_kineto([path])
    return graph, "\n".join(notes)


def test_each_all_reduce_is_a_parameter(tmp_path: Path) -> None:
    graph, notes = read(tmp_path, compiled_autograd)
    assert graph.num_samples == 3
    assert sorted(graph.parameter_bytes.tolist()) == [4 * SIDE, 8 * SIDE, 12 * SIDE]
    assert "each all-reduce in it is taken to be one parameter" in notes
    assert "compiled_autograd = False" in notes
    phase = dict(zip(graph.operation_names, graph.phases.tolist(), strict=True))
    assert sum(name.startswith("forward/") for name in phase) == 3
    assert sum(name.startswith("backward/") for name in phase) == 3
    made = {graph.operation_names[i] for i in range(graph.num_operations) if len(graph.produces.row(i))}
    assert made == {name for name in phase if name.startswith("backward/")}
    assert graph.recorded is not None
    assert [len(reduced) for reduced in graph.recorded.reductions] == [1, 1, 1]


def summed(trace: Training) -> None:
    trace.collective("allreduce", SIDE, thread=MAIN, group="tp")


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (
            lambda t: compiled_autograd(t, exchange=False),
            "no gradients: its backward pass is compiled autograd's",
        ),
        (lambda t: compiled_autograd(t, before=summed), "its forward pass holds 1 all_reduce .*group tp"),
        (lambda t: compiled_autograd(t, groups=("dp", "tp")), r"they go between several groups \(dp, tp\)"),
    ],
    ids=["one GPU", "activations", "groups"],
)
def test_what_the_pass_does_not_tell_is_refused(
    one: Callable[[Training], None], message: str, tmp_path: Path
) -> None:
    with pytest.raises(FormatError, match=f"{message}.*{WITHOUT_IT}") as refused:
        read(tmp_path, one)
    assert "\n" not in str(refused.value)
