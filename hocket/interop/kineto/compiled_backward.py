"""Backward passes that compiled autograd runs: no nodes of the engine, and nothing that completes a gradient.

Such a pass is a region of compiled code whose name begins with a mark of its own. Of gradients it shows what
exchanges them: DDP's reducer in Python, the one that goes with it, all-reduces each by itself, or what the
compiler made of these. Which forward operation reads a parameter is not in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from hocket.interop.kineto.events import HostSpan

_REGION = "Torch-Compiled Region: !"
BY_COMPILED = "all-reduces of a compiled backward pass"
WITHOUT_IT = "record with torch._dynamo.config.compiled_autograd = False (a compiled model stays compiled)"


def in_compiled_backward(event: HostSpan) -> bool:
    """Tell whether an event is a region of a backward pass that compiled autograd runs."""
    return event.name.startswith(_REGION)


def is_compiled_backward(host: Sequence[HostSpan]) -> bool:
    """Tell whether a backward pass of a step is compiled autograd's."""
    return any(in_compiled_backward(event) for event in host)
