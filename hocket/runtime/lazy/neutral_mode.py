"""Work that readers wait for, done apart from what they are in the middle of.

A parameter may be read within a transform of functions, a trace, inference or fake tensors. Its update is no
part of that: it would be recorded, done on tensors that hold nothing, or refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils._python_dispatch import _disable_current_modes

_set_trace: Any = torch._C._set_tracing_state  # type: ignore[attr-defined]  # left out of torch's stubs


@contextlib.contextmanager
def outside_torch_modes() -> Iterator[None]:
    """Within, no mode, transform or trace of the caller's is in force."""
    with contextlib.ExitStack() as left:
        if torch.is_inference_mode_enabled():
            left.enter_context(torch.inference_mode(False))
        if torch._C._functorch.peek_interpreter_stack() is not None:
            left.enter_context(temporarily_clear_interpreter_stack())
        if torch._C._len_torch_dispatch_stack():
            left.enter_context(_disable_current_modes())
        if (trace := torch._C._get_tracing_state()) is not None:
            _set_trace(None)
            left.callback(_set_trace, trace)
        if torch._C._len_torch_function_stack():
            left.enter_context(torch._C.DisableTorchFunction())
        yield
