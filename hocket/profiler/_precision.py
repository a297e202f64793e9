"""Precisions that a step is recorded in, on fake tensors of the CPU as GPUs would run it.

Autocast's lists of operators differ between the two: what CUDA's takes in float32, the CPU's mostly leaves.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from hocket.datasheets import Precision
from hocket.graph import Phase
from hocket.profiler._step import Enter, ProfiledStep

# Operators that autocast takes in float32 on CUDA and not on the CPU (aten/src/ATen/autocast_mode.h), by
# overload, of those that training uses.
_IN_FLOAT32 = (
    *("acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log1p", "log2", "reciprocal"),
    *("rsqrt", "sinh", "tan", "softplus", "layer_norm", "native_layer_norm", "group_norm", "rms_norm"),
    *("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softmax.int", "log_softmax.int"),
    *("cumsum", "cumprod", "sum", "sum.dim_IntList", "prod", "prod.dim_int", "logsumexp", "dist"),
    *("linalg_vector_norm", "norm.Scalar", "norm.ScalarOpt_dim", "cosine_similarity", "kl_div", "nll_loss"),
    *("l1_loss", "smooth_l1_loss", "huber_loss", "mse_loss", "binary_cross_entropy_with_logits"),
    *("poisson_nll_loss", "soft_margin_loss", "multi_margin_loss", "margin_ranking_loss"),
)
_NARROW = (torch.float16, torch.bfloat16)
_WHOLE: dict[Precision, torch.dtype] = {"fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True, kw_only=True)
class AutocastStep(ProfiledStep):
    """A step whose forward pass and loss run under autocast, as mixed precision has it."""

    def run(self, enter: Enter = lambda phase, path: None) -> None:
        """Run the step once, as :class:`ProfiledStep` does."""
        with ExitStack() as cast:
            cast.enter_context(torch.autocast("cuda", torch.float16))

            def entering(phase: Phase, path: str) -> None:
                if phase is Phase.BACKWARD:
                    cast.close()
                enter(phase, path)

            super().run(entering)


def in_precision(step: ProfiledStep, precision: Precision, *, channels_last: bool) -> ProfiledStep:
    """``step`` as it trains in ``precision``: its own model is converted; what the optimizer holds stays."""

    def converted(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if precision in _WHOLE and value.is_floating_point():
            value = value.to(_WHOLE[precision])
        if channels_last and value.ndim == 4:
            value = value.contiguous(memory_format=torch.channels_last)
        return value

    for root in step.roots.values():
        if precision in _WHOLE:
            root.to(_WHOLE[precision])
        if channels_last:
            root.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    step = replace(step, batch=tree_map(converted, step.batch))
    if precision != "amp":
        return step
    return AutocastStep(**{each.name: getattr(step, each.name) for each in fields(step)})


@contextmanager
def autocast_of_gpus(told: Callable[[torch.dtype], object] = lambda _: None) -> Iterator[None]:
    """Inside, autocast casts on the CPU as it would on CUDA, which may be named; ``told`` gets its types."""
    real = torch.amp.autocast.__init__

    @functools.wraps(real)
    def on_cpu(
        self: Any,
        device_type: str,
        dtype: torch.dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if enabled and device_type in ("cuda", "cpu"):
            dtype = torch.get_autocast_dtype(device_type) if dtype is None else dtype
            told(dtype)
        real(self, "cpu" if device_type == "cuda" else device_type, dtype, enabled, cache_enabled)

    attend: Any = nn.functional.scaled_dot_product_attention

    def attending(*args: Any, dropout_p: float = 0.0, **kwargs: Any) -> Tensor:
        """On GPUs dropout is in attention's kernel; on the CPU it would be many operations."""
        return attend(*args[:4], *((0.0, *args[5:]) if len(args) > 4 else ()), **kwargs)  # type: ignore[no-any-return]

    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    try:
        for name in _IN_FLOAT32:
            if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "AutocastCPU"):
                library.impl(name, _in_float32(name), "AutocastCPU")
        with (
            mock.patch.object(torch.amp.autocast, "__init__", on_cpu),
            mock.patch.object(nn.functional, "scaled_dot_product_attention", attending),
        ):
            yield
    finally:
        library._destroy()


def _in_float32(name: str) -> Callable[..., Any]:
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.aten, packet), overload or "default")

    def widened(value: Any) -> Any:
        return value.float() if isinstance(value, Tensor) and value.dtype in _NARROW else value

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)):
            return operator(*tree_map(widened, args), **tree_map(widened, kwargs))

    return run
