"""Collectives in a Kineto trace: which kernels are some, of what kind, and what they move."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hocket.interop.kineto.compiled_backward import in_compiled_backward
from hocket.interop.kineto.events import ACCUMULATE, NODE_PREFIX, Gpu, HostSpan, whole
from hocket.interop.kineto.tensors import dtype_name, first_tensor, item_bytes
from hocket.text import counted

# NVIDIA's, AMD's and Microsoft's, Intel's, Habana's, Meta's and Huawei's.
_KERNEL = re.compile(r"(void )?(n|r|m?s|x|one|h|m|l)?ccl", re.IGNORECASE)
_CALLERS = ("nccl:", "xccl:", "hccl:", "mccl:", "c10d::", "_c10d_functional", "gloo:", "record_param_comms")
_WHOLE_NUMBERS = ("int32", "int64")
ALL_REDUCE = "all_reduce"
_SMALL_BYTES = 10_000
_COLLECTIVES = {
    re.compile(r"all_?reduce", re.IGNORECASE): ALL_REDUCE,
    re.compile(r"reduce_?scatter", re.IGNORECASE): "reduce_scatter",
    re.compile(r"all_?gather", re.IGNORECASE): "all_gather",
    re.compile(r"all_?to_?all", re.IGNORECASE): "all_to_all",
    re.compile(r"broadcast", re.IGNORECASE): "broadcast",
    re.compile(r"reduce", re.IGNORECASE): "reduce",
    re.compile(r"send|recv", re.IGNORECASE): "send_recv",
}


@dataclass(slots=True, eq=False)
class TracedCollective:
    """A collective of one step, and its message, as far as the trace tells it.

    ``hooked``: launched where a gradient is complete; ``group``: its process group, empty if unknown, and
    ``group_size`` its ranks.
    """

    gpu: Gpu
    kind: str
    elements: int | None
    dtype: str
    hooked: bool
    group: str
    group_size: int | None = None

    @property
    def size_bytes(self) -> int | None:
        """Bytes of the message."""
        return None if self.elements is None else self.elements * (item_bytes(self.dtype) or 1)

    @property
    def counts(self) -> bool:
        """Tell whether it carries whole numbers, which no gradient is."""
        return self.dtype in _WHOLE_NUMBERS


def collectives_in_words(collectives: Sequence[TracedCollective]) -> str:
    """Count those of each kind and add up their bytes: ``2 all_reduces (16.00 MiB)``."""
    parts = []
    for kind in dict.fromkeys(collective.kind for collective in collectives):
        own = [collective for collective in collectives if collective.kind == kind]
        sizes = [collective.size_bytes for collective in own if collective.size_bytes is not None]
        size = mebibytes(sum(sizes)) if len(sizes) == len(own) else "of unknown size"
        groups = ", ".join(sorted({collective.group for collective in own if collective.group}))
        parts.append(f"{counted(len(own), kind)} ({size}{f', group {groups}' if groups else ''})")
    return ", ".join(parts)


def mebibytes(size_bytes: float) -> str:
    """A size as people read it; small ones in bytes."""
    return f"{size_bytes / 2**20:.2f} MiB" if size_bytes >= _SMALL_BYTES else f"{size_bytes:.0f} bytes"


def in_hook(chain: Sequence[HostSpan]) -> bool:
    """True if it was launched where a gradient is complete, as DDP launches its reductions.

    In a backward pass of compiled autograd, which does not say where gradients are complete, all count.
    """
    return any(
        (event.name.startswith(NODE_PREFIX) and event.name.endswith(ACCUMULATE))
        or in_compiled_backward(event)
        for event in chain
    )


def collective_of(gpu: Gpu, chain: Sequence[HostSpan]) -> TracedCollective | None:
    """The collective that ``gpu`` is, launched within ``chain``; None for what is none."""
    if gpu.args.collective is None and not _KERNEL.match(gpu.name):
        return None
    said = [gpu.args.collective, *(event.args.collective for event in chain)]
    around = [event.name for event in chain if event.name.startswith(_CALLERS)]
    # The kernel last: all of RCCL's have one name.
    kinds = (kind_of(text) for text in (*said, *around, gpu.name) if isinstance(text, str))
    kind = next((kind for kind in kinds if kind), "collective")
    elements, dtype = _message_of(gpu, chain)
    groups = [
        name
        for args in (gpu.args, *(event.args for event in chain))
        for name in (args.group, args.group_name)
        if isinstance(name, str) and name
    ]
    sizes = [whole(args.group_size) for args in (gpu.args, *(event.args for event in chain))]
    size = next((size for size in sizes if size is not None and size > 0), None)
    return TracedCollective(gpu, kind, elements, dtype, in_hook(chain), groups[0] if groups else "", size)


def kind_of(text: str) -> str:
    """The kind of collective that a name speaks of; empty for none."""
    return next((kind for pattern, kind in _COLLECTIVES.items() if pattern.search(text)), "")


def called_on_host(event: HostSpan) -> str:
    """The kind of collective that an operator of the host asks for; empty for any other operator."""
    return kind_of(event.name) if event.name.startswith(("c10d::", "gloo:", "mpi:", "ucc:")) else ""


def _message_of(gpu: Gpu, chain: Sequence[HostSpan]) -> tuple[int | None, str]:
    """Elements and type of a collective's message, where the kernel or an operator around it tells them."""
    for args in (gpu.args, *(event.args for event in chain)):
        # A gathering ends with more than it begins with, a scattering with less.
        counts = [whole(count) for count in (args.elements, args.out_elements)]
        elements = max((count for count in counts if count is not None), default=-1)
        if elements >= 0 and isinstance(args.dtype, str) and item_bytes(args.dtype) is not None:
            return elements, dtype_name(args.dtype)
    for event in chain:
        found = first_tensor(event) if event.name.startswith(_CALLERS) else None
        if found is not None:
            return found[2] // (item_bytes(found[1]) or 1), found[1]
    return None, "float32"


def of_gradients(reductions: Sequence[TracedCollective], host: Sequence[HostSpan]) -> list[TracedCollective]:
    """Those of ``reductions`` that exchange gradients, by their launch.

    With ``find_unused_parameters`` the hook that launches DDP's last bucket also reduces a map of the
    parameters that were used: whole numbers, and no gradient was completed since the reduction before.
    """
    completed_us = [event.start_us for event in host if event.name == ACCUMULATE]
    counts = [bisect_right(completed_us, reduction.gpu.call.start_us) for reduction in reductions]
    return [
        reduction
        for reduction, (before, now) in zip(reductions, pairwise([0, *counts]), strict=True)
        if now > before or not reduction.counts
    ]
