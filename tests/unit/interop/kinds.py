"""Traces of training as people do it: four layers, a few steps, and what is exchanged, in a few calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.unit.interop.traces import ACCUMULATE, COMMUNICATING, ENGINE, MAIN, NODE, Kineto

SIDE = 4096  # elements of a layer; small enough for a step's bytes to be seen at a glance
LAYERS = (SIDE,) * 4
MIB = 4 * sum(LAYERS)  # of gradients
ITEM_BYTES = {"Float": 4, "BFloat16": 2}

Hook = Callable[["Training", int, float], None]


class Training(Kineto):
    """Events of one rank's training; ``at`` is the host's time, ``busy`` the GPU's, in microseconds."""

    def __init__(
        self, rank: int = 0, *, layers: Sequence[int] = LAYERS, shapes: bool = True, sizes: bool = True
    ) -> None:
        super().__init__(rank)
        self.layers, self.shapes, self.sizes = tuple(layers), shapes, sizes
        self.at, self.busy, self.sequence = 1000.0, 1000.0, 0
        self.marks = 0

    def mark(self, begun: float) -> None:
        """End a marked step that began then."""
        self.at = max(self.at, self.busy) + 5
        self.host(f"ProfilerStep#{self.marks}", begun, self.at - 1, cat="user_annotation")
        self.marks += 1

    def run(self, name: str, *, thread: int = MAIN, us: float = 100, stream: int = 7, **args: Any) -> None:
        """Launch something on the GPU."""
        self.launch(self.at + 1, self.busy, self.busy + us, thread=thread, stream=stream, name=name, **args)
        self.busy += us
        self.at += 4

    def forward(self) -> None:
        for size in self.layers:
            dims = {"Input Dims": [[32, size], [size]], "Input type": ["float", "float"]}
            self.host("aten::addmm", self.at, self.at + 4, **{"Sequence number": self.sequence, **dims})
            self.run("gemm")
            self.sequence += 1

    def backward(self, hook: Hook | None = None) -> None:
        first = self.sequence - len(self.layers)
        for i in reversed(range(len(self.layers))):
            args = {"Sequence number": first + i, "Fwd thread id": 1}
            self.host(NODE + "AddmmBackward0", self.at, self.at + 5, ENGINE, **args)
            self.run("gemm", thread=ENGINE, us=200)
            self.at += 2
            begun = self.at
            dims = {"Input Dims": [[self.layers[i]]], "Input type": ["float"]} if self.shapes else {}
            self.host(ACCUMULATE, self.at + 1, self.at + 2, ENGINE, **dims)
            self.at += 3
            if hook is not None:
                hook(self, i, self.at)
            self.at += 2
            self.host(NODE + ACCUMULATE, begun, self.at, ENGINE)
            self.at += 1

    def collective(
        self, kind: str, elements: int, *, thread: int = ENGINE, dtype: str = "Float", us: float = 150,
        group: str = "default_pg", around: str | None = None, said: bool | None = None,
    ) -> None:  # fmt: skip
        """A collective of that many elements, of a known size unless the trace tells none."""
        told = {"Collective name": kind, "In msg nelems": elements, "dtype": dtype}
        args = {**told, "Process Group Description": group} if (self.sizes if said is None else said) else {}
        self.host(around or f"c10d::{kind}_", self.at, self.at + 4, thread)
        kernel = {"reduce_scatter": "ReduceScatter", "allgather": "AllGather", "send": "SendRecv"}
        name = f"ncclDevKernel_{kernel.get(kind, kind.title().replace('reduce', 'Reduce'))}(int)"
        self.run(name, thread=thread, us=us, stream=COMMUNICATING, **args)

    def update(self, name: str = "SGD") -> None:
        self.host(f"Optimizer.step#{name}.step", self.at, self.at + 8, cat="user_annotation")
        self.at += 1
        self.host("aten::_foreach_add_", self.at, self.at + 5)
        self.run("multi_tensor_apply", us=80)
        self.at += 6


def buckets(*ends: int, dtype: str = "Float", around: str | None = None) -> Hook:
    """DDP's hooks: when the gradient of a layer in ``ends`` is complete, all since the last are reduced."""

    def hook(trace: Training, layer: int, _: float) -> None:
        if layer in ends:
            before = min((end for end in ends if end > layer), default=len(trace.layers))
            trace.collective("allreduce", sum(trace.layers[layer:before]), dtype=dtype, around=around)

    return hook


DDP = buckets(2, 0)


def steps(
    trace: Training, one: Callable[[Training], None], count: int = 3, *, marked: bool = True
) -> dict[str, Any]:
    """The document of ``count`` steps that are marked each, or not."""
    for _ in range(count):
        begun = trace.at
        one(trace)
        if marked:
            trace.mark(begun)
        trace.at = max(trace.at, trace.busy) + 5
    return trace.document()


def usual(trace: Training, hook: Hook | None = DDP, optimizer: str = "SGD") -> None:
    """A step under DDP."""
    trace.forward()
    trace.backward(hook)
    trace.update(optimizer)


def by_hand(trace: Training, extra: Callable[[Training], None] = lambda _: None) -> None:
    """Each gradient averaged after the backward pass."""
    trace.forward()
    trace.backward()
    for size in trace.layers:
        trace.collective("allreduce", size, thread=MAIN)
    extra(trace)
    trace.update()
