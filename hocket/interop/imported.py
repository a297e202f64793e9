"""What importers share: their result, and how they count."""

from __future__ import annotations

from typing import NamedTuple

from hocket.graph import StepGraph


class Imported(NamedTuple):
    """A trace as a step, and what was found and assumed for that, a line each."""

    graph: StepGraph
    notes: tuple[str, ...]


def counted(count: int, what: str) -> str:
    """``1 step``, ``3 steps``."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
