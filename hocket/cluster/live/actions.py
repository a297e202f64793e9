"""Actions that the engine's decisions ask of a manager."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Resize:
    """A job's other GPUs, ascending, with which it goes on once its ranks have saved.

    ``ahead``: the job that gets GPUs of it; empty where it takes more.
    """

    gpus: tuple[int, ...]
    ahead: str


@dataclass
class Actions:
    """Things to do next: jobs to start with their GPUs; ranks that may compute; jobs whose chunk may go.

    ``preemptions``: of jobs whose ranks are to end, the job that gets GPUs of theirs; ``resizes``: of those
    whose ranks are to end, too, what they go on with.
    """

    placements: dict[str, list[int]] = field(default_factory=dict)
    preemptions: dict[str, str] = field(default_factory=dict)
    resizes: dict[str, Resize] = field(default_factory=dict)
    compute: list[tuple[str, int]] = field(default_factory=list)
    transfer: list[str] = field(default_factory=list)
