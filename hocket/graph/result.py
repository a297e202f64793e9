"""The result of a plan, simulated or measured: the row that commands print and reports rank."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import msgspec

from hocket.errors import FormatError
from hocket.graph.plan import ARCHITECTURE_NAMES, Predicted
from hocket.notebook import ObjectSummary, Summarized
from hocket.text import counted, duration_text, rate_text

_NOT_NEGATIVE = (
    "iteration_s",
    "iteration_p95_s",
    "straggler_fraction",
    "compute_s",
    "communication_s",
    "rho",
    "utilization",
    "bound_s",
    "throughput",
    "events",
    "wall_s",
    "servers",
)

WAITING = 0.1
"""The fraction of a step from which waits for other workers' slow steps are told of."""
LEVEL = 5e-4
"""Times that differ by no more, relatively, are told as equal."""


def is_level(one_s: float, other_s: float) -> bool:
    """Tell whether two times are told as equal."""
    return math.isclose(one_s, other_s, rel_tol=LEVEL)


class ResultRow(Summarized, msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one policy on one network; times in seconds.

    The fields are the keys of ``simulate --json``.

    Attributes
    ----------
    policy, model
        The names of what planned, and of the network that trains.
    architecture
        "ps" (parameter servers), "allreduce", or "fsdp" (fully sharded).
    workers, servers
        Numbers of machines; ``servers`` is 0 without parameter servers.
    iteration_s, iteration_p95_s
        The mean of ``iterations_s``, T below, and the 95th percentile: 95% of the steps take at most that.
    straggler_fraction
        The mean over steps of the longest wait of a worker for the last one, as a fraction of the step.
    compute_s, communication_s
        C and N: a worker's computing and transfers in one step; where steps overlap, what of them ran in the
        measured time, so that neither exceeds T.
    rho
        N / C.
    overlap
        (N + C - T) / min(N, C): 1 where all of the shorter is hidden.
    utilization
        C / T.
    bound_s
        A proven lower limit of ``iteration_s``.
    throughput
        Examples a second over all workers.
    events, wall_s
        The simulator's own work: operations and transfers, and the seconds that took.
    status
        "optimal" or "feasible" (not proven) of a planner that proves optima, else "".
    iterations_s
        Each measured step.
    bucket_bytes
        The size of DDP's buckets that policy "ddp-best" chose, else None.
    memory_bytes
        Fully sharded: the memory that a worker's device needs, as :func:`hocket.simulate` counts it; None
        for others.

    Examples
    --------
    >>> import hocket
    >>> graph, network = hocket.load_step("step.json"), hocket.Network(num_workers=4)
    >>> row = hocket.simulate(graph, hocket.plan(graph, network, "ddp"), network, iterations=5).row
    >>> row.title, row.workers, row.servers, len(row.iterations_s)
    ('ddp', 4, 0, 5)
    """

    policy: str
    model: str = ""
    architecture: str = "ps"
    workers: int
    servers: int
    iteration_s: float
    iteration_p95_s: float
    straggler_fraction: float
    compute_s: float
    communication_s: float
    rho: float
    overlap: float
    utilization: float
    bound_s: float
    throughput: float
    events: int
    wall_s: float
    status: Literal["", "optimal", "feasible"] = ""
    iterations_s: tuple[float, ...] = ()
    bucket_bytes: Annotated[int, msgspec.Meta(ge=1)] | None = None
    memory_bytes: float | None = None

    @property
    def title(self) -> str:
        """The policy's name; "ddp-best (1 MiB)" has its size, "exact (not proven)" is a "feasible" one."""
        if self.bucket_bytes is not None:
            return f"{self.policy} ({self.bucket_bytes >> 20} MiB)"
        return f"{self.policy} (not proven)" if self.status == "feasible" else self.policy

    def predicted(self) -> Predicted:
        """The part of the row that a plan carries."""
        return Predicted(**{name: getattr(self, name) for name in Predicted.__struct_fields__})

    def _summary(self) -> ObjectSummary:
        workers = counted(self.workers, "worker")
        if self.servers:
            workers += f" and {counted(self.servers, 'server')}"
        over = f"; the step is {self.iteration_s / self.bound_s - 1:.1%} over it" if self.bound_s > 0 else ""
        p95 = duration_text(self.iteration_p95_s)
        computing, transfers = duration_text(self.compute_s), duration_text(self.communication_s)
        return ObjectSummary(
            f"ResultRow of '{self.policy}': {self.model or 'a model'},"
            f" {ARCHITECTURE_NAMES.get(self.architecture, self.architecture)}, {workers}",
            [
                ("step", f"{duration_text(self.iteration_s)}; 95% take at most {p95}"),
                ("throughput", rate_text(self.throughput)),
                ("bound", f"{duration_text(self.bound_s)}{over}"),
                ("a worker", f"computing {computing}, transfers {transfers}, overlap {self.overlap:.3f}"),
            ],
        )


def check_row(row: ResultRow, source: str, field: str = "") -> None:
    """Refuse a row with a negative time, count or ratio, or without a worker.

    Raises
    ------
    FormatError
        Naming ``source``, the key below ``field``, and the rule.
    """
    prefix = f"{field}." if field else ""
    if row.workers < 1:
        raise FormatError(source, f"{prefix}workers", f"{row.workers} is not 1 or more")
    values = {key: getattr(row, key) for key in _NOT_NEGATIVE}
    values |= {f"iterations_s[{i}]": value for i, value in enumerate(row.iterations_s)}
    for key, value in values.items():
        if value < 0:
            raise FormatError(source, prefix + key, f"{value} is negative; it must be 0 or more")


def overlap_of(communication_s: float, compute_s: float, iteration_s: float) -> float | None:
    """The overlap coefficient: 1 hides all of the shorter; None when that is nothing.

    Source: Hashemi et al., "TicTac" (SysML 2019), section 3.2.

    It is below 0 where a step also waits for what is neither, such as updates on the servers.
    """
    shorter_s = min(communication_s, compute_s)
    return (communication_s + compute_s - iteration_s) / shorter_s if shorter_s > 0 else None
