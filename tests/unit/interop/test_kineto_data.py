"""Every real trace beside this repository: what becomes of it, against a count of the file's own events."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path

import pytest

from hocket.errors import FormatError
from hocket.interop.kineto.kineto_step import import_kineto

DATA = Path(__file__).parents[4] / "shared" / "data"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the real traces are not here")

# Steps, parameters and bytes; or why it is refused.
REAL: dict[str, tuple[int, int, int] | str] = {
    "kineto_resnet50_ddp_a100_rank0of2": (3, 161, 102_228_128),
    "kineto_resnet_mi300_rank_of8": (3, 62, 23_379_024),
    "kineto_resnet50_torch18": "no backward pass by autograd's nodes",
    "param_linear_kineto": "42 gradients of a step are complete, but their sizes are not in the trace",
    "param_resnet_kineto": "62 gradients of a step are complete, but their sizes are not in the trace",
    "param_linear_et": "is a PyTorch ExecutionTrace; give it with --execution-trace",
    "param_resnet_et": "is a PyTorch ExecutionTrace; give it with --execution-trace",
    "param_resnet_2gpu_et": "is a PyTorch ExecutionTrace; give it with --execution-trace",
}

ITEM_BYTES = {"Float": 4, "BFloat16": 2}


def counted(path: Path) -> tuple[int, int, int]:
    """Marked steps, gradients that one completes, and the bytes of its all-reduces with messages."""
    events = [e for e in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if e.get("ph") == "X"]
    marked = [e for e in events if e.get("cat") == "user_annotation"]
    marks = {e["name"]: e for e in marked if e["name"].startswith("ProfilerStep#")}
    gradients: dict[str, int] = defaultdict(int)
    for event in events:
        if event["name"] == "torch::autograd::AccumulateGrad":
            at = event["ts"]
            inside = [name for name, mark in marks.items() if mark["ts"] <= at < mark["ts"] + mark["dur"]]
            gradients[inside[0]] += 1
    reduced = [
        e for e in events if e.get("cat") == "kernel" and e["args"].get("Collective name") == "allreduce"
    ]
    sent = sum(ITEM_BYTES[e["args"]["dtype"]] * e["args"]["In msg nelems"] for e in reduced)
    assert len(set(gradients.values())) == 1
    return len(marks), next(iter(gradients.values())), sent // len(marks)


@pytest.mark.parametrize("name", REAL)
def test_a_real_trace_is_what_its_events_say(name: str) -> None:
    path, expected = DATA / f"{name}.json.gz", REAL[name]
    if isinstance(expected, str):
        with pytest.raises(FormatError, match=expected) as refused:
            import_kineto([path])
        assert "\n" not in str(refused.value)
        return
    assert counted(path) == expected
    graph, _ = import_kineto([path])
    assert (graph.num_samples, graph.num_parameters, graph.parameter_bytes.sum()) == expected
    assert graph.recorded is not None
    assert graph.recorded.network is not None


def test_no_real_trace_is_left_out() -> None:
    found = {path.name.removesuffix(".json.gz") for path in DATA.glob("*.json.gz")}
    assert {name for name in found if name.startswith(("kineto", "param"))} == set(REAL)
