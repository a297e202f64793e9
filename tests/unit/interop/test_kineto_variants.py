"""Kineto traces of jobs and machines that write the same step in another way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hocket.errors import FormatError
from hocket.graph.io import step_document
from tests.unit.interop.test_kineto import BACKWARD, FORWARD, imported, microseconds, names
from tests.unit.interop.traces import COMMUNICATING, ENGINE, Kineto, ddp, execution_trace, with_function_ids

SIDE = 9


def side_copy(trace: Kineto, k: int, start: float) -> None:
    """In step k, a copy on a side stream, beside the ReLU, which starts at 130."""
    t = 1000.0 * k
    trace.host("aten::copy_", t + 51, t + 58)
    trace.launch(t + 52, t + start, t + start + 15, stream=SIDE)


def raced() -> Kineto:
    """The side stream's copy starts before the ReLU in one step and after it in the next."""
    trace = ddp(steps=2)
    side_copy(trace, 0, 125)
    side_copy(trace, 1, 132)
    return trace


def test_steps_whose_streams_race_are_the_same(tmp_path: Path) -> None:
    graph, notes = imported(tmp_path, raced())
    assert graph.num_samples == 2
    assert not any("left out" in note for note in notes)
    assert list(graph.operation_names[:4]) == [FORWARD[0], "forward/copy_", *FORWARD[1:]]
    assert microseconds(graph, "forward/copy_") == [10, 0]
    assert microseconds(graph, "forward/relu") == [10, 20]
    assert (graph.durations_s.sum(axis=0) * 1e6).tolist() == pytest.approx([555, 800])


def test_ranks_whose_streams_race_are_the_same(tmp_path: Path) -> None:
    ranks = [ddp(0, steps=1), ddp(1, steps=1)]
    side_copy(ranks[0], 0, 125)
    side_copy(ranks[1], 0, 132)
    graph, _ = imported(tmp_path, *ranks)
    assert microseconds(graph, "forward/copy_") == [10, 0]
    assert microseconds(graph, "forward/relu") == [10, 20]


def test_an_execution_trace_of_the_other_step_keeps_durations_apart(tmp_path: Path) -> None:
    trace, of_trace = raced(), execution_trace(function_ids=True)
    with_function_ids(trace, of_trace, since=1000)
    path = tmp_path / "et.json"
    path.write_text(json.dumps(of_trace))
    graph, _ = imported(tmp_path, trace, execution_trace=path)
    # The structure is the second step's.
    assert list(graph.operation_names[:3]) == [*FORWARD[:2], "forward/copy_"]
    assert microseconds(graph, "forward/copy_") == [10, 0]
    assert microseconds(graph, "forward/relu") == [10, 20]


def test_updates_whose_streams_race_keep_their_own_time(tmp_path: Path) -> None:
    trace = ddp(steps=2)
    for k, start in enumerate((701, 706)):
        t = 1000.0 * k
        trace.host("aten::_foreach_norm", t + 455, t + 465)
        trace.launch(t + 456, t + start, t + start + 3, stream=SIDE)
    graph, _ = imported(tmp_path, trace)
    assert graph.num_samples == 2
    assert microseconds(graph, "update/_foreach_norm") == [4, 0]
    assert microseconds(graph, "update/linear/parameter") == [51 * 80 / 128, 55 * 80 / 128]


def test_streams_of_one_call_race_too(tmp_path: Path) -> None:
    """A CUDA graph's kernels have one launch for all."""
    trace = ddp(steps=2)
    for k, starts in enumerate(((135, 136), (136, 135))):
        t = 1000.0 * k
        trace.launch(t + 55, t + starts[0], t + starts[0] + 1, stream=SIDE, name="a")
        ids = {"correlation": trace.events[-1]["args"]["correlation"], "stream": SIDE + 1}
        trace.host("b", t + starts[1], t + starts[1] + 1, SIDE + 1, "kernel", **ids)
    graph, _ = imported(tmp_path, trace)
    assert graph.num_samples == 2
    assert {"forward/a", "forward/b"} < set(graph.operation_names)


def test_what_was_launched_before_the_recording_only_keeps_the_gpu_busy(tmp_path: Path) -> None:
    trace = ddp()
    # The second stream runs nothing else: it counts what comes before all that was launched.
    for stream, start, end in ((7, 5, 25), (SIDE, 1, 3)):
        trace.host("void late<float>(int)", start, end, stream, "kernel", stream=stream, correlation=9000)
    graph, _ = imported(tmp_path, trace)
    assert graph.num_operations == 8
    assert microseconds(graph, FORWARD[0]) == [105, 375]


