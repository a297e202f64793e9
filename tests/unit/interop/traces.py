"""Small traces with known answers, built event by event."""

from __future__ import annotations

from typing import Any

MAIN, ENGINE = 1, 2
COMPUTING, COMMUNICATING = 7, 20
NODE = "autograd::engine::evaluate_function: "
ACCUMULATE = "torch::autograd::AccumulateGrad"


class Kineto:
    """Events of one rank; times are microseconds."""

    def __init__(self, rank: int = 0) -> None:
        self.events: list[dict[str, Any]] = []
        self.rank = rank
        self._correlation = 100 * (rank + 1)

    def host(
        self, name: str, start: float, end: float, thread: int = MAIN, cat: str = "cpu_op", **args: Any
    ) -> None:
        self.events.append(_event(cat, name, 9, thread, start, end, args))

    def launch(
        self, at: float, start: float, end: float, *, thread: int = MAIN, stream: int = COMPUTING,
        name: str = "void kernel<float>(int)", **args: Any,
    ) -> int:  # fmt: skip
        self._correlation += 1
        ids = {"correlation": self._correlation}
        self.events.append(_event("cuda_runtime", "cudaLaunchKernel", 9, thread, at, at + 2, ids))
        args = {"stream": stream, "device": 0, **ids, **args}
        self.events.append(_event("kernel", name, 0, stream, start, end, args))
        return self._correlation

    def call(self, name: str, start: float, end: float, thread: int = MAIN) -> int:
        self._correlation += 1
        self.events.append(
            _event("cuda_runtime", name, 9, thread, start, end, {"correlation": self._correlation})
        )
        return self._correlation

    def document(self) -> dict[str, Any]:
        return {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "GPU 3000"}],
            "distributedInfo": {"backend": "nccl", "rank": self.rank, "world_size": 2},
            "traceEvents": [
                {"ph": "M", "name": "process_name", "pid": 9, "tid": 0, "ts": 0, "args": {"name": "python"}},
                {"ph": "s", "id": 1, "pid": 9, "tid": 1, "ts": 5, "cat": "ac2g", "name": "ac2g"},
                *self.events,
            ],
        }


def _event(
    cat: str, name: str, pid: int, tid: int, start: float, end: float, args: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid,
        "ts": start, "dur": end - start, "args": args,
    }  # fmt: skip


def ddp(
    rank: int = 0, *, steps: int = 2, shapes: bool = True, slower: float = 0.0, dtype: str = "Float"
) -> Kineto:
    """Two linear layers with a ReLU between them, under DDP with a bucket for each layer.

    Of a step: 130, 20, 100 us forward, 150, 20, 80 backward (70 of the 150 the GPU waits for the host), the
    optimizer 55 after 200 in which it waits for the second all-reduce. ``slower``: more of the first one.
    """
    trace = Kineto(rank)
    for k in range(steps):
        t = 1000.0 * k
        trace.host(f"ProfilerStep#{k + 4}", t, t + 1000, cat="user_annotation")
        dims = {"Input Dims": [[8, 4], [5, 4]], "Input type": ["float", "float"]} if shapes else {}
        trace.host("aten::linear", t + 10, t + 50, **{"Sequence number": 10, "Fwd thread id": 0}, **dims)
        trace.host("aten::addmm", t + 15, t + 45, **{"Sequence number": 10, "Fwd thread id": 0})
        trace.launch(t + 20, t + 30, t + 130 + slower)
        trace.host("aten::relu", t + 60, t + 80, **{"Sequence number": 11})
        trace.launch(t + 70, t + 130 + slower, t + 150 + slower)
        trace.host("aten::linear", t + 90, t + 120, **{"Sequence number": 12})
        trace.host("aten::addmm", t + 95, t + 115, **{"Sequence number": 12})
        trace.launch(t + 100, t + 150 + slower, t + 250)
        _node(trace, "AddmmBackward0", 12, t + 300, t + 340)
        trace.launch(t + 310, t + 320, t + 400, thread=ENGINE)
        _reduced(trace, t + 345, [3, 4] if shapes else None, (t + 400, t + 600), 12, dtype)
        _node(trace, "ReluBackward0", 11, t + 375, t + 390)
        trace.launch(t + 380, t + 400, t + 420, thread=ENGINE)
        _node(trace, "AddmmBackward0", 10, t + 395, t + 420)
        trace.launch(t + 400, t + 420, t + 500, thread=ENGINE)
        _reduced(trace, t + 425, [5, 4] if shapes else None, (t + 600, t + 700), 20, dtype)
        trace.host("Optimizer.step#SGD.step", t + 470, t + 520, cat="user_annotation")
        trace.host("aten::_foreach_add_", t + 480, t + 500)
        trace.launch(t + 490, t + 705, t + 755)
    return trace


