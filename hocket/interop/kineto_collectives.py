"""Collectives in a Kineto trace: which kernels are some, of what kind, and what they move."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hocket.interop.kineto_events import ACCUMULATE, NODE_PREFIX, Gpu, Host, whole
from hocket.interop.kineto_tensors import dtype_name, first_tensor, item_bytes

_KERNEL = re.compile(r"(void )?[nr]ccl", re.IGNORECASE)
_CALLERS = ("nccl:", "c10d::")
_WHOLE_NUMBERS = ("int32", "int64")
ALL_REDUCE = "all_reduce"
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
class Reduction:
    """An all-reduce of gradients."""

    gpu: Gpu
    size_bytes: int | None
    dtype: str


def in_hook(chain: Sequence[Host]) -> bool:
    """Whether it was launched where a gradient is complete, as DDP launches its reductions."""
    return any(event.name.startswith(NODE_PREFIX) and event.name.endswith(ACCUMULATE) for event in chain)


def collective_of(gpu: Gpu, chain: Sequence[Host]) -> str:
    """The kind of a collective, launched within ``chain``; empty for what is none."""
    if gpu.args.collective is None and not _KERNEL.match(gpu.name):
        return ""
    said = [gpu.args.collective, *(event.args.collective for event in chain)]
    around = [event.name for event in chain if event.name.startswith(_CALLERS)]
    # The kernel last: all of RCCL's have one name.
    for text in (*said, *around, gpu.name):
        for pattern, kind in _COLLECTIVES.items():
            if isinstance(text, str) and pattern.search(text):
                return kind
    return "collective"


def message_of(gpu: Gpu, chain: Sequence[Host]) -> tuple[int | None, str]:
    """Bytes and type of a collective's message, where the kernel or an operator around it tells them."""
    for args in (gpu.args, *(event.args for event in chain)):
        elements = whole(args.elements)
        if elements is not None and elements >= 0 and isinstance(args.dtype, str):
            size = item_bytes(args.dtype)
            if size is not None:
                return size * elements, dtype_name(args.dtype)
    for event in chain:
        found = first_tensor(event)
        if found is not None:
            return found[2], found[1]
    return None, "float32"


def of_gradients(reductions: Sequence[Reduction], host: Sequence[Host]) -> list[Reduction]:
    """Those of ``reductions`` that exchange gradients, by their launch.

    With ``find_unused_parameters`` the hook that launches DDP's last bucket also reduces a map of the
    parameters that were used: whole numbers, and no gradient was completed since the reduction before.
    """
    completed_us = [event.start_us for event in host if event.name == ACCUMULATE]
    counts = [bisect_right(completed_us, reduction.gpu.call.start_us) for reduction in reductions]
    return [
        reduction
        for reduction, (before, now) in zip(reductions, pairwise([0, *counts]), strict=True)
        if now > before or reduction.dtype not in _WHOLE_NUMBERS
    ]
