"""How numba compiles our kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile ``function`` on first use, and keep the result on disk where there is a place for it."""
    try:
        compiled: Callable[..., Any] = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:
        # Neither the package's folder nor a home can be written: compile anew in every process.
        compiled = numba.njit(function)
    return compiled