@pytest.mark.parametrize("stream", [7, SIDE])
def test_a_launch_that_is_missing_later_is_refused(stream: int, tmp_path: Path) -> None:
    trace = ddp()
    trace.host("k", 135, 140, stream, "kernel", stream=stream, correlation=9000)
    with pytest.raises(FormatError, match="its correlation is that of no call of the runtime"):
        imported(tmp_path, trace)


def generic(kernel: str, **comms: Any) -> dict[str, Any]:
    """``ddp`` as RCCL's kernels show it; ``comms``: what ``record_param_comms`` says around them."""
    trace = ddp()
    for event in list(trace.events):
        if event["name"].startswith("nccl"):
            event["name"] = kernel
            for key in ("Collective name", "In msg nelems", "dtype"):
                del event["args"][key]
        elif event["name"] == "c10d::allreduce_" and comms:
            event["name"] = "c10d::anything"
            trace.host("record_param_comms", event["ts"] + 1, event["ts"] + 9, ENGINE, **comms)
    return trace.document()


@pytest.mark.parametrize(
    "kernel", ["ncclDevKernel_Generic_4(ncclDevComm*)", "void rcclGenericKernel<1, false>(ncclDevComm*)"]
)
@pytest.mark.parametrize("comms", [{}, {"Collective name": "allreduce", "dtype": "Float"}])
def test_collectives_are_known_by_who_launched_them(
    kernel: str, comms: dict[str, Any], tmp_path: Path
) -> None:
    graph, notes = imported(tmp_path, generic(kernel, **comms))
    assert graph.parameter_bytes.tolist() == [80, 48]
    assert any("2 all-reduces a step" in note for note in notes)


@pytest.mark.parametrize(
    ("around", "cat", "kind"),
    [
        ("nccl:_all_gather_base", "user_annotation", "all_gather"),
        ("nccl:all_reduce", "user_annotation", "all_reduce"),
        ("c10d::broadcast_", "cpu_op", "broadcast"),
        ("mine::broadcast_", "cpu_op", "collective"),
    ],
)
def test_names_around_a_collective_say_its_kind(around: str, cat: str, kind: str, tmp_path: Path) -> None:
    trace = ddp(steps=1)
    trace.host(around, 51, 58, cat=cat)
    trace.launch(52, 60, 90, stream=COMMUNICATING, name="ncclDevKernel_Generic(ncclDevComm*)")
    graph, _ = imported(tmp_path, trace)
    assert f"forward/{kind}" in graph.operation_names


def unused_found(dtype: str, *, shapes: bool) -> Kineto:
    """``ddp`` with find_unused_parameters: the last hook also reduces a map of what was used."""
    trace = ddp(steps=1, shapes=shapes)
    trace.host("c10d::allreduce_", 446, 449.5, ENGINE)
    trace.launch(
        447, 700, 703, thread=ENGINE, stream=COMMUNICATING, name="ncclDevKernel_AllReduce_Sum(int)",
        **{"Collective name": "allreduce", "In msg nelems": 4, "dtype": dtype},
    )  # fmt: skip
    return trace


@pytest.mark.parametrize("shapes", [True, False])
def test_ddps_map_of_used_parameters_is_no_gradient(shapes: bool, tmp_path: Path) -> None:
    graph, notes = imported(tmp_path, unused_found("Int", shapes=shapes))
    assert graph.parameter_bytes.tolist() == [80, 48]
    assert graph.parameter_names[0] == ("linear/parameter" if shapes else "bucket1")
    reduced = graph.operation_names.index("backward/all_reduce")
    assert microseconds(graph, "backward/all_reduce") == [3]
    # It follows the backward pass, but completes nothing.
    assert names(graph, graph.inputs, reduced) == [BACKWARD[2]]
    assert names(graph, graph.produces, reduced) == []
    assert names(graph, graph.produces, graph.operation_names.index(BACKWARD[2]))
    assert any("2 all-reduces a step" in note for note in notes)
    assert any(
        "1 all_reduce (16 bytes) a step: operations that take as long as recorded" in note for note in notes
    )


def test_two_buckets_of_one_hook_are_both_gradients(tmp_path: Path) -> None:
    _, notes = imported(tmp_path, unused_found("Float", shapes=False))
    assert any("3 all-reduces a step" in note for note in notes)


def test_other_versions_and_makers_spell_it_otherwise(tmp_path: Path) -> None:
    document = ddp().document()
    for event in document["traceEvents"]:
        if event.get("cat") == "cuda_runtime":
            event["cat"] = "xpu_runtime"
        args = event.get("args", {})
        for usual, other in (("Input Dims", "Input dims"), ("stream", "sycl queue")):
            if usual in args:
                args[other] = args.pop(usual)
    graph, _ = imported(tmp_path, document)
    assert step_document(graph) == step_document(imported(tmp_path, ddp()).graph)
