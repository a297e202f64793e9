"""Memory that a step needs of its device, in bytes and by part, for any batch and any way of sharding.

A step's tensors come and go: what it needs is the most that is there at once. Which moment that is depends
on the batch, so that a :class:`StepMemory` keeps the few moments that may be it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from hocket.errors import HocketError, UnknownNameError
from hocket.notebook import ObjectSummary, Summarized
from hocket.text import counted, digits, scaled_text

Sharding = Literal["none", "optimizer", "gradients", "parameters"]
"""The parts that workers share out: none (DistributedDataParallel), the optimizer's state (ZeRO-1), gradients
as well (ZeRO-2), parameters as well (ZeRO-3, FSDP)."""
SHARDINGS: tuple[Sharding, ...] = get_args(Sharding)

CONTEXT_BYTES = 1e9
"""Assumed, beside tensors: the driver's context, libraries, and the workspaces of kernels."""
FRAGMENTS = 0.05
"""Assumed: the share of tensors that come and go which the allocator holds beside them."""
_MOST_EXAMPLES = 2**31


@dataclass(frozen=True, kw_only=True)
class MemoryMoment:
    """A moment of a step that may be the one of most memory.

    Attributes
    ----------
    phase
        The part of the step that it is in: "forward", "backward" or "update".
    gradients_bytes
        Gradients of parameters that are there.
    fixed_bytes
        Other tensors that come and go, as large for any batch; in an update, the optimizer's.
    bytes_per_example
        Other tensors that come and go, for each example: activations, their gradients, the batch.

    Examples
    --------
    >>> import hocket
    >>> hocket.MemoryMoment(
    ...     phase="forward", gradients_bytes=0.0, fixed_bytes=0.0, bytes_per_example=1e6
    ... ).bytes_per_example
    1000000.0
    """

    phase: Literal["forward", "backward", "update"]
    gradients_bytes: float
    fixed_bytes: float
    bytes_per_example: float


@dataclass(frozen=True, kw_only=True)
class MemoryNeed:
    """The bytes that a device needs for a step at its fullest moment, by part.

    Attributes
    ----------
    batch_size, workers, sharding
        Examples of one device's step, the number of devices, and what these share out.
    phase
        The part of the step that the fullest moment is in: "forward", "backward" or "update".
    parameters_bytes, gradients_bytes, optimizer_bytes
        Bytes of them on this device at that moment; buffers of modules count as parameters.
    activations_bytes
        Tensors for the backward pass, temporary ones of operations, and the batch.
    update_bytes
        Temporary tensors of the optimizer, where the fullest moment is an update.
    exchange_bytes
        Buckets of gradients, or parameters and gradients that are gathered for a while; 0 for one worker.
    overhead_bytes
        Assumed: 1 GB for the driver's context, libraries and workspaces, and 5% of what comes and goes.

    Examples
    --------
    >>> import hocket
    >>> moment = hocket.MemoryMoment(
    ...     phase="forward", gradients_bytes=0.0, fixed_bytes=0.0, bytes_per_example=1e9)
    >>> need = hocket.StepMemory(
    ...     batch_size=2, parameters_bytes=3e9, gradients_bytes=3e9, optimizer_bytes=6e9, moments=(moment,)
    ... ).needed()
    >>> print(need)
    parameters 3, optimizer 6, activations 2, overhead 1.1 assumed
    >>> need.total_bytes / 1e9
    12.1
    """

    batch_size: int
    workers: int
    sharding: Sharding
    phase: str
    parameters_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float
    update_bytes: float
    exchange_bytes: float
    overhead_bytes: float

    @property
    def total_bytes(self) -> float:
        """The sum of all parts."""
        return sum(size for _, size in self.parts())

    def parts(self) -> Iterator[tuple[str, float]]:
        """Names and bytes of all parts."""
        for name in ("parameters", "gradients", "optimizer", "activations", "update", "exchange", "overhead"):
            yield name, getattr(self, f"{name}_bytes")

    def __str__(self) -> str:
        shown = [f"{name} {digits(size / 1e9)}" for name, size in self.parts() if size >= 5e6]
        return f"{', '.join(shown)} assumed"


