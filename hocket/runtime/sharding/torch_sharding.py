"""Questions to torch's sharding that have no public name, in one place."""

from __future__ import annotations

from typing import Any

from torch.distributed.fsdp import FSDPModule


def parameter_groups(unit: FSDPModule) -> list[Any]:
    """The groups that torch gathers for ``unit``: none where it has no parameters."""
    state: Any = unit._get_fsdp_state()
    several = getattr(state, "_fsdp_param_groups", None)
    if several is not None:
        return list(several)
    one = state._fsdp_param_group
    return [] if one is None else [one]


def drop_unread_gathers(unit: FSDPModule) -> None:
    """Throw away an all-gather of ``unit`` that was prefetched and that no forward pass has read.

    Torch would give it to the next pass, and the optimizer may have changed the parameters by then.
    """
    if any(group._all_gather_result is not None for group in parameter_groups(unit)):
        unit.unshard()
        unit.reshard()


def reads_sums_at_once(unit: FSDPModule) -> bool:
    """Tell whether the sum of a reduce-scatter is read as soon as torch has asked for it.

    That is so where gradients accumulate, are summed up over replicas, or have hooks.
    """
    for group in parameter_groups(unit):
        if getattr(group, "_is_hsdp", True) or group._all_reduce_hook is not None:
            return True
        for each in group.fsdp_params:
            p = each.sharded_param
            if p.grad is not None or p._post_accumulate_grad_hooks:
                return True
    return False
