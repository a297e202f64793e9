"""The result of an import: a step, and what was found and assumed for it."""

from __future__ import annotations

from typing import NamedTuple

from hocket.graph import StepGraph


class ImportedStep(NamedTuple):
    """A trace as a step, and what was found and assumed for that, a line each."""

    graph: StepGraph
    notes: tuple[str, ...]