@dataclass(frozen=True, kw_only=True, repr=False)
class StepMemory(Summarized):
    """The memory that one worker's step needs of its device, for any batch; ``StepGraph.memory`` has it.

    Attributes
    ----------
    batch_size
        Examples of the step that was recorded.
    parameters_bytes, buffers_bytes, gradients_bytes, optimizer_bytes
        All of them, as large for any batch; gradients of trained parameters.
    block_bytes, root_bytes
        Parameters that sharding gathers together: the largest block (a numbered module, such as
        ``layers.0``), and those in no block.
    masters_bytes
        Bytes that float32 copies of two-byte parameters, and the optimizer's state in float32, would add.
    moments
        The moments that may be fullest.
    scales
        False where tensors do not grow with the batch as a fixed part and one for each example.

    Examples
    --------
    >>> import hocket
    >>> memory = hocket.StepMemory(
    ...     batch_size=1, parameters_bytes=27e9, gradients_bytes=27e9, optimizer_bytes=54e9,
    ...     block_bytes=0.8e9, root_bytes=1e9, moments=(hocket.MemoryMoment(
    ...         phase="backward", gradients_bytes=27e9, fixed_bytes=0.0, bytes_per_example=2e9),))
    >>> memory.largest_batch(80e9)
    0
    >>> round(memory.needed(1, workers=8, sharding="parameters").total_bytes / 1e9)
    22
    >>> memory.largest_batch(80e9, workers=8, sharding="parameters")
    28
    """

    batch_size: int
    parameters_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    moments: tuple[MemoryMoment, ...]
    buffers_bytes: float = 0.0
    block_bytes: float = 0.0
    root_bytes: float = 0.0
    masters_bytes: float = 0.0
    scales: bool = True

    def needed(
        self,
        batch_size: int | None = None,
        *,
        workers: int = 1,
        sharding: Sharding = "none",
        bucket_views: bool = False,
        held: Mapping[str, float] | None = None,
    ) -> MemoryNeed:
        """The need of one of ``workers`` devices, each with a batch of its own.

        Parameters
        ----------
        batch_size
            Examples a device; None: those of the recorded step.
        workers
            Devices that exchange gradients. From two on there are buckets: without sharding of gradients one
            more copy of them, as DistributedDataParallel has, with ``bucket_views`` none
            (``gradient_as_bucket_view=True``, and :func:`hocket.distribute`; gradients are then there all the
            time). Shared out, parameters
            outside blocks and two blocks are gathered at a time, and their gradients in the backward pass.
        sharding
            The tensors that workers share out.
        held
            The bytes that are there for the exchange alone, by phase, in place of what is said above.

        Raises
        ------
        HocketError
            For senseless numbers, and for another batch than the recorded one where ``scales`` is False.
        """
        examples = self.batch_size if batch_size is None else batch_size
        self._check(examples, workers, sharding)
        needs = (
            self._need(
                moment,
                examples,
                workers,
                sharding,
                self._exchanged(moment, workers, sharding, bucket_views)
                if held is None
                else held[moment.phase],
            )
            for moment in self.moments
        )
        return max(needs, key=lambda need: need.total_bytes)

    def largest_batch(
        self,
        capacity_bytes: float,
        *,
        workers: int = 1,
        sharding: Sharding = "none",
        bucket_views: bool = False,
    ) -> int:
        """The most examples a device with which the step fits into ``capacity_bytes``; 0: not even one.

        The options are those of :meth:`needed`.

        Raises
        ------
        HocketError
            As :meth:`needed` does.
        """
        self._check(1, workers, sharding)

        def fits(examples: int) -> bool:
            need = self.needed(examples, workers=workers, sharding=sharding, bucket_views=bucket_views)
            return need.total_bytes <= capacity_bytes

        if not fits(1):
            return 0
        least, most = 1, _MOST_EXAMPLES
        while most - least > 1:
            middle = (least + most) // 2
            least, most = (middle, most) if fits(middle) else (least, middle)
        return least

    def with_masters(self) -> StepMemory:
        """This step with float32 copies of two-byte parameters, and float32 state, as mixed precision has."""
        if not self.masters_bytes:
            return self
        # The optimizer's temporary tensors are of float32 then, too.
        moments = tuple(
            replace(moment, fixed_bytes=2 * moment.fixed_bytes) if moment.phase == "update" else moment
            for moment in self.moments
        )
        optimizer_bytes = self.optimizer_bytes + self.masters_bytes
        return replace(self, optimizer_bytes=optimizer_bytes, masters_bytes=0.0, moments=moments)

    def _check(self, examples: int, workers: int, sharding: Sharding) -> None:
        if examples < 1 or workers < 1:
            raise HocketError(f"batch_size={examples} and workers={workers} must each be at least 1")
        if sharding not in SHARDINGS:
            raise UnknownNameError("sharding", sharding, SHARDINGS)
        if examples != self.batch_size and not self.scales:
            raise HocketError(
                f"memory of a batch of {examples} is not known: tensors of this step do not grow evenly with"
                f" the batch; profile it with --batch-size {examples}"
            )

    def _need(
        self,
        moment: MemoryMoment,
        examples: int,
        workers: int,
        sharding: Sharding,
        exchange: float,
    ) -> MemoryNeed:
        level = SHARDINGS.index(sharding)
        of_optimizer, of_gradients, of_parameters = (
            1 / workers if level >= SHARDINGS.index(part) else 1.0
            for part in ("optimizer", "gradients", "parameters")
        )
        is_update = moment.phase == "update"
        come_and_go = moment.fixed_bytes + moment.bytes_per_example * examples
        come_and_go *= of_optimizer if is_update else 1.0
        gradients = moment.gradients_bytes * of_gradients
        return MemoryNeed(
            batch_size=examples,
            workers=workers,
            sharding=sharding,
            phase=moment.phase,
            parameters_bytes=self.parameters_bytes * of_parameters + self.buffers_bytes,
            gradients_bytes=gradients,
            optimizer_bytes=self.optimizer_bytes * of_optimizer,
            activations_bytes=0.0 if is_update else come_and_go,
            update_bytes=come_and_go if is_update else 0.0,
            exchange_bytes=exchange,
            overhead_bytes=CONTEXT_BYTES + FRAGMENTS * (come_and_go + gradients + exchange),
        )

    def _exchanged(self, moment: MemoryMoment, workers: int, sharding: Sharding, bucket_views: bool) -> float:
        """Bytes that are there for the exchange with other workers alone."""
        if workers == 1:
            return 0.0
        if sharding in ("none", "optimizer"):
            return self.gradients_bytes - (moment.gradients_bytes if bucket_views else 0.0)
        gathered = 0.0 if moment.phase == "update" else self.root_bytes + 2 * self.block_bytes
        of_gradients = gathered * self.gradients_bytes / max(self.parameters_bytes, 1.0)
        if sharding == "gradients":
            return of_gradients if moment.phase == "backward" else 0.0
        return gathered + (of_gradients if moment.phase == "backward" else 0.0)

    def _summary(self) -> ObjectSummary:
        need = self.needed()
        return ObjectSummary(
            f"StepMemory of {counted(self.batch_size, 'example')}: {scaled_text(need.total_bytes, 'B')}",
            [("GB", str(need)), ("fullest", f"in the {need.phase}")],
        )