def _node(trace: Kineto, name: str, sequence: int, start: float, end: float) -> None:
    args = {"Sequence number": sequence, "Fwd thread id": 1}
    trace.host(NODE + name, start, end, ENGINE, **args)
    trace.host(name, start + 1, end - 1, ENGINE, **args)


def _reduced(
    trace: Kineto, at: float, shape: list[int] | None, gpu: tuple[float, float], elements: int, dtype: str
) -> None:
    """A gradient that completes a bucket, and its all-reduce."""
    args = {} if shape is None else {"Input Dims": [shape], "Input type": ["float"]}
    trace.host(NODE + ACCUMULATE, at, at + 25, ENGINE)
    trace.host(ACCUMULATE, at + 1, at + 5, ENGINE, **args)
    trace.host("c10d::allreduce_", at + 10, at + 20, ENGINE)
    trace.launch(
        at + 15, *gpu, thread=ENGINE, stream=COMMUNICATING, name="ncclDevKernel_AllReduce_Sum_f32_RING(int)",
        **{"Collective name": "allreduce", "In msg nelems": elements, "dtype": dtype},
    )  # fmt: skip


def execution_trace(*, schema: str = "1.0.1", function_ids: bool = False) -> dict[str, Any]:
    """The ExecutionTrace of a step of ``ddp``: its operators, storages 1 and 2 are weights."""
    weights, hidden, gradients = {10: 1, 12: 2}, {10: 3, 11: 4, 12: 5}, {12: 6, 11: 7, 10: 8}
    nodes: list[dict[str, Any]] = []

    def add(name: str, reads: list[tuple[int, list[int]]], writes: list[int], schema_text: str = "") -> None:
        inputs = [[50 + s, s, 0, 1, 4, "cuda:0"] for s, _ in reads]
        types = ["Tensor(float)"] * len(reads)
        shapes = [shape for _, shape in reads]
        outputs = [[80 + s, s, 0, 1, 4, "cuda:0"] for s in writes]
        row: dict[str, Any] = {"id": 2 + len(nodes), "name": name}
        extra = {"rf_id": len(nodes) + 1 if function_ids else 0, "op_schema": schema_text}
        if schema == "1.0.1":
            row |= {"parent": 1, **extra, "inputs": inputs, "input_shapes": shapes, "input_types": types}
            row |= {"outputs": outputs, "output_shapes": [[1]] * len(writes), "output_types": []}
        else:
            row |= {"ctrl_deps": 1, "inputs": {"values": inputs, "shapes": shapes, "types": types}}
            row |= {"outputs": {"values": outputs, "shapes": [[1]] * len(writes), "types": []}}
            row["attrs"] = [{"name": key, "type": "", "value": value} for key, value in extra.items()]
        nodes.append(row)

    for sequence, name in ((10, "aten::linear"), (11, "aten::relu"), (12, "aten::linear")):
        before = [(hidden[sequence - 1], [8, 4])] if sequence > 10 else []
        reads = [*before, *([(weights[sequence], [5, 4])] if sequence in weights else [])]
        add(name, reads, [hidden[sequence]])
        if name == "aten::linear":
            add("aten::addmm", reads, [hidden[sequence]])
    for sequence, name in ((12, "AddmmBackward0"), (11, "ReluBackward0"), (10, "AddmmBackward0")):
        # The gradient of the second weight needs what the ReLU gave; that of the first only the input.
        reads = [(hidden[11], [8, 5])] if sequence == 12 else [(gradients[sequence + 1], [8, 5])]
        add(NODE + name, [], [])
        add(name, reads, [gradients[sequence]])
        if name == "AddmmBackward0":
            add(NODE + ACCUMULATE, [], [])
            add(ACCUMULATE, [(gradients[sequence], [3, 4] if sequence == 12 else [5, 4])], [])
            add("c10d::allreduce_", [], [])
    add("aten::_foreach_add_", [], [], "aten::_foreach_add_.Scalar(Tensor(a!)[] self, Scalar scalar) -> ()")
    add("Optimizer.step#SGD.step", [], [])
    return {"schema": schema, "pid": 1, "nodes": nodes}


def with_function_ids(trace: Kineto, of_trace: dict[str, Any], *, since: float) -> None:
    """Give the trace's operators from a time on the ids of their nodes."""
    left = list(of_trace["nodes"])
    for event in sorted(trace.events, key=lambda event: event["ts"]):
        found = next((node for node in left if node["name"] == event["name"]), None)
        if event["ts"] >= since and found is not None:
            left.remove(found)
            event["args"]["Record function id"] = of_trace["nodes"].index(found) + 1
