"""A trace of processes on CPUs as one of GPUs: what a stream would have run for each operator that computes.

What the host did, its operators and annotations, stays as torch recorded it. Each innermost operator that
computes launches a kernel of its own length on one stream, and each call of a process group one on another,
with the details that NCCL's kernels give. Times are made up; names, nesting and order are torch's.
"""

from __future__ import annotations

import math
import re
from typing import Any

from tests.unit.interop.traces import COMMUNICATING, COMPUTING

_MOVES_NOTHING = re.compile(
    r"aten::(as_strided|view|_?reshape|_unsafe_view|empty|new_empty|t$|transpose|expand|select|slice|narrow|split|chunk"
    r"|detach|alias|resolve|result_type|to$|item|_local_scalar|is_|unbind|squeeze|unsqueeze|lift|permute|view_as)"
)
_GROUPS_CALL = re.compile(r"c10d::_?(allgather_base|reduce_scatter_base|allreduce)_$")
_KERNELS = {"allgather_base": "AllGather", "reduce_scatter_base": "ReduceScatter", "allreduce": "AllReduce"}
_TYPES = {"float": "Float", "c10::BFloat16": "BFloat16"}


def on_gpu(document: dict[str, Any]) -> dict[str, Any]:
    """The trace, with kernels and what launched them in place of what gloo's threads did."""
    world = document["distributedInfo"]["world_size"]
    host = [
        e
        for e in document["traceEvents"]
        if e.get("ph") == "X" and e.get("cat") in ("cpu_op", "user_annotation")
    ]
    host = [e for e in host if not e["name"].startswith(("gloo:", "record_param_comms"))]
    made, busy, correlation = [], {COMPUTING: 0.0, COMMUNICATING: 0.0}, 0
    inner = _innermost(host)
    for event in sorted(host, key=lambda e: e["ts"]):
        called = _GROUPS_CALL.match(event["name"])
        computes = id(event) in inner and event["name"].startswith(("aten::", "fsdp::"))
        if called is None and (not computes or _MOVES_NOTHING.match(event["name"])):
            continue
        stream = COMPUTING if called is None else COMMUNICATING
        name, args = "void kernel<float>(int)", {}
        if called is not None:
            counts = [math.prod(dims) for dims in _tensors(event)[:2]]
            small, large = min(counts), max(counts)
            gathers = called[1] == "allgather_base"
            args = {
                "Collective name": called[1], "Group size": world, "Process Group Description": "default_pg",
                "dtype": _TYPES[_types(event)[0]], "In msg nelems": small if gathers else large,
                "Out msg nelems": small if called[1] == "reduce_scatter_base" else large,
            }  # fmt: skip
            name = f"ncclDevKernel_{_KERNELS[called[1]]}(int)"
        correlation += 1
        at, took = event["ts"] + event["dur"] / 4, max(1.0, event["dur"])
        begin = max(at + 1, *busy.values())
        busy[stream] = begin + took
        common = {"ph": "X", "pid": event["pid"]}
        tied = {"correlation": correlation}
        call = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "tid": event["tid"], "ts": at, "dur": 0.01}
        ran = {"cat": "kernel", "name": name, "tid": stream, "ts": begin, "dur": took}
        made += [common | call | {"args": tied}, common | ran | {"args": {"stream": stream, **tied, **args}}]
    return {
        "deviceProperties": [{"id": 0, "name": "GPU 3000"}],
        "distributedInfo": document["distributedInfo"],
        "traceEvents": [*host, *made],
    }


def _innermost(host: list[dict[str, Any]]) -> set[int]:
    """The ids of the events in which no other begins."""
    found: set[int] = set()
    stacks: dict[Any, list[dict[str, Any]]] = {}
    for event in sorted(host, key=lambda e: (e["ts"], -e["dur"])):
        stack = stacks.setdefault(event["tid"], [])
        while stack and stack[-1]["ts"] + stack[-1]["dur"] <= event["ts"]:
            stack.pop()
        if stack:
            found.discard(id(stack[-1]))
        found.add(id(event))
        stack.append(event)
    return found


def _tensors(event: dict[str, Any]) -> list[list[int]]:
    shapes = [dims[0] if dims and isinstance(dims[0], list) else dims for dims in event["args"]["Input Dims"]]
    return [dims for dims in shapes if dims]


def _types(event: dict[str, Any]) -> list[str]:
    return [kind for kind in event["args"]["Input type"] if kind in _TYPES] or ["float"]
