"""GPUs of this machine as NVIDIA's management library has them, where nvidia-ml-py is installed."""

from __future__ import annotations

from typing import NamedTuple

from hocket.cluster.gpu_type import type_of_name


class NvmlGpu(NamedTuple):
    """A GPU: its number, in the order of the bus, its UUID, name, and memory in bytes, in all and free."""

    number: str
    uuid: str
    name: str
    total_bytes: int
    free_bytes: int


def nvml_gpus() -> list[NvmlGpu]:
    """The GPUs; empty where the library or its driver is missing."""
    try:
        import pynvml
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    found = []
    try:
        for number in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(number)
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
            uuid, name = (
                text.decode() if isinstance(text, bytes) else str(text)
                for text in (pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetName(handle))
            )
            found.append(NvmlGpu(str(number), uuid, name, int(memory.total), int(memory.free)))
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()
    return found


def gpu_memory(*, free: bool) -> dict[str, int]:
    """Bytes of each GPU by its number and by its UUID: those that are free now, or all."""
    found = {}
    for gpu in nvml_gpus():
        found[gpu.number] = found[gpu.uuid] = gpu.free_bytes if free else gpu.total_bytes
    return found


def gpu_types() -> dict[str, str]:
    """The type of each GPU by its number and by its UUID, where its name says one."""
    found = {}
    for gpu in nvml_gpus():
        if kind := type_of_name(gpu.name):
            found[gpu.number] = found[gpu.uuid] = kind
    return found
