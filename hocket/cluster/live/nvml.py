"""GPUs of this machine as NVIDIA's management library has them, where nvidia-ml-py is installed."""

from __future__ import annotations

from typing import NamedTuple


class NvmlGpu(NamedTuple):
    """A GPU: its number, in the order of the bus, its UUID, and its memory in bytes, in all and free."""

    number: str
    uuid: str
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
            uuid = pynvml.nvmlDeviceGetUUID(handle)
            text = uuid.decode() if isinstance(uuid, bytes) else str(uuid)
            found.append(NvmlGpu(str(number), text, int(memory.total), int(memory.free)))
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
