"""Questions to torch's sharding that have no public name, in one place."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.distributed.fsdp import FSDPModule


def parameter_groups(unit: FSDPModule) -> list[Any]:
    """The groups that torch gathers for ``unit``: none where it has no parameters."""
    state: Any = unit._get_fsdp_state()
    several = getattr(state, "_fsdp_param_groups", None)
    if several is not None:
        return list(several)
    one = state._fsdp_param_group
    return [] if one is None else [one]


def begun(model: Any) -> bool:
    """Tell whether a sharded ``model`` has been called, so that its units are parts of it to torch."""
    return model._get_fsdp_state()._is_root is not None


def drop_unread_gathers(unit: FSDPModule) -> None:
    """Throw away an all-gather of ``unit`` that was prefetched and that no forward pass has read.

    Torch would give it to the next pass, and the optimizer may have changed the parameters by then.
    """
    if any(group._all_gather_result is not None for group in parameter_groups(unit)):
        unit.unshard()
        unit.reshard()


def reads_sums_at_once(unit: FSDPModule) -> bool:
    """Tell whether the sum of a reduce-scatter is read as soon as torch has asked for it.

    That is so where gradients accumulate, are summed up over replicas, have hooks, or are reduced in another
    type than their parameters have.
    """
    for group in parameter_groups(unit):
        if getattr(group, "_is_hsdp", True) or group._all_reduce_hook is not None:
            return True
        for each in group.fsdp_params:
            p = each.sharded_param
            if p.grad is not None or p._post_accumulate_grad_hooks:
                return True
            if (each.reduce_dtype or each.param_dtype or each.orig_dtype) != each.orig_dtype:
                return True
    return False


def groups_of(model: nn.Module) -> list[Any]:
    """All groups of a sharded model, each once: modules that are sharded together have one."""
    units = [module for module in model.modules() if isinstance(module, FSDPModule)]
    return list(dict.fromkeys(group for unit in units for group in parameter_groups(unit)))


class HeldByUnits:
    """The memory that the units of a sharded model take beside their shards."""

    def __init__(self, model: nn.Module) -> None:
        self._sizes: dict[Any, int] = {
            group: sum(p._orig_size.numel() * p.sharded_param.element_size() for p in group.fsdp_params)
            for group in groups_of(model)
        }

    @property
    def unit_bytes(self) -> list[int]:
        """Bytes of the full parameters of each unit."""
        return list(self._sizes.values())

    def full_bytes(self) -> int:
        """Bytes of the parameters that are whole, or on their way to be."""
        return sum(
            size
            for group, size in self._sizes.items()
            if group.is_unsharded or group._all_gather_result is not None
        )

    def all_bytes(self) -> int:
        """Bytes of whole parameters, and of the buffers of all-gathers."""
        held = {id(result): result for group in self._sizes if (result := group._all_gather_result)}
        for group in self._sizes:
            # None before the first forward pass: a checkpoint's loader may step the optimizer until then.
            if (deferred := getattr(group.comm_ctx, "all_gather_state", None)) is not None:
                held[id(deferred.all_gather_result)] = deferred.all_gather_result
        whole = sum(size for group, size in self._sizes.items() if group.is_unsharded)
        buffers: int = sum(result.all_gather_output.nbytes for result in held.values())
        return whole + buffers


@contextlib.contextmanager
def noting_full_bytes(model: nn.Module) -> Iterator[list[int]]:
    """Within, whenever torch gathers a unit of ``model``, note the bytes that are whole or on their way."""
    held, found = HeldByUnits(model), list[int]()
    kind: Any = type(groups_of(model)[0])
    unshard = kind.unshard

    def noted(group: Any, *arguments: Any, **options: Any) -> None:
        unshard(group, *arguments, **options)
        found.append(held.full_bytes())

    kind.unshard = noted
    try:
        yield found
    finally:
        kind.unshard = unshard
