"""Communication hooks of DistributedDataParallel, as scripts register them on a model that is distributed.

Torch's own that send gradients in half the bytes ask for what ``gradient_dtype`` does. Others are code for
DDP's buckets, of which there are none here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import BuiltinCommHookType
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from hocket.errors import HocketError

ShortenGradients = Callable[[torch.dtype], None]
"""Has longer gradients travel in that type."""

# By hook the type in which it sends; None: gradients as they are.
_TAKEN: Sequence[tuple[Any, torch.dtype | None]] = (
    (default_hooks.allreduce_hook, None),
    (BuiltinCommHookType.ALLREDUCE, None),
    (default_hooks.bf16_compress_hook, torch.bfloat16),
    (default_hooks.fp16_compress_hook, torch.float16),
    (BuiltinCommHookType.FP16_COMPRESS, torch.float16),
)
# Each call makes a function of its own, of the same code.
_WRAPPERS: Mapping[object, torch.dtype] = {
    wrapper(default_hooks.allreduce_hook).__code__: dtype
    for wrapper, dtype in (
        (default_hooks.bf16_compress_wrapper, torch.bfloat16),
        (default_hooks.fp16_compress_wrapper, torch.float16),
    )
}


class CommHooks:
    """Takes the hooks that a script registers.

    ``process_group``: the one that the model trains on; ``shorten``: None where gradients travel as they are,
    to servers.
    """

    def __init__(self, process_group: dist.ProcessGroup | None, shorten: ShortenGradients | None) -> None:
        self._process_group, self._shorten = process_group, shorten

    def register(self, state: object, hook: Callable[..., Any]) -> None:
        """``register_comm_hook``: do what ``hook`` would, or refuse it in one line."""
        name = getattr(hook, "__qualname__", repr(hook))
        dtype = _type_of(hook, name)
        if state is not None and state is not self._process_group:
            raise HocketError(
                f"the state of communication hook '{name}' is of type {type(state).__name__}, and is not the"
                " process group that the model trains on; give that, or None"
            )
        self._ask(dtype, name)

    def register_builtin(self, kind: Any) -> None:
        """``_register_builtin_comm_hook``: the same of one that torch has in C++."""
        self._ask(_type_of(kind, str(kind)), str(kind))

    def _ask(self, dtype: torch.dtype | None, name: str) -> None:
        if dtype is None:
            return  # that is done anyway
        if self._shorten is None:
            raise HocketError(
                f"communication hook '{name}' is for training without servers; leave it out, or"
                " --architecture ps"
            )
        self._shorten(dtype)


def _type_of(hook: Any, name: str) -> torch.dtype | None:
    """The type in which ``hook`` sends gradients, None: in their own; refused where it does more."""
    for known, sent in _TAKEN:
        if hook is known:
            return sent
    dtype = _WRAPPERS.get(getattr(hook, "__code__", None))
    if dtype is None or inspect.getclosurevars(hook).nonlocals["hook"] is not default_hooks.allreduce_hook:
        raise HocketError(
            f"communication hook '{name}' is written for the buckets of DistributedDataParallel, and here"
            " the plan says what is sent; leave it out, use gradient_dtype=torch.bfloat16 for half the"
            " bytes, or train with DistributedDataParallel"
        )
    return dtype
