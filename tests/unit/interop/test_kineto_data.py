"""Every real trace beside this repository: what becomes of it, against a count of the file's own events."""

from __future__ import annotations

import gzip
import json
import math
import re
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
    "kineto_resnet50_torch18": (6, 161, 102_228_128),
    "param_linear_kineto": "42 gradients of a step are complete, but their sizes are not in the trace",
    "param_resnet_kineto": "62 gradients of a step are complete, but their sizes are not in the trace",
    "param_linear_et": "is a PyTorch ExecutionTrace; give it with --execution-trace",
    "param_resnet_et": "is a PyTorch ExecutionTrace; give it with --execution-trace",
    "param_resnet_2gpu_et": "is a PyTorch ExecutionTrace; give it with --execution-trace",
}

ITEM_BYTES = {"Float": 4, "BFloat16": 2}


def counted(path: Path) -> tuple[int, int, int]:
    """Steps with an optimizer's, a mark's gradients, and their bytes as they travel, by the events alone.

    Bytes are those of all-reduces with messages, where there are any, and else of the gradients' shapes.
    """
    every = json.loads(_text(path), strict=False)
    events = [e for e in every["traceEvents"] if e.get("ph") == "X" and e.get("cat") != "gpu_user_annotation"]
    marks = {e["name"]: e for e in events if e["name"].startswith("ProfilerStep#")}
    within = sorted((mark["ts"], mark["ts"] + mark["dur"], name) for name, mark in marks.items())
    gradients: dict[str, list[list[int]]] = defaultdict(list)
    for event in events:
        if event["name"] == "torch::autograd::AccumulateGrad":
            inside = [name for begin, end, name in within if begin <= event["ts"] < end]
            dims = event["args"].get("Input Dims") or event["args"].get("Input dims") or [[]]
            gradients[(inside or [""])[0]].append(dims[0])
    updates = [e["ts"] for e in events if e["name"].startswith("Optimizer.step#")]
    steps = sum(any(begin <= at < end for at in updates) for begin, end, _ in within)
    sent = [
        ITEM_BYTES[e["args"]["dtype"]] * e["args"]["In msg nelems"]
        for e in events
        if e.get("cat") == "kernel"
        and e["args"].get("Collective name") == "allreduce"
        and e["args"].get("Process Group Description") != "tp"
    ]
    counts = {len(own) for name, own in gradients.items() if name}
    assert len(counts) == 1
    shaped = 4 * sum(math.prod(dims) for dims in next(iter(gradients.values())))
    return steps, counts.pop(), sum(sent) // steps if sent else shaped


def _text(path: Path) -> str:
    """The file's text; what is wrong in it stands where nothing is counted."""
    text = gzip.decompress(path.read_bytes()).decode(errors="replace")
    return re.sub(r":\s*(-?(inf|Infinity|nan|NaN)\b|(?=[,}]))", ": 0", text)


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
    if name != "kineto_resnet50_torch18":  # of one GPU
        assert graph.recorded is not None
        assert graph.recorded.network is not None


def test_no_real_trace_is_left_out() -> None:
    found = {path.name.removesuffix(".json.gz") for path in DATA.glob("*.json.gz")}
    assert {name for name in found if name.startswith(("kineto", "param"))} == set(REAL)
