"""Traces of other accelerators, CUDA graphs without launches, files of other formats: read or named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hocket.errors import FormatError
from hocket.interop.kineto.kineto_step import import_kineto
from tests.unit.interop.kinds import MIB, Training, steps, usual
from tests.unit.interop.test_kineto import imported


def renamed(categories: dict[str, str], kernels: dict[str, str] | None = None) -> dict[str, Any]:
    """A job's document with other categories and names of kernels, and no name of a device."""
    document = steps(Training(), usual)
    for event in document["traceEvents"]:
        event["cat"] = categories.get(event.get("cat", ""), event.get("cat", ""))
        for old, new in (kernels or {}).items():
            event["name"] = event["name"].replace(old, new)
    return {key: value for key, value in document.items() if key != "deviceProperties"}


@pytest.mark.parametrize(
    ("categories", "kernels", "device"),
    [
        ({"cuda_runtime": "xpu_runtime"}, {"ncclDevKernel": "oneccl_kernel"}, "xpu"),
        ({"cuda_runtime": "mtia_runtime", "kernel": "mtia_ccp_events"}, {}, "mtia"),
        ({"cuda_runtime": "privateuse1_runtime"}, {"ncclDevKernel": "hcclKernel"}, "privateuse1"),
        ({"cuda_runtime": "hip_runtime"}, {"ncclDevKernel": "rcclGenericKernel"}, "cuda"),
    ],
)
def test_other_devices_are_read_as_gpus(
    categories: dict[str, str], kernels: dict[str, str], device: str, tmp_path: Path
) -> None:
    graph, _ = imported(tmp_path, renamed(categories, kernels))
    assert (graph.device, graph.num_parameters, graph.parameter_bytes.sum()) == (device, 4, MIB)
    assert graph.recorded is not None


@pytest.mark.parametrize(("category", "device"), [("mtia_ccp_events", "MTIA"), ("hpu_op", "HPU")])
def test_work_that_names_no_call_is_refused_by_its_device(category: str, device: str, tmp_path: Path) -> None:
    document = renamed({"kernel": category})
    for event in document["traceEvents"]:
        if event.get("cat") == category:
            event["args"] = {}
    with pytest.raises(
        FormatError, match=f"its {device} operations .*record on CUDA, ROCm or XPU"
    ) as refused:
        imported(tmp_path, document)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("every", [True, False])
def test_a_graph_without_its_launch_is_named(every: bool, tmp_path: Path) -> None:
    document = steps(Training(), usual)
    kernels = [event for event in document["traceEvents"] if event.get("cat") == "kernel"]
    for event in kernels if every else kernels[8:14]:
        event["args"] |= {"graph node id": 7, "correlation": event["args"]["correlation"] + 10**6}
    with pytest.raises(FormatError, match="of a CUDA graph whose launch is not in the file"):
        imported(tmp_path, document)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x0a\x05\x08\x00\x12\x00\x00" * 40, "is binary, .*hocket import chakra"),
        (b"x" * 257 + b"ustar" + b"x" * 250, "is a tar archive; unpack it"),
        (b'{"schema": "1.1.1", "nodes": []}', "is a PyTorch ExecutionTrace; give it with --execution-trace"),
    ],
)
def test_files_of_other_formats_are_named(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=message):
        import_kineto([path])
