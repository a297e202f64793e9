"""The parts of a scheduling policy."""

from __future__ import annotations

from dataclasses import dataclass

# In which order jobs are placed, transfer and compute.
SERVICE_LEFT, ARRIVAL, SERVICE_ATTAINED = range(3)
# Orders in which a job that computes stays ahead of those that it is ahead of and that wait. The engine
# passes many iterations at once there; of an order that is not listed it passes each by itself.
_STEADY = (SERVICE_LEFT, ARRIVAL)
# Which transfers may run together.
FEWER_THAN, ADADUAL, KWAY, BY_SERVICE, BY_BYTES = range(5)


@dataclass(frozen=True, kw_only=True)
class SchedulingPolicy:
    """Numbers by which the compiled engine tells policies apart.

    Attributes
    ----------
    name : as users write it.
    order, admission : one of the constants above.
    limit : how many transfers a server carries at most.
    by_user : whether jobs of one priority queue by what their users have had, before ``order``.
    passes_over : whether jobs that fit are placed before one ahead of them that does not.
    requeues : whether jobs leave their GPUs, and queue again, for one ahead of them that does not fit.
    """

    name: str
    order: int = SERVICE_LEFT
    admission: int = FEWER_THAN
    limit: int = 1
    by_user: bool = False
    passes_over: bool = True
    requeues: bool = False

    @property
    def preemptive(self) -> bool:
        """True if a transfer leaves its links to another one at the end of a chunk."""
        return self.admission in (BY_SERVICE, BY_BYTES)

    @property
    def exclusive(self) -> bool:
        """True if a server carries one transfer at a time."""
        return self.preemptive or (self.admission == FEWER_THAN and self.limit == 1)

    @property
    def steady(self) -> bool:
        """True if a job that computes stays ahead of those that it is ahead of and that wait."""
        return self.order in _STEADY
