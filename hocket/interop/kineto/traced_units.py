"""The units of a step that FSDP2 sharded: their parameters, what was gathered ahead, what was kept.

A unit's gradients are those that were completed last before they were scattered: they fill its message,
where each is padded to a multiple of the ranks in its first extent. Other parameters that a unit gathers are
not trained.
Where shapes are not recorded, or do not fill the messages, each unit is one parameter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from hocket.graph import Phase
from hocket.interop.kineto.accumulations import Accumulation
from hocket.interop.kineto.gradient_passes import completed
from hocket.interop.kineto.gradient_sizes import bytes_of
from hocket.interop.kineto.gradients import TracedGradients
from hocket.interop.kineto.launch_index import StepReader
from hocket.interop.kineto.tensors import ShapeOf, dtype_name, item_bytes
from hocket.interop.kineto.traced_collectives import TracedCollective
from hocket.interop.kineto.traced_operations import TracedStep
from hocket.interop.kineto.traced_parameters import Parameter, single
from hocket.interop.kineto.unit_marks import COPY_OUT, SCATTER, UnitTransfer, marked_unit

BY_UNITS = "all-gathers"
_RAW = ("uint8", "byte", "int8", "char")  # of values that were made smaller for the transfer


@dataclass(kw_only=True)
class TracedUnit:
    """A unit: the name of its module, its transfers, and places in the step's operations.

    ``copies_out`` and ``copies_again``: what copies its gathered parameters into place, in either pass;
    ``copies_in``: what copies its gradients together; ``parameters``: in the order of their reads.
    """

    name: str
    gather: TracedCollective
    scatter: TracedCollective | None = None
    gathered_again: bool = False
    copies_out: list[int] = field(default_factory=list)
    copies_again: list[int] = field(default_factory=list)
    copies_in: list[int] = field(default_factory=list)
    parameters: list[Parameter] = field(default_factory=list)

    @property
    def first_read(self) -> int:
        """The place of the first operation that reads one of its parameters."""
        return min((min(p.readers) for p in self.parameters if p.readers), default=2**62)


def find_units(step: TracedStep, shape_of: ShapeOf) -> tuple[TracedGradients, list[TracedUnit]]:
    """The parameters of a step with transfers, and its units in the order in which they are first read."""
    reader = StepReader(step)
    gradients, passes, alike = completed(step, reader, shape_of)
    units = _units_of(step)
    if not gradients or not reader.trains:
        return TracedGradients(), units
    shares = _shares(step, units, gradients)
    for unit in units:
        share = None if shares is None else shares[unit.name]
        own = [] if share is None else _own_parameters(unit, reader, share)
        unit.parameters = own or [_whole(unit, reader)]
        _place(unit)
    units.sort(key=lambda unit: unit.first_read)
    parameters = [parameter for unit in units for parameter in unit.parameters]
    parameters.sort(key=lambda parameter: min(parameter.readers, default=len(step.operations)))
    found = TracedGradients(
        parameters=parameters,
        sized_by=BY_UNITS if shares is None else "recorded shapes",
        count=len(gradients),
        shaped_bytes=bytes_of(gradients),
        passes=passes,
        alike=alike,
        begun_us=gradients[0].event.start_us,
    )
    return found, units


def _units_of(step: TracedStep) -> list[TracedUnit]:
    """The units by their transfers, each with the operations that copy its parameters and gradients."""
    units: dict[str, TracedUnit] = {}
    for transfer in step.transfers:
        if transfer.kind == "gather" and not transfer.again:
            units[transfer.unit] = TracedUnit(name=transfer.unit, gather=transfer.collective)
    for transfer in step.transfers:
        unit = units[transfer.unit]
        if transfer.kind == "scatter":
            unit.scatter = transfer.collective
        unit.gathered_again = unit.gathered_again or transfer.again
    for i, operation in enumerate(step.operations):
        chain = operation.gpu.call.host.chain() if operation.gpu.call.host is not None else []
        copied, scattered = marked_unit(chain, COPY_OUT), marked_unit(chain, SCATTER)
        if copied in units:
            unit = units[copied]
            (unit.copies_again if operation.phase == Phase.BACKWARD else unit.copies_out).append(i)
        elif scattered in units:
            unit = units[scattered]
            if unit.scatter is not None and operation.gpu.call.start_us < unit.scatter.gpu.call.start_us:
                unit.copies_in.append(i)
    return list(units.values())


def _shares(
    step: TracedStep, units: Sequence[TracedUnit], gradients: Sequence[Accumulation]
) -> dict[str, list[Accumulation]] | None:
    """The gradients of each unit; None where their shapes do not fill the messages."""
    by_name = {unit.name: unit for unit in units}
    left, shares = list(gradients), {unit.name: list[Accumulation]() for unit in units}
    for transfer in step.transfers:
        if transfer.kind != "scatter":
            continue
        complete = [g for g in left if g.event.start_us < transfer.collective.gpu.call.start_us]
        own = _filling(transfer, complete)
        if own is None or _trained(own, transfer) > (by_name[transfer.unit].gather.elements or 0):
            return None
        shares[transfer.unit] = own
        taken = set(map(id, own))
        left = [gradient for gradient in left if id(gradient) not in taken]
    raw = any(unit.gather.dtype in _RAW for unit in units)
    return None if left or raw else shares


def _filling(transfer: UnitTransfer, complete: Sequence[Accumulation]) -> list[Accumulation] | None:
    """The last of the complete gradients that together fill a message; None where none do."""
    wanted, total = transfer.collective.elements, 0
    for k in range(len(complete) - 1, -1, -1):
        shape = complete[k].shape
        if shape is None:
            return None
        total += _padded(shape[0], transfer.collective.group_size or 1)
        if total == wanted:
            return list(complete[k:])
    return None


def _trained(own: Sequence[Accumulation], transfer: UnitTransfer) -> int:
    ranks = transfer.collective.group_size or 1
    return sum(_padded(gradient.shape[0], ranks) for gradient in own if gradient.shape is not None)


def _padded(extents: Sequence[int], ranks: int) -> int:
    """Elements of a parameter of which each rank has as many rows."""
    first, *rest = extents or [1]
    return -(-first // ranks) * ranks * math.prod(rest)


def _own_parameters(unit: TracedUnit, reader: StepReader, own: Sequence[Accumulation]) -> list[Parameter]:
    """A unit's gradients as parameters, named after its module; all else that it gathers is one, frozen."""
    item = item_bytes(unit.gather.dtype) or 1
    dtype = dtype_name(unit.gather.dtype)
    ranks, trained = unit.gather.group_size or 1, 0
    for gradient in own:
        assert gradient.shape is not None
        extents = gradient.shape[0]
        gradient.shape = extents, dtype, math.prod(extents) * item
        trained += _padded(extents, ranks)
    parameters, _ = single(reader, own, unread=unit.copies_out)
    for parameter in parameters:
        parameter.name = _in(unit, parameter.name)
    parameters.reverse()
    frozen = (unit.gather.elements or 0) - trained
    if frozen > 0:
        name = _in(unit, "frozen")
        parameters.append(
            Parameter(
                name=name,
                shape=[frozen],
                dtype=dtype,
                size_bytes=frozen * item,
                producer=None,
                readers=list(unit.copies_out),
                bucket=0,
            )
        )
    return parameters


