"""Spans on lanes: what ran where and when, of a simulated or a measured run alike."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from hocket.notebook import ObjectSummary, Summarized
from hocket.text import counted, duration_text

Kind = Literal["forward", "backward", "update", "pull", "push", "parse", "reduce", "wait"]


class Span(msgspec.Struct, frozen=True, array_like=True):
    """Something that occupied ``lane`` from ``start_s`` to ``end_s``."""

    lane: int
    name: str
    kind: Kind
    start_s: float
    end_s: float


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """A resource that does one thing at a time, such as a worker's processor; ``process`` groups lanes."""

    process: str
    name: str


class Timeline(Summarized, msgspec.Struct, frozen=True, kw_only=True):
    """Spans of one run on lanes, simulated or measured.

    Attributes
    ----------
    title
        The run in words.
    lanes
        The resources that spans occupy, such as a worker's processor, in display order.
    spans
        (lane, name, kind, start_s, end_s) each, in seconds, in order of start.

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

    @property
    def end_s(self) -> float:
        """The end of the last span, 0.0 without spans."""
        return max((span.end_s for span in self.spans), default=0.0)

    def _summary(self) -> ObjectSummary:
        processes = len({lane.process for lane in self.lanes})
        lines = [
            ("spans", f"{len(self.spans)} on {counted(len(self.lanes), 'lane')}, processes: {processes}"),
            ("length", duration_text(self.end_s)),
        ]
        return ObjectSummary(f"Timeline: {self.title}", lines)
