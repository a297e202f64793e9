"""A model that torch's ``fully_shard`` has sharded by a plan: its units, their prefetch and resharding."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from hocket.errors import HocketError
from hocket.graph import Plan
from hocket.runtime.sharding.module_units import modules_of_units
from hocket.runtime.sharding.processor_collectives import GatherBeside, ReduceBeside, SumsUnderWay
from hocket.runtime.sharding.shard_events import ShardEvents
from hocket.runtime.sharding.shardable import check_types
from hocket.runtime.sharding.share_sums import sums_are_gloos
from hocket.runtime.sharding.torch_sharding import (
    HeldByUnits,
    begun,
    drop_unread_gathers,
    reads_sums_at_once,
)
from hocket.runtime.training.first_readers import Hook


class ShardedModel:
    """``model``, sharded over ``mesh`` in the units of ``plan``.

    ``beside``: whether its collectives are started by us, so that they run beside computing, as on
    processors; a GPU's have streams. ``sums_here``: whether shares of gradients are added up by us, as this
    gloo does.

    Raises
    ------
    HocketError
        When the units are another model's, or one is no set of whole modules.
    """

    def __init__(
        self,
        model: nn.Module,
        plan: Plan,
        mesh: DeviceMesh,
        events: ShardEvents,
        mp_policy: MixedPrecisionPolicy | None = None,
    ) -> None:
        types = mp_policy or MixedPrecisionPolicy()
        found = modules_of_units(model, plan.units)
        check_types(model, found)
        self.model, self.mesh, self.events = model, mesh, events
        self.beside = mesh.device_type == "cpu"
        self.modules = {unit.index: unit.modules for unit in found}
        for unit in found:
            together: Any = list(unit.modules) if len(unit.modules) > 1 else unit.modules[0]
            reshards = plan.reshard_after_forward[unit.index]
            fully_shard(together, mesh=mesh, reshard_after_forward=reshards, mp_policy=types)
        if not isinstance(model, FSDPModule):
            fully_shard(model, mesh=mesh, mp_policy=types)  # torch wants a root, if only of the others
        self.units: dict[int, FSDPModule] = {
            index: modules[0]  # type: ignore[misc]  # fully_shard has given it another class
            for index, modules in self.modules.items()
        }
        self._sums = SumsUnderWay(events)
        self.sums_here = self.beside and sums_are_gloos(mesh.get_group(mesh.ndim - 1))
        if self.beside:
            self._start_collectives_here()
            held = HeldByUnits(model)
            events.held_bytes = lambda: held.all_bytes() + self._sums.held_bytes
        self._note_passes()
        self._set_prefetch(plan)

    @property
    def largest_unit_bytes(self) -> int:
        """Bytes of the full parameters of the largest unit."""
        return max(HeldByUnits(self.model).unit_bytes, default=0)

    def change(self, plan: Plan) -> None:
        """Put the prefetch and the resharding of ``plan``, which has the same units, in force."""
        for index, unit in self.units.items():
            unit.set_reshard_after_forward(plan.reshard_after_forward[index], recurse=False)
        self._set_prefetch(plan)

    def require_sync(self, required: bool) -> None:
        """Have the next backward passes reduce gradients, or keep them whole on each rank."""
        root: Any = self.model
        root.set_requires_gradient_sync(required)

    def _set_prefetch(self, plan: Plan) -> None:
        for index, unit in self.units.items():
            forward = () if plan.forward_prefetch is None else plan.forward_prefetch[index]
            unit.set_modules_to_forward_prefetch(self._of(forward))
            backward = () if plan.backward_prefetch is None else plan.backward_prefetch[index] or (index,)
            # An empty list asks for torch's own prefetch; the unit itself is here already, and is none.
            unit.set_modules_to_backward_prefetch(self._of(backward))

    def _of(self, indices: Sequence[int]) -> list[FSDPModule]:
        return [self.units[index] for index in indices]

    def _start_collectives_here(self) -> None:
        for index, unit in self.units.items():
            unit.set_custom_all_gather(GatherBeside(index, self.events))  # type: ignore[arg-type]
            if self.sums_here:
                read_at_once = functools.partial(reads_sums_at_once, unit)
                reduce = ReduceBeside(index, self.events, self._sums, read_at_once)
                unit.set_custom_reduce_scatter(reduce)  # type: ignore[arg-type]

    def _note_passes(self) -> None:
        """Note when units compute, and leave nothing behind that a pass has not come to."""
        for index, modules in self.modules.items():
            for module in modules:
                module.register_forward_pre_hook(Hook(self._check_called, always=True), prepend=True)
                # Behind torch's own hook, which waits for the parameters, and before the one that frees them.
                module.register_forward_pre_hook(Hook(self._noting("enter", index), always=True))
                module.register_forward_hook(Hook(self._noting("leave", index), always=True), prepend=True)
                # Behind the one that frees them.
                module.register_forward_hook(Hook(self._note_held, always=True))
        self.model.register_forward_hook(Hook(self._end_pass, always=True))
        self.model.register_forward_hook(Hook(self._explain_failure, always=True), always_call=True)

    def _check_called(self, module: nn.Module, *_: Any) -> None:
        """Refuse a unit that is called before the model: torch would take it for one of its own."""
        if module is not self.model and not begun(self.model):
            name = next(name for name, each in self.model.named_modules() if each is module)
            raise HocketError(
                f"'{name}' was called outside of the model's forward(), which gathers what it needs; call the"
                " model, or name the method that was called instead by"
                " torch.distributed.fsdp.register_fsdp_forward_method(model, NAME)"
            )

    def _explain_failure(self, *_: Any) -> None:
        """Add the fix to torch's error where a function has read a parameter that is not gathered."""
        error = sys.exc_info()[1]
        if error is not None and "mixed torch.Tensor and DTensor" in str(error):
            error.add_note(
                "hocket.shard: a parameter was read while it was sharded, by a function or a module outside"
                " of its unit, as a tied weight is; have one unit of all modules that read it, such as the"
                " root's (plan='fsdp')"
            )

    def _noting(self, what: Any, index: int) -> Any:
        def note(*_: Any) -> None:
            if torch.is_grad_enabled():
                self.events.cut(what, index)

        return note

    def _note_held(self, *_: Any) -> None:
        if torch.is_grad_enabled():
            self.events.note_held()

    def _end_pass(self, *_: Any) -> None:
        for unit in self.units.values():
            drop_unread_gathers(unit)