def _whole(unit: TracedUnit, reader: StepReader) -> Parameter:
    """A unit as one parameter."""
    scatter = unit.scatter
    return Parameter(
        name=_in(unit, "parameters"),
        shape=[unit.gather.elements or 0],
        dtype=dtype_name(unit.gather.dtype),
        size_bytes=unit.gather.size_bytes or 0,
        producer=None if scatter is None else reader.last_backward(scatter.gpu.call.start_us),
        readers=[],
        bucket=0,
    )


def _in(unit: TracedUnit, name: str) -> str:
    return f"{unit.name}.{name}" if unit.name else name


def _place(unit: TracedUnit) -> None:
    """Let the copies of a unit's parameters and gradients say from when to when it is needed in each pass."""
    first = min(unit.parameters, key=lambda p: min(p.readers, default=2**62))
    first.readers = sorted({*first.readers, *unit.copies_out})
    made = [
        (parameter.producer, parameter) for parameter in unit.parameters if parameter.producer is not None
    ]
    if not made:
        first.readers = sorted({*first.readers, *unit.copies_again})
        return
    _, early = min(made, key=lambda pair: pair[0])
    _, late = max(made, key=lambda pair: pair[0])
    early.readers = sorted({*early.readers, *unit.copies_again})
    late.readers = sorted({*late.readers, *unit.copies_in})


def scattered_per_gathered(units: Sequence[TracedUnit]) -> float:
    """Bytes of gradients that are scattered for each byte of their parameters, as gathered."""
    sent = gathered = 0
    for unit in units:
        if unit.scatter is not None:
            sent += unit.scatter.size_bytes or 0
            gathered += (unit.scatter.elements or 0) * (item_bytes(unit.gather.dtype) or 1)
    return sent / gathered if sent and gathered else 1.0
