"""Verdicts on memory: whether a step fits its device, and with which batch it does."""

from __future__ import annotations

from typing import Any, NamedTuple

from hocket.datasheets import DEVICES, Device
from hocket.graph import MemoryNeed, StepGraph, StepMemory
from hocket.text import capitalized, scaled_text

_TIGHT = 0.05  # as much as the allocator is assumed to hold beside tensors, which is no more than assumed
_WORKERS = 8  # of a node: the number that sharding is told for where one device was asked about


class MemoryVerdict(NamedTuple):
    """A sentence on a step's memory, the need that it is about, and its device's memory in bytes."""

    text: str
    need: MemoryNeed
    capacity_bytes: float
    largest_batch: int | None
    """None where that is not known."""

    @property
    def fits(self) -> bool:
        """True if the device has the memory."""
        return self.need.total_bytes <= self.capacity_bytes

    def document(self) -> dict[str, Any]:
        """The verdict as plain data."""
        return {
            "fits": self.fits,
            "needed_bytes": self.need.total_bytes,
            "capacity_bytes": self.capacity_bytes,
            "largest_batch": self.largest_batch,
            **{f"{name}_bytes": size for name, size in self.need.parts()},
        }


def memory_verdict(graph: StepGraph, workers: int = 1, sheet: Device | None = None) -> MemoryVerdict | None:
    """The verdict for each of ``workers`` devices, which exchange gradients as DistributedDataParallel.

    None for a step without memory, and for a device without datasheet. ``sheet``: one of your own.
    """
    memory, device = graph.memory, sheet or DEVICES.get(graph.device)
    if memory is None or device is None:
        return None
    need = memory.needed(workers=workers)
    capacity_bytes = device.capacity_bytes
    largest = memory.largest_batch(capacity_bytes, workers=workers) if memory.scales else None
    parts = f"(in GB, when it needs most: {need})"
    needs = f"it needs {_gb(need)} of the {device.name}'s {scaled_text(capacity_bytes, 'B')} {parts}"
    copies = " with DDP's buckets" if workers > 1 else ""
    batch = f"a batch of {need.batch_size}{copies}"
    if need.total_bytes <= capacity_bytes:
        bare = "unsharded and without float32 masters, " if memory.masters_bytes else ""
        spare = 1 - need.total_bytes / capacity_bytes
        tight = f", with {spare:.1%} to spare" if spare < _TIGHT else ""
        said = f"{bare}{batch} fits{tight}: {needs}{_largest(largest)}"
        said += _masters(memory, workers, capacity_bytes)
        return MemoryVerdict(said, need, capacity_bytes, largest)
    said = f"{batch} does not fit: {needs}{_largest(largest)}"
    return MemoryVerdict(said + _sharded(memory, workers, capacity_bytes), need, capacity_bytes, largest)


def memory_answers(verdict: MemoryVerdict | None, answers: list[str]) -> list[str]:
    """``answers`` with the verdict: first where the step does not fit, else behind the first answer."""
    if verdict is None:
        return answers
    said = capitalized(verdict.text)
    return [answers[0], said, *answers[1:]] if verdict.fits and answers else [said, *answers]


def unknown_memory(graph: StepGraph) -> list[str]:
    """A remark on a step of a device with a datasheet whose file says nothing of memory; none for others."""
    if graph.memory is not None or graph.device not in DEVICES:
        return []
    return [
        f"Whether the step fits a {graph.device} is not known: its file has no memory; hocket profile"
        f" --device {graph.device} writes it"
    ]


def memory_words(graph: StepGraph) -> list[str]:
    """A remark on parts of the need whose names say little; none of a step without memory."""
    if graph.memory is None:
        return []
    return [
        "Memory: exchange is buckets of gradients, or what sharding gathers; overhead is the driver's context"
        " and libraries, and what the allocator holds beside tensors"
    ]


def _largest(largest: int | None) -> str:
    if largest is None:
        return "; the largest batch is not known, as its tensors do not grow evenly with the batch"
    return f"; largest batch: {largest or 'none'}"


def _sharded(memory: StepMemory, workers: int, capacity_bytes: float) -> str:
    """The need where parameters, gradients and the optimizer's state are shared out."""
    several = workers if workers > 1 else _WORKERS
    need = memory.needed(workers=several, sharding="parameters")
    fits = "" if need.total_bytes <= capacity_bytes else ", which does not fit, either"
    return f"; sharded over {several} (FSDP): {_gb(need)}{fits}"


def _masters(memory: StepMemory, workers: int, capacity_bytes: float) -> str:
    """The need with float32 masters, which two-byte parameters are mostly trained with."""
    if not memory.masters_bytes:
        return ""
    need = memory.with_masters().needed(workers=workers)
    fits = "fits" if need.total_bytes <= capacity_bytes else "does not fit"
    return (
        ". With float32 masters and state, which this optimizer does not keep, it needs"
        f" {_gb(need)} and {fits}"
    )


def _gb(need: MemoryNeed) -> str:
    return scaled_text(need.total_bytes, "B")
