"""The progress of a job: how far its ranks are, how far the engine has them, and what they wait for."""

from __future__ import annotations

from dataclasses import dataclass, field

from hocket.cluster.jobs import Job


@dataclass(frozen=True)
class TimeParts:
    """The parts of a job's time on its GPUs, in seconds."""

    computing_s: float
    gpu_wait_s: float
    transferring_s: float
    network_wait_s: float


@dataclass(eq=False)
class JobProgress:
    """The progress of a job.

    ``gpus``, ``iterations``: those that it has, or needs at least while it queues, and its own on so many.
    ``reported``: whether a rank of this attempt has talked to the gate. ``tasks_ended``: of each rank how
    many tasks it says it has ended, two an iteration;
    ``tasks_in_engine``: how many of them the engine knows of. ``iterations_before``, ``iterations_done``:
    those that were over when it was added, and are now. ``iterations_transferred``: those whose transfers
    have ended. ``chunks_granted``: how many of the transfer under way were let go. ``connected_ranks``: those
    that talk to the gate, ``parked_ranks``: those that do not and have left their GPU; ``task_requests``,
    ``transfer_request``: the task that each waits for, and the iteration whose chunk rank 0 waits with.
    ``parts_at_leaving``: of a job that was preempted or resized, and whose ranks have yet to end, what its
    time went into until then; its row is that of what comes after, all else here of these ranks.
    """

    job: Job
    row: int
    free_running: bool
    gpus: int = 0
    iterations: int = 0
    reported: bool = False
    iterations_before: int = 0
    iterations_done: int = 0
    tasks_ended: list[int] = field(default_factory=list)
    tasks_in_engine: list[int] = field(default_factory=list)
    iterations_transferred: int = 0
    chunks_granted: int = 0
    connected_ranks: set[int] = field(default_factory=set)
    parked_ranks: set[int] = field(default_factory=set)
    task_requests: dict[int, int] = field(default_factory=dict)
    transfer_request: int | None = None
    parts_at_leaving: TimeParts | None = None

    @property
    def leaves(self) -> bool:
        """True while its ranks save, since it has been preempted or resized."""
        return self.parts_at_leaving is not None

    def take_number(self, gpus: int, iterations_done: int) -> None:
        """Let it have so many GPUs, whose ranks have done nothing yet, and so many iterations over."""
        self.gpus, self.iterations = gpus, self.job.iterations_on(gpus)
        self.iterations_before = self.iterations_done = self.iterations_transferred = iterations_done
        self.tasks_ended = [2 * iterations_done] * gpus
        self.tasks_in_engine = [2 * iterations_done] * gpus
