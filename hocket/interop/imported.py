"""What importers share: their result, and names that occur once."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from hocket.graph import StepGraph


class Imported(NamedTuple):
    """A trace as a step, and what was found and assumed for that, a line each."""

    graph: StepGraph
    notes: tuple[str, ...]


class Names:
    """Names as asked for; the second of a kind gets ``.2``, the third ``.3``."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def take(self, name: str) -> str:
        """Return ``name`` or the first free numbering of it."""
        candidate = name
        while candidate in self._counts:
            self._counts[name] += 1
            candidate = f"{name}.{self._counts[name]}"
        self._counts[candidate] += 1
        return candidate


def counted(count: int, what: str) -> str:
    """``1 step``, ``3 steps``."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
