"""The marks of FSDP2 in a trace: which unit a transfer is of, and when its hooks run.

``fully_shard`` annotates what it does with the name of the unit's module, and nothing for the root's:
``FSDP::all_gather (layers.0)``. Its parameters are gathered in ``all_gather``, copied into place in
``all_gather_copy_out``, its gradients are scattered in ``post_backward_reduce``. Units that a prefetch
list asks for are named, gathered already or not: ``FSDP::forward_prefetch for layers.1``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hocket.interop.kineto.events import HostSpan
from hocket.interop.kineto.traced_collectives import TracedCollective

MARK = "FSDP::"
GATHER, COPY_OUT, SCATTER = "all_gather", "all_gather_copy_out", "post_backward_reduce"
PRE_FORWARD, PRE_BACKWARD = "pre_forward", "pre_backward"
_OF_UNIT = re.compile(r"FSDP::(\w+)(?: \((.*)\))?$")
_PREFETCH = re.compile(r"FSDP::(forward|backward)_prefetch for (.*)$")
_BEHIND = ("FSDP::post_backward", "FSDP::root_post_backward", "FSDP::pre_backward", "FSDP::backward_prefetch")

TransferKind = Literal["gather", "scatter"]


@dataclass(frozen=True, slots=True, eq=False)
class UnitTransfer:
    """The gathering of a unit's parameters, or the scattering of its gradients.

    ``unit``: the name of its module, empty for the root's; ``again``: gathered behind the forward pass.
    """

    unit: str
    kind: TransferKind
    again: bool
    collective: TracedCollective

    @property
    def key(self) -> tuple[object, ...]:
        """A key that the same transfer has in every step."""
        return self.unit, self.kind, self.again, self.collective.size_bytes


def unit_mark(event: HostSpan) -> tuple[str, str] | None:
    """The name of what FSDP2 does in an annotation, and its unit; None for any other event."""
    found = _OF_UNIT.match(event.name) if event.name.startswith(MARK) else None
    return None if found is None else (found[1], found[2] or "")


def marked_unit(chain: Sequence[HostSpan], what: str) -> str | None:
    """The unit for which ``what`` was done within ``chain``, the innermost event first; None for none."""
    for event in chain:
        mark = unit_mark(event)
        if mark is not None and mark[0] == what:
            return mark[1]
    return None


def prefetch_mark(event: HostSpan) -> tuple[str, str] | None:
    """The pass for which a unit is gathered ahead, and that unit; None for any other event."""
    found = _PREFETCH.match(event.name) if event.name.startswith(MARK) else None
    return None if found is None else (found[1], found[2])


def behind_backward(event: HostSpan) -> bool:
    """Tell whether FSDP2 does it in a backward pass, or behind the last node of one."""
    return event.name.startswith(_BEHIND)
