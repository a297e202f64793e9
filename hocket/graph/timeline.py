"""Spans on lanes: what ran where and when, of a simulated or a measured run alike."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

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


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Spans of one run, lanes in display order; ``title`` says what run it is."""

    title: str
    lanes: tuple[Lane, ...]
    spans: Annotated[tuple[Span, ...], msgspec.Meta(description="in order of start")]

    @property
    def end_s(self) -> float:
        """The end of the last span, 0.0 without spans."""
        return max((span.end_s for span in self.spans), default=0.0)
