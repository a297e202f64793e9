"""Keywords of DistributedDataParallel in a call of ``hocket.distribute``.

A script that exchanges one for the other keeps them: what changes nothing here is taken, and the rest is
refused in one line that says what to use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from hocket.errors import HocketError, UnknownNameError

OWN = (
    *("plan", "network", "process_group", "compile", "gradient_dtype"),
    *("init_sync", "broadcast_buffers", "timeout_s"),
)
"""Keywords that ``hocket.distribute`` takes itself, three of them as DistributedDataParallel does."""

_TAKEN = (
    # Gradients that nobody produces are found in every step, and so is what is used in which.
    "find_unused_parameters", "static_graph", "skip_all_reduce_unused_params", "check_reduction",
    # Gradients are put together for the network by the plan.
    "bucket_cap_mb", "bucket_cap_mb_list", "gradient_as_bucket_view", "batched_grad_copy",
    # Of batches that are scattered over devices.
    "dim",
)  # fmt: skip

_WAIT = "leave it out: plans let gradients leave when they are needed, or give a plan of your own (plan=)"
_PLACE = "leave it out: distribute trains where the model is, on the CPU"
_REFUSED = {
    "device_ids": _PLACE,
    "output_device": _PLACE,
    "delay_all_reduce_named_params": _WAIT,
    "param_to_hook_all_reduce": _WAIT,
    "mixed_precision": "use torch.autocast, and gradient_dtype for what travels",
    "device_mesh": "give process_group=device_mesh.get_group()",
}

NAMES = (*_TAKEN, *_REFUSED, "forward_sync_buffers")


class BuffersSynced(NamedTuple):
    """The times when buffers become rank 0's: at the start, and when a forward pass begins."""

    at_start: bool
    in_forward: bool


def buffers_synced(keywords: Mapping[str, Any], broadcast_buffers: bool | None) -> BuffersSynced:
    """The times when buffers become rank 0's, as DistributedDataParallel reads its keywords.

    ``keywords``: those beside Hocket's own.

    Raises
    ------
    HocketError
        For one that means something and cannot be had.
    UnknownNameError
        For one that is neither library's.
    """
    for name, value in keywords.items():
        if name in _REFUSED and value is not None and value != []:
            raise HocketError(f"{name}={_short_repr(value)} is DistributedDataParallel's; {_REFUSED[name]}")
        if name not in NAMES:
            raise UnknownNameError("keyword of hocket.distribute", name, (*OWN, *NAMES))
    if (newer := keywords.get("forward_sync_buffers")) is not None:
        return BuffersSynced(True, bool(newer))
    wanted = broadcast_buffers is None or bool(broadcast_buffers)
    return BuffersSynced(wanted, wanted)


def _short_repr(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"<{type(value).__name__}>"
