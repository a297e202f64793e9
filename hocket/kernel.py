"""How numba compiles our kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile ``function`` on first use, and keep the result on disk where there is a place for it."""
    return _compiled(function, counts_references=True)


def lean_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """As :func:`kernel`, for functions that make no arrays: nothing counts who refers to those they get.

    numba counts in every function and for each array, atomically, unless it can show that it need not. Where
    small functions pass many arrays to each other that takes longer than all that they do.
    """
    return _compiled(function, counts_references=False)


def _compiled(function: Callable[..., Any], *, counts_references: bool) -> Callable[..., Any]:
    # The option that numba sets for such functions of its own. It is said either way: a function for which it
    # is not takes it over from whoever calls it first.
    options: dict[str, Any] = {"_nrt": counts_references}
    try:
        compiled: Callable[..., Any] = numba.njit(cache=True, nogil=True, **options)(function)
    except RuntimeError:
        # Neither the package's folder nor a home can be written: compile anew in every process.
        compiled = numba.njit(**options)(function)
    return compiled
