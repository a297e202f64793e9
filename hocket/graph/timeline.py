"""Spans on lanes: what ran where and when, of a simulated or a measured run alike."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from hocket.notebook import ObjectSummary, Summarized
from hocket.text import counted, duration_text, scaled_text

Kind = Literal["forward", "backward", "update", "pull", "push", "parse", "reduce", "wait"]


class Span(msgspec.Struct, frozen=True, array_like=True):
    """Something that occupied a lane for a time.

    Attributes
    ----------
    lane
        The index in the timeline's ``lanes``.
    name
        The operation, or the parameters of a transfer.
    kind
        "forward", "backward", "update" (operations), "pull", "push", "reduce" (transfers), "parse" (unpacking
        a message) or "wait" (for a transfer, where it was measured).
    start_s, end_s
        Seconds since the run's beginning.

    Examples
    --------
    >>> from hocket.graph import Span
    >>> Span(lane=0, name="forward/0/addmm", kind="forward", start_s=0.0, end_s=0.5).end_s
    0.5
    """

    lane: int
    name: str
    kind: Kind
    start_s: float
    end_s: float


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """A resource that does one thing at a time, such as a worker's processor.

    Attributes
    ----------
    process
        The machine that it belongs to, such as "worker 0"; viewers group lanes by it.
    name
        The resource.

    Examples
    --------
    >>> from hocket.graph import Lane
    >>> Lane(process="worker 0", name="compute").name
    'compute'
    """

    process: str
    name: str


class MemoryPoint(msgspec.Struct, frozen=True, array_like=True):
    """A moment at which memory is taken or given back.

    Attributes
    ----------
    at_s
        Seconds since the run's beginning.
    held_bytes
        The bytes that are held from then on.

    Examples
    --------
    >>> from hocket.graph import MemoryPoint
    >>> MemoryPoint(at_s=0.5, held_bytes=4096).held_bytes
    4096
    """

    at_s: float
    held_bytes: int


class Timeline(Summarized, msgspec.Struct, frozen=True, kw_only=True):
    """Spans of one run on lanes, simulated or measured; :func:`hocket.save_timeline` writes it.

    Attributes
    ----------
    title
        The run in words.
    lanes
        The resources that spans occupy, each a :class:`hocket.graph.Lane`, in display order.
    spans
        Each a :class:`hocket.graph.Span`, in order of start.
    memory
        Fully sharded: what the first worker holds beside its shards, each a
        :class:`hocket.graph.MemoryPoint`, in order of time: full parameters, gradients, and buffers of
        collectives. Empty where it is not known.

    Examples
    --------
    >>> import hocket
    >>> graph, network = hocket.load_step("step.json"), hocket.Network(num_workers=2)
    >>> plan = hocket.plan(graph, network, "ddp")
    >>> shown = hocket.simulate(graph, plan, network, iterations=2, timeline=True).timeline
    >>> shown.end_s > 0
    True
    """

    title: str
    lanes: tuple[Lane, ...]
    spans: Annotated[tuple[Span, ...], msgspec.Meta(description="in order of start")]
    memory: Annotated[tuple[MemoryPoint, ...], msgspec.Meta(description="in order of time")] = ()

    @property
    def end_s(self) -> float:
        """The end of the last span, in seconds; 0.0 without spans."""
        return max((span.end_s for span in self.spans), default=0.0)

    def _summary(self) -> ObjectSummary:
        processes = len({lane.process for lane in self.lanes})
        lines = [
            ("spans", f"{len(self.spans)} on {counted(len(self.lanes), 'lane')}, processes: {processes}"),
            ("length", duration_text(self.end_s)),
        ]
        if self.memory:
            most = max(point.held_bytes for point in self.memory)
            lines.append(("memory", f"{scaled_text(most, 'B')} beside shards at most"))
        return ObjectSummary(f"Timeline: {self.title}", lines)
