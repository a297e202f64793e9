"""The transfers of units in a step that FSDP2 sharded, taken out of it as all-reduces of gradients are.

They are taken out if all of them are understood: each is marked with its unit, has a size, and goes between
the same ranks, and each unit is gathered once in the forward pass and scattered once.
"""

from __future__ import annotations

from collections import Counter

from hocket.graph import Phase
from hocket.interop.kineto.traced_collectives import ALL_REDUCE, TracedCollective
from hocket.interop.kineto.traced_operations import TracedOperation, TracedStep
from hocket.interop.kineto.unit_marks import GATHER, SCATTER, UnitTransfer, marked_unit

_OF_KIND = {"all_gather": (GATHER, "gather"), "reduce_scatter": (SCATTER, "scatter")}


def claim_transfers(step: TracedStep) -> None:
    """Make the collectives of a step's units into its transfers, if a plan can take their place."""
    found = _transfers(step)
    if not found or why_no_units(step):
        return
    taken = {id(transfer.collective) for transfer in found}
    step.transfers = found
    step.operations = [operation for operation in step.operations if id(operation.collective) not in taken]


def why_no_units(step: TracedStep) -> str:
    """Say why a plan cannot take the place of a step's transfers; empty where it can, or there are none."""
    found = _transfers(step)
    if not found:
        return ""
    if any(_marked(operation, SCATTER) and _kind(operation) == ALL_REDUCE for operation in step.others):
        return (
            "its gradients are scattered in groups and all-reduced between them (HSDP), and units are read "
            "of one group; trace the job with a mesh of one dimension"
        )
    if any(transfer.collective.size_bytes is None for transfer in found):
        return "how large its collectives are is not in the trace; record it with PyTorch 2.3 or newer"
    sizes = {transfer.collective.group_size for transfer in found}
    if len(sizes) > 1 or None in sizes:
        return (
            "its units are not all gathered and scattered between the same number of ranks "
            f"({', '.join(sorted(map(str, sizes)))}); trace it with reshard_after_forward=True or False, on "
            "a mesh of one dimension"
        )
    passes = Counter((transfer.unit, transfer.kind, transfer.again) for transfer in found)
    unit, kind, again = max(passes, key=lambda key: passes[key])
    if passes[unit, kind, again] > 1:
        does = "scatters the gradients of" if kind == "scatter" else "gathers"
        return (
            f"a step {does} {named(unit)} {passes[unit, kind, again]} times in one pass, as where a module "
            "runs several times or gradients are accumulated; trace one pass a step"
        )
    gathered = {transfer.unit for transfer in found if not transfer.again and transfer.kind == "gather"}
    left = [transfer.unit for transfer in found if transfer.unit not in gathered]
    if left:
        return (
            f"a step does not gather {named(left[0])} in its forward pass; trace with reshard_after_backward"
        )
    if not any(transfer.kind == "scatter" for transfer in found):
        return "a step scatters no gradients; trace whole steps of the optimizer"
    return ""


def named(unit: str) -> str:
    """A unit as a sentence names it."""
    return f"unit '{unit}'" if unit else "the root's unit"


def _transfers(step: TracedStep) -> list[UnitTransfer]:
    """The collectives that are marked with a unit, in the order of their launch."""
    found = []
    for operation in step.others:
        what, kind = _OF_KIND.get(_kind(operation), ("", ""))
        unit = _unit(operation, what)
        if unit is not None:
            again = kind == "gather" and operation.phase == Phase.BACKWARD
            found.append(UnitTransfer(unit, kind, again, _collective(operation)))  # type: ignore[arg-type]
    return sorted(found, key=lambda transfer: transfer.collective.gpu.call.start_us)


def _collective(operation: TracedOperation) -> TracedCollective:
    assert operation.collective is not None
    return operation.collective


def _kind(operation: TracedOperation) -> str:
    return _collective(operation).kind


def _unit(operation: TracedOperation, what: str) -> str | None:
    host = operation.gpu.call.host
    return None if host is None else marked_unit(host.chain(), what)


def _marked(operation: TracedOperation, what: str) -> bool:
    return _unit(operation, what) is not None
