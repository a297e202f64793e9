"""Kineto traces as steps: small ones with known answers, and real ones counted against the file."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from hocket.errors import FormatError
from hocket.graph import Csr, Phase, StepGraph
from hocket.graph.update_operations import is_update
from hocket.interop.imported import ImportedStep
from hocket.interop.kineto.execution_trace import _written_arguments
from hocket.interop.kineto.kineto_step import import_kineto
from tests.unit.interop.traces import ACCUMULATE, ENGINE, Kineto, ddp, execution_trace, with_function_ids

DATA = Path(__file__).parents[4] / "shared" / "data"
real = pytest.mark.skipif(not DATA.is_dir(), reason="the real traces are not here")
DDP = "kineto_resnet50_ddp_a100_rank0of2.json.gz"

FORWARD = ["forward/linear/addmm", "forward/relu", "forward/linear/addmm.2"]
BACKWARD = ["backward/AddmmBackward0", "backward/ReluBackward0", "backward/AddmmBackward0.2"]


def imported(folder: Path, *traces: Kineto | dict[str, Any], **options: Any) -> ImportedStep:
    paths = []
    for i, trace in enumerate(traces):
        paths.append(folder / f"job.rank{i}.json")
        paths[-1].write_text(json.dumps(trace if isinstance(trace, dict) else trace.document()))
    return import_kineto(paths, **options)


def names(graph: StepGraph, rows: Csr, i: int) -> list[str]:
    of = graph.operation_names if rows is graph.inputs else graph.parameter_names
    return [of[j] for j in rows.row(i).tolist()]


def microseconds(graph: StepGraph, name: str) -> list[float]:
    return pytest.approx((graph.durations_s[graph.operation_names.index(name)] * 1e6).tolist())  # type: ignore[return-value]


def test_a_job_with_recorded_shapes(tmp_path: Path) -> None:
    graph, notes = imported(tmp_path, ddp())
    assert (graph.model, graph.device, graph.batch_size, graph.num_samples) == ("job", "GPU 3000", 8, 2)
    assert graph.parameter_names == ("linear/parameter", "linear.2/parameter")
    assert graph.parameter_shapes == ((5, 4), (3, 4))
    assert graph.parameter_bytes.tolist() == [80, 48]
    updates = ["update/linear/parameter", "update/linear.2/parameter"]
    assert list(graph.operation_names) == [*FORWARD, *BACKWARD, *updates]
    assert [Phase(p).name for p in graph.phases] == ["FORWARD"] * 3 + ["BACKWARD"] * 3 + ["UPDATE"] * 2
    # The GPU waits for the host before the first backward operation, and from the step's begin for the first.
    assert microseconds(graph, FORWARD[0]) == [130, 375]
    assert microseconds(graph, BACKWARD[0]) == [150, 150]
    # The optimizer's 50 us and the 5 before them, by bytes; not the 200 it waits for the all-reduce.
    assert microseconds(graph, updates[0]) == [55 * 80 / 128] * 2
    assert [names(graph, graph.inputs, i) for i in range(8)] == [
        [], *[[name] for name in [*FORWARD, *BACKWARD][:5]], [BACKWARD[2]], [BACKWARD[0]],
    ]  # fmt: skip
    assert names(graph, graph.reads, 0) == ["linear/parameter"]
    assert names(graph, graph.reads, 2) == ["linear.2/parameter"]
    assert names(graph, graph.produces, 3) == ["linear.2/parameter"]
    assert names(graph, graph.produces, 5) == ["linear/parameter"]
    assert is_update(graph).tolist() == [False] * 6 + [True] * 2
    assert any("2 all-reduces a step" in note and "idles 0.2 ms;" in note for note in notes)


def test_without_shapes_an_all_reduce_is_a_parameter(tmp_path: Path) -> None:
    graph, notes = imported(tmp_path, ddp(shapes=False), batch_size=32)
    assert graph.parameter_names == ("bucket1", "bucket0")
    assert graph.parameter_bytes.tolist() == [80, 48]
    assert names(graph, graph.reads, 0) == ["bucket1"]
    assert names(graph, graph.produces, 3) == ["bucket0"]
    assert graph.batch_size == 32
    assert any("each all-reduce is one parameter" in note for note in notes)


@pytest.mark.parametrize("said", [64, "64", " 64 "])
def test_the_batch_size_that_a_trace_records_is_taken(tmp_path: Path, said: Any) -> None:
    document = {**ddp().document(), "batch_size": said}
    graph, notes = imported(tmp_path, document)
    assert graph.batch_size == 64
    assert "batch size 64: as the trace says" in notes
    graph, notes = imported(tmp_path, document, batch_size=32)
    assert graph.batch_size == 32
    assert not any("batch size" in note for note in notes)


@pytest.mark.parametrize("said", [0, -1, True, 1.5, "many", "²", [8], "9" * 5000])
def test_a_batch_size_that_is_none_is_refused(tmp_path: Path, said: Any) -> None:
    with pytest.raises(FormatError, match=r"batch_size: .* is not a number of examples; give --batch-size"):
        imported(tmp_path, {**ddp().document(), "batch_size": said})


def test_a_guessed_batch_size_is_called_one(tmp_path: Path) -> None:
    graph, notes = imported(tmp_path, ddp())
    assert graph.batch_size == 8
    assert any("batch size 8 is a guess, the first extent of what aten::linear got" in note for note in notes)


def test_an_embeddings_table_is_no_batch(tmp_path: Path) -> None:
    document = ddp().document()
    table = {"Input Dims": [[50257, 4], [16, 128]], "Input type": ["float", "long int"]}
    for event in document["traceEvents"]:
        if event["name"] == "aten::linear" and "Input Dims" in event["args"]:
            event["name"] = "aten::embedding"
            event["args"].update(table)
    graph, notes = imported(tmp_path, document)
    assert graph.batch_size == 16
    assert any("batch size 16 is a guess" in note and "aten::embedding" in note for note in notes)


def test_gradients_that_a_hook_sends_as_another_type_have_it(tmp_path: Path) -> None:
    graph, notes = imported(tmp_path, ddp(dtype="Half"))
    assert graph.parameter_names == ("linear/parameter", "linear.2/parameter")
    assert graph.parameter_shapes == ((5, 4), (3, 4))
    assert graph.parameter_bytes.tolist() == [40, 24]
    assert set(graph.parameter_dtypes) == {"float16"}
    assert any("128 bytes and travel in 64 bytes (50%), as float16" in note for note in notes)


def test_all_reduces_of_unknown_size_are_refused_unless_shapes_say_it(tmp_path: Path) -> None:
    for shapes in (True, False):
        document = ddp(shapes=shapes).document()
        for event in document["traceEvents"]:
            event.get("args", {}).pop("In msg nelems", None)
        if shapes:
            assert imported(tmp_path, document).graph.parameter_bytes.tolist() == [80, 48]
        else:
            with pytest.raises(FormatError, match="how large its all-reduces are is not in it"):
                imported(tmp_path, document)


def test_ddp_says_sizes_as_it_copies_gradients_back(tmp_path: Path) -> None:
    trace = ddp(shapes=False, steps=1)
    for k, size in enumerate((48, 80)):
        copy = "torch.distributed.ddp.reducer::copy_bucket_to_grad"
        trace.host(copy, 452 + 8 * k, 458 + 8 * k, ENGINE)
        trace.launch(453 + 8 * k, 701 + 2 * k, 702 + 2 * k, thread=ENGINE, bytes=size, name="Memcpy DtoD")
    graph, notes = imported(tmp_path, trace)
    assert dict(zip(graph.parameter_names, graph.parameter_bytes.tolist(), strict=True)) == {
        "linear/parameter": 80,
        "linear.2/parameter": 48,
    }
    copies = [i for i, name in enumerate(graph.operation_names) if "copy_bucket_to_grad" in name]
    assert [graph.phases[i] for i in copies] == [Phase.UPDATE] * 2
    assert [names(graph, graph.reads, i) for i in copies] == [["linear/parameter"], ["linear.2/parameter"]]
    assert any("copies of reduced gradients" in note for note in notes)
    # The first copy waits until 700, the second follows; together with the optimizer's they end at 755.
    assert graph.durations_s.sum() * 1e6 == pytest.approx(755 - 200)


def test_one_gpu_without_shapes_says_what_is_missing(tmp_path: Path) -> None:
    document = ddp(shapes=False).document()
    document["traceEvents"] = [
        e for e in document["traceEvents"] if not e["name"].startswith(("nccl", "c10d"))
    ]
    missing = "no parameters: 2 gradients of a step are complete, but their sizes are not in the trace"
    with pytest.raises(FormatError, match=f"{missing}; .*--execution-trace; or give --allow-no-gradients"):
        imported(tmp_path, document)
    graph, notes = imported(tmp_path, document, allow_no_gradients=True)
    assert graph.num_parameters == 0
    assert graph.operation_names[-1] == "update/_foreach_add_"
    assert any(missing in note for note in notes)


def test_steps_end_with_the_optimizer_where_nobody_marked_them(tmp_path: Path) -> None:
    document = ddp(steps=3).document()
    document["traceEvents"] = [e for e in document["traceEvents"] if not e["name"].startswith("Prof")]
    graph, _ = imported(tmp_path, document)
    assert graph.num_samples == 3
    assert graph.num_operations == 8


def test_steps_that_do_something_else_are_left_out(tmp_path: Path) -> None:
    trace = ddp(steps=3)
    trace.host("aten::sum", 2600, 2610)
    trace.launch(2601, 2800, 2810)
    graph, notes = imported(tmp_path, trace)
    assert graph.num_samples == 2
    assert any("2 of 3 steps run the same operations; left out: ProfilerStep#6" in note for note in notes)


def test_accumulated_gradients_are_complete_after_the_last_pass(tmp_path: Path) -> None:
    trace = ddp(steps=1)
    # A pass before, without all-reduces.
    for event in ddp(steps=1).events:
        if not event["name"].startswith(("nccl", "Optimizer", "Profiler", "aten::_foreach")):
            moved = {**event, "ts": event["ts"] - 490, "args": dict(event["args"])}
            if "correlation" in moved["args"]:
                moved["args"]["correlation"] += 50
            if "Sequence number" in moved["args"]:
                moved["args"]["Sequence number"] -= 10
            trace.events.append(moved)
    trace.events = [e for e in trace.events if not e["name"].startswith(("Prof", "nccl", "c10d"))]
    launched = {e["args"]["correlation"] for e in trace.events if e["cat"] == "kernel"}
    trace.events = [
        e for e in trace.events if e["cat"] != "cuda_runtime" or e["args"]["correlation"] in launched
    ]
    trace.host("ProfilerStep#1", -500, 1000, cat="user_annotation")
    graph, _ = imported(tmp_path, trace)
    assert graph.parameter_bytes.tolist() == [80, 48]
    made = graph.produces.row_of_entry().tolist()
    assert [graph.operation_names[i] for i in made] == [
        "backward/AddmmBackward0.3",
        "backward/AddmmBackward0.4",
    ]
    # Both passes read both parameters.
    for name in ("linear/parameter", "linear.2/parameter"):
        readers = [i for i in range(graph.num_operations) if name in names(graph, graph.reads, i)]
        assert len([i for i in readers if graph.phases[i] == Phase.FORWARD]) == 2
    assert graph.batch_size == 16


def test_sharded_training_is_refused(tmp_path: Path) -> None:
    document = ddp().document()
    for event in document["traceEvents"]:
        if event["name"].startswith("nccl"):
            event["name"] = "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevComm*)"
            event["args"]["Collective name"] = "reduce_scatter_tensor_coalesced"
    with pytest.raises(FormatError, match="exchanged by reduce_scatter, as sharded training does"):
        imported(tmp_path, document)


def test_a_norm_of_all_gradients_waits_for_all_of_them(tmp_path: Path) -> None:
    trace = ddp(steps=1)
    trace.host("aten::_foreach_norm", 455, 465)
    trace.launch(456, 701, 704)
    graph, _ = imported(tmp_path, trace)
    (norm,) = (i for i, name in enumerate(graph.operation_names) if "norm" in name)
    assert names(graph, graph.reads, norm) == ["linear/parameter", "linear.2/parameter"]
    for i, name in enumerate(graph.operation_names):
        if name.startswith("update/linear"):
            assert "update/_foreach_norm" in names(graph, graph.inputs, i)


def test_waits_of_streams_and_of_the_host_order_what_runs_beside(tmp_path: Path) -> None:
    trace = ddp(steps=1)
    # A copy on another stream, for which the second layer waits, and one after the host waited for the first.
    trace.host("aten::copy_", 51, 58)
    trace.launch(52, 60, 140, stream=9)
    recorded, waited = trace.call("cudaEventRecord", 55, 56), trace.call("cudaStreamWaitEvent", 85, 86)
    sync = {"cuda_sync_kind": "Stream Wait Event", "stream": 7, "correlation": waited, "wait_on_stream": 9}
    trace.host(
        "Stream Wait Event", 86, 87, 7, "cuda_sync", **sync, wait_on_cuda_event_record_corr_id=recorded
    )
    trace.call("cudaStreamSynchronize", 122, 260)
    trace.host("aten::copy_", 262, 270)
    trace.launch(264, 270, 280, stream=9)
    graph, notes = imported(tmp_path, trace)
    index = {name: i for i, name in enumerate(graph.operation_names)}
    assert names(graph, graph.inputs, index["forward/linear/addmm.2"]) == [
        "forward/relu",
        "forward/copy_",
    ] or names(graph, graph.inputs, index["forward/linear/addmm.2"]) == ["forward/copy_", "forward/relu"]
    assert set(names(graph, graph.inputs, index["forward/copy_.2"])) == {
        "forward/copy_",
        "forward/linear/addmm.2",
    }
    assert microseconds(graph, "forward/copy_") == [10]  # from 130, when the first layer ends, to 140
    assert any("2 operations a step ran on streams beside" in note for note in notes)


def test_ranks_are_samples_of_one_step(tmp_path: Path) -> None:
    graph, _ = imported(tmp_path, ddp(0), ddp(1, slower=7))
    assert graph.num_samples == 4
    assert microseconds(graph, FORWARD[0]) == [130, 375, 137, 382]


def test_ranks_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        FormatError, match=r"all-reduce 0 of a step is 24 bytes where .*rank0\.json has 48 bytes"
    ):
        imported(tmp_path, ddp(0), ddp(1, dtype="Half"))
    with pytest.raises(FormatError, match="is of rank 0, and so is another file"):
        imported(tmp_path, ddp(0), ddp(0))
    other = ddp(1)
    for k in range(2):
        other.host("aten::sum", 1000 * k + 600, 1000 * k + 610)
        other.launch(1000 * k + 601, 1000 * k + 800, 1000 * k + 810)
    with pytest.raises(FormatError, match="operation 7 of a step is update/sum where"):
        imported(tmp_path, ddp(0), other)
    later = ddp(1).document()
    for event in later["traceEvents"]:
        event["name"] = re.sub("ProfilerStep#.", "ProfilerStep#9", event["name"])
    with pytest.raises(FormatError, match="shares no step with"):
        imported(tmp_path, ddp(0), later)


@pytest.mark.parametrize("schema", ["1.0.1", "1.1.0-chakra.0.0.4"])
@pytest.mark.parametrize("function_ids", [False, True])
def test_an_execution_trace_gives_shapes_and_dataflow(
    schema: str, function_ids: bool, tmp_path: Path
) -> None:
    trace = ddp(shapes=False)
    of_trace = execution_trace(schema=schema, function_ids=function_ids)
    if function_ids:
        # The ids are those of the second step's operators.
        with_function_ids(trace, of_trace, since=1000)
    path = tmp_path / "et.json.gz"
    path.write_bytes(gzip.compress(json.dumps(of_trace).encode()))
    graph, notes = imported(tmp_path, trace, execution_trace=path)
    assert graph.parameter_shapes == ((5, 4), (3, 4))
    how = "record function id" if function_ids else "the order of their names"
    assert any(f"joined by {how}" in note for note in notes)
    before = [names(graph, graph.inputs, i) for i in range(6)]
    # The second layer's backward needs what the ReLU gave, not what the second layer gave.
    assert before == [[], [FORWARD[0]], [FORWARD[1]], [FORWARD[1]], [BACKWARD[0]], [BACKWARD[1]]]


def test_an_execution_trace_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "et.json"
    for nodes, message in (
        ([], "0% of the operators that launch GPU operations in a step of .* are known here"),
        ([{"id": 1, "name": "a", "inputs": [], "outputs": []}] * 2, "id 1 is a duplicate"),
        ([{"id": 1, "name": "a"}], "missing required field `inputs`"),
    ):
        path.write_text(json.dumps({"schema": "1.0.1", "nodes": nodes}))
        with pytest.raises(FormatError, match=message):
            imported(tmp_path, ddp(), execution_trace=path)


def test_arguments_that_a_schema_marks_are_written() -> None:
    assert _written_arguments(
        "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)"
    ) == {0}
    out = (
        "aten::conv(Tensor x, int[2] stride=[1, 1], *, bool t=False, Tensor(b!) out) -> (Tensor(b!), Tensor)"
    )
    assert _written_arguments(out) == {3}
    assert _written_arguments("aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)") == set()
    assert _written_arguments("aten::_foreach_add_(Tensor(a!)[] self, Tensor[] other) -> ()") == {0}
    assert _written_arguments("") == set()


NOT_READ = [
    ("", "is not JSON"),
    ("{}", "missing required field `traceEvents`"),
    ('{"traceEvents": {}}', "traceEvents: expected `array`"),
    ('{"traceEvents": []}', "holds no GPU operation with its launch"),
    (
        '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": NaN}]}',
        "traceEvents[0].ts: None is not",
    ),
]


@pytest.mark.parametrize(("text", "message"), NOT_READ)
def test_what_is_no_trace_is_refused_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(FormatError) as refused:
        import_kineto([path])
    assert str(refused.value).startswith(f"{path}: ")
    assert message in str(refused.value)


DAMAGED: list[tuple[str, dict[str, Any], str]] = [
    ("a negative duration", {"dur": -1.0}, "].dur: -1.0 is not a number of microseconds"),
    ("no duration", {"dur": None}, "].dur: None is not"),
    ("a huge time", {"ts": 1e300}, "].ts: 1e+300 is not"),
    ("a time that is text", {"ts": "soon"}, "].ts: expected `float | null`, got `str`"),
    (
        "a stream that is text",
        {"args": {"stream": "seven", "correlation": 101}},
        "needs stream and correlation",
    ),
    ("no correlation", {"args": {"stream": 7}}, "needs stream and correlation"),
    ("a dangling correlation", {"args": {"stream": 7, "correlation": 9999}}, "is that of no call"),
    ("arguments that are none", {"args": [1]}, "].args: expected `object`"),
]


@pytest.mark.parametrize(("change", "message"), [row[1:] for row in DAMAGED], ids=[row[0] for row in DAMAGED])
def test_a_damaged_kernel_is_refused_in_one_line(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    document = ddp().document()
    # Not the first one, which may have been launched before the recording.
    kernel = [event for event in document["traceEvents"] if event.get("cat") == "kernel"][1]
    kernel.update(change)
    with pytest.raises(FormatError) as refused:
        imported(tmp_path, document)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_cut_archive_is_refused_in_one_line(tmp_path: Path) -> None:
    whole = gzip.compress(json.dumps(ddp().document()).encode())
    for size in (0, 5, len(whole) // 2, len(whole) - 1):
        (tmp_path / "trace.json.gz").write_bytes(whole[:size])
        with pytest.raises(FormatError, match=r"is not a gzip file|is not JSON"):
            import_kineto([tmp_path / "trace.json.gz"])


def test_an_archive_that_would_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.interop.kineto.file_pieces._LARGEST_BYTES", 2**20)
    (tmp_path / "trace.json.gz").write_bytes(gzip.compress(b" " * 2**22))
    (tmp_path / "trace.json.zst").write_bytes(zstandard.ZstdCompressor().compress(b" " * 2**22))
    for name in ("trace.json.gz", "trace.json.zst"):
        with pytest.raises(FormatError, match="holds more than 1 MiB; decompress it, or record fewer steps"):
            import_kineto([tmp_path / name])


def in_file(name: str) -> list[dict[str, Any]]:
    return json.loads(gzip.decompress((DATA / name).read_bytes()))["traceEvents"]


@real
def test_resnet50_under_ddp_on_an_a100_is_all_there() -> None:
    graph, notes = import_kineto([DATA / DDP])
    events = in_file(DDP)
    steps = 3
    on_gpu = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    reduced = [e for e in on_gpu if "AllReduce" in e["name"]]
    assert graph.num_samples == sum(
        e["name"].startswith("ProfilerStep#")
        for e in events
        if e.get("ph") == "X" and e["cat"] == "user_annotation"
    )
    # ResNet-50's parameters, one by one, and their bytes are what each step's all-reduces carry.
    assert graph.num_parameters == 161
    assert graph.parameter_bytes.sum() * steps == sum(4 * e["args"]["In msg nelems"] for e in reduced)
    assert graph.parameter_bytes.sum() == 4 * 25_557_032
    # Operations: all but the all-reduces, and one update a parameter in place of the optimizer's nine.
    optimizer = [
        e for e in events if e["name"] == "Optimizer.step#SGD.step" and e["cat"] == "user_annotation"
    ]
    launches = {
        e["args"]["correlation"]: e["ts"]
        for e in events
        if e.get("cat") == "cuda_runtime" and "correlation" in e["args"]
    }
    updating = [
        e for e in on_gpu
        if any(o["ts"] <= launches[e["args"]["correlation"]] < o["ts"] + o["dur"] for o in optimizer)
    ]  # fmt: skip
    assert graph.num_operations == (len(on_gpu) - len(reduced) - len(updating)) // steps + 161
    # The durations make up the steps as they were: nothing waits for an all-reduce in this trace.
    ends = sorted(e["ts"] + e["dur"] for e in updating)
    last_ends = ends[len(ends) // steps - 1 :: len(ends) // steps]
    totals = graph.durations_s.sum(axis=0)
    assert np.diff(last_ends) * 1e-6 == pytest.approx(totals[1:], rel=1e-6)
    # Streams: each operation after the one before it, and the broadcasts between what is around them.
    main = [i for i in range(graph.num_operations) if graph.phases[i] != Phase.UPDATE]
    copied = sum(e["name"] == "torch.distributed.ddp.reducer::copy_bucket_to_grad" for e in events) // steps
    assert len(main) == (len(on_gpu) - len(reduced) - len(updating)) // steps - copied
    broadcasts = sum("Broadcast" in e["name"] for e in on_gpu) // steps
    chains = (len(main) - broadcasts - 1) + (broadcasts - 1)
    assert sum(len(graph.inputs.row(i)) for i in main) == chains + 2 * broadcasts
    assert any("5 all-reduces a step, 97.49 MiB" in note for note in notes)
    # The first convolution's gradient comes last, and its parameter is read first.
    first = graph.order[graph.gradient_ready()[0]]
    assert graph.operation_names[first] in [graph.operation_names[i] for i in main[-3:]]
    assert graph.parameter_bytes[0] == 4 * 64 * 3 * 7 * 7


@real
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "steps"), [("param_linear_kineto.json.gz", 40), ("param_resnet_kineto.json.gz", 30)]
)
def test_traces_of_one_gpu_are_all_there(name: str, steps: int) -> None:
    graph, notes = import_kineto([DATA / name], allow_no_gradients=True)
    events = [e for e in in_file(name) if e.get("ph") == "X"]
    launches = {e["args"]["correlation"]: e["ts"] for e in events if e["cat"] == "cuda_runtime"}
    ends = sorted(e["ts"] + e["dur"] for e in events if e["name"].startswith("Optimizer.step#"))
    assert len(ends) == steps
    counts = Counter(
        sum(launches[e["args"]["correlation"]] >= end for end in ends)
        for e in events if e["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")
    )  # fmt: skip
    # The first step initializes what the others find ready.
    assert graph.num_samples == steps - 1
    assert {counts[k] for k in range(1, steps)} == {graph.num_operations}
    assert graph.num_parameters == 0
    assert any("no parameters" in note for note in notes)


@real
@pytest.mark.slow
def test_an_execution_trace_brings_shapes_and_dataflow() -> None:
    pair = DATA / "param_linear_kineto.json.gz", DATA / "param_linear_et.json.gz"
    graph, notes = import_kineto([pair[0]], execution_trace=pair[1])
    nodes = json.loads(gzip.decompress(pair[1].read_bytes()))["nodes"]
    sizes = Counter(4 * int(np.prod(node["input_shapes"][0])) for node in nodes if node["name"] == ACCUMULATE)
    assert Counter(graph.parameter_bytes.tolist()) == sizes
    assert any("joined by the order of their names" in note for note in notes)


@real
@pytest.mark.slow
def test_shapes_from_a_run_of_the_same_program() -> None:
    graph, notes = import_kineto([DATA / DDP], execution_trace=DATA / "param_resnet_et.json.gz")
    assert graph.num_parameters == 161
    assert graph.parameter_bytes.sum() == 4 * 25_557_032
    assert graph.parameter_shapes[0] == (64, 3, 7, 7)
    assert any("sizes from the ExecutionTrace" in note for note in notes)
    other = DATA / "param_linear_et.json.gz"
    with pytest.raises(FormatError, match="give the ExecutionTrace of the same job"):
        import_kineto([DATA / DDP], execution_trace=other)
