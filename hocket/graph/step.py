"""One worker's training step as measured: operations, what they read and produce, and how long they take.

There is no communication in a :class:`StepGraph`; lowering adds it for an architecture and a plan.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hocket.graph.csr import Csr, Indices, topological_order
from hocket.graph.recorded_run import RecordedRun
from hocket.graph.step_memory import StepMemory
from hocket.notebook import ObjectSummary, Summarized
from hocket.text import counted, duration_text, scaled_text

Seconds = npt.NDArray[np.float64]

MEASURE_AGAIN = "do not decide by it, measure again on a quiet machine"
"""The part of a caveat that says that nothing follows from the step."""


class Phase(IntEnum):
    """The part of the step that an operation belongs to."""

    FORWARD = 0
    BACKWARD = 1
    UPDATE = 2


PHASE_NAMES = tuple(phase.name.lower() for phase in Phase)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class StepGraph(Summarized):
    """One worker's training step as measured: operations, what they wait for, and how long they take.

    Build it with :func:`hocket.profile`, :func:`hocket.load_step` or
    :func:`hocket.graph.format_rules.step_from_rows`. Arrays are aligned with ``operation_names`` (n of them)
    and ``parameter_names`` (p of them), both in the order in which the program ran. A relation is a
    :class:`hocket.graph.Csr` of n rows: its ``row(i)`` is the array of what operation i is related to.

    Attributes
    ----------
    model, device
        The names of the network, and of what it was measured on.
    batch_size
        Examples a step.
    parameter_names, parameter_shapes, parameter_dtypes
        p of each; types as torch writes them without its name: "float32", "bfloat16".
    parameter_bytes
        (p,): the size of each parameter, in bytes.
    operation_names
        n of them.
    phases
        (n,): each operation's :class:`hocket.graph.step.Phase`: forward 0, backward 1, update 2.
    durations_s
        (n, samples): seconds; column k of every operation is the same measured step.
    inputs, reads, produces
        Relations: indices of the operations that must have ended before operation i, of the parameters that
        must be there, and of those whose gradients are complete after it.
    caveat
        Which way the durations err, and why, in words; "" where nothing is known to.
    precision
        The precision that a derived step is for, such as "amp"; "" for what was measured.
    expected_error
        The share of themselves that a derived step's durations may be off by, as in nine of ten comparisons
        with published figures; 0 where that is not known.
    memory
        The memory that the step needs of its device, a :class:`hocket.StepMemory`; None where it is not
        known, as of steps that were measured.
    recorded
        The job of several ranks that the step was recorded from, as
        :class:`hocket.graph.recorded_run.RecordedRun` has it; None for what was profiled alone.

    Examples
    --------
    >>> import hocket
    >>> graph = hocket.load_step("step.json")
    >>> graph.durations_s.shape == (graph.num_operations, graph.num_samples)
    True
    >>> [graph.parameter_names[k] for k in graph.reads.row(0)]
    ['0.weight', '0.bias']
    """

    model: str
    batch_size: int
    device: str
    parameter_names: tuple[str, ...]
    parameter_shapes: tuple[tuple[int, ...], ...]
    parameter_dtypes: tuple[str, ...]
    parameter_bytes: Indices
    operation_names: tuple[str, ...]
    phases: npt.NDArray[np.int8]
    durations_s: Seconds
    inputs: Csr
    reads: Csr
    produces: Csr
    caveat: str = ""
    precision: str = ""
    expected_error: float = 0.0
    memory: StepMemory | None = None
    recorded: RecordedRun | None = None

    @property
    def num_operations(self) -> int:
        """Number of operations."""
        return len(self.operation_names)

    @property
    def num_parameters(self) -> int:
        """Number of parameters."""
        return len(self.parameter_names)

    @property
    def num_samples(self) -> int:
        """Number of measured steps."""
        return int(self.durations_s.shape[1])

    @cached_property
    def order(self) -> Indices:
        """The operations' indices, each after its inputs, in file order where that can be; shape (n,)."""
        order = topological_order(self.inputs)
        assert order is not None, "a StepGraph is built by validation, which refuses cycles"
        return order

    @cached_property
    def produced(self) -> npt.NDArray[np.bool_]:
        """True for each parameter whose gradient an operation produces (it is trained); shape (p,)."""
        mask = np.zeros(self.num_parameters, dtype=bool)
        mask[self.produces.indices] = True
        return mask

    @cached_property
    def oracle_s(self) -> Seconds:
        """Each operation's minimum over the sampled steps, in seconds; shape (n,).

        Source: the time oracle of Hashemi et al., "TicTac" (SysML 2019), section 5.
        """
        return self.durations_s.min(axis=1) if self.num_operations else np.zeros(0)

    def typical(self) -> StepGraph:
        """The step of which each operation takes its median over the sampled steps: one sample."""
        return replace(self, durations_s=np.median(self.durations_s, axis=1, keepdims=True))

    def first_reader(self) -> Indices:
        """For each parameter, the position in ``order`` of its first reader, n without one; shape (p,)."""
        position = np.empty(self.num_operations, dtype=np.int64)
        position[self.order] = np.arange(self.num_operations)
        first = np.full(self.num_parameters, self.num_operations, dtype=np.int64)
        np.minimum.at(first, self.reads.indices, position[self.reads.row_of_entry()])
        return first

    def gradient_ready(self) -> Indices:
        """For each parameter, the position in ``order`` of what completes its gradient, or -1; shape (p,)."""
        position = np.empty(self.num_operations, dtype=np.int64)
        position[self.order] = np.arange(self.num_operations)
        last = np.full(self.num_parameters, -1, dtype=np.int64)
        np.maximum.at(last, self.produces.indices, position[self.produces.row_of_entry()])
        return last

    def _summary(self) -> ObjectSummary:
        phases = [f"{int((self.phases == k).sum())} {name}" for k, name in enumerate(PHASE_NAMES)]
        size = scaled_text(float(self.parameter_bytes.sum()), "B")
        step = duration_text(float(self.durations_s.sum()) / self.num_samples)
        needed = [] if self.memory is None else [("memory", f"{self.memory.needed()} GB")]
        return ObjectSummary(
            f"StepGraph of {self.model}, batch size {self.batch_size}, on {self.device}",
            [
                ("operations", f"{self.num_operations}: {', '.join(phases)}"),
                ("parameters", f"{self.num_parameters}, {size}; {int(self.produced.sum())} are trained"),
                ("computing", f"{step} a step, the mean of {counted(self.num_samples, 'sample')}"),
                *needed,
            ],
        )
