"""``torch.compile`` left out: what a script would compile runs as it is written, and so is seen.

To compile nothing (TORCH_COMPILE_DISABLE=1) is not enough. The wrapper that torch.compile makes puts the
dispatcher back at its end as it was at its begin, and a step that begins within it is not seen from there on.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


@contextmanager
def uncompiled(left_out: Callable[[], None]) -> Iterator[None]:
    """Inside, ``torch.compile`` and ``Module.compile`` do nothing but call ``left_out``."""
    real, real_of_module = torch.compile, nn.Module.compile
    is_on = True

    @functools.wraps(real)
    def leave_out(model: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not is_on:
            return real(model, *args, **kwargs)
        left_out()
        return (lambda function: function) if model is None else model

    def leave_out_of_module(_module: nn.Module, *_args: Any, **_kwargs: Any) -> None:
        left_out()

    torch.compile = leave_out
    nn.Module.compile = leave_out_of_module  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        is_on = False
        nn.Module.compile = real_of_module  # type: ignore[method-assign]
        if torch.compile is leave_out:  # Lightning puts a function of its own around it
            torch.compile = real


def nothing_is_compiled() -> bool:
    """True if the environment says that what is given to ``torch.compile`` runs as it is written."""
    return "1" in (os.environ.get("TORCH_COMPILE_DISABLE"), os.environ.get("TORCHDYNAMO_DISABLE"))


def is_within_compiled() -> bool:
    """Tell whether a wrapper of ``torch.compile`` that puts the dispatcher back has called what runs now."""
    frame = sys._getframe(1)
    while (caller := frame.f_back) is not None:
        frame = caller
        if (
            frame.f_globals.get("__name__") == "torch._dynamo.eval_frame"
            and "saved_include_set" in frame.f_code.co_varnames
        ):
            return True
    return False


class Unwrapped:
    """Modules on which ``compile()`` was called, called without its wrapper until :meth:`wrap_again`.

    For where nothing is compiled.
    """

    def __init__(self, model: nn.Module) -> None:
        named = "_compiled_call_impl"
        self._wrapped = [
            (module, call) for module in model.modules() if (call := vars(module).get(named)) is not None
        ]
        for module, _ in self._wrapped:
            module._compiled_call_impl = None

    def wrap_again(self) -> None:
        """Put every wrapper back."""
        for module, call in self._wrapped:
            module._compiled_call_impl = call
        self._wrapped.clear()
