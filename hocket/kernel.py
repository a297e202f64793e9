"""Compilation of our kernels by numba, and the means by which Ctrl-C ends one that runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils, event, types
from numba.core.caching import IndexDataCacheFile
from numba.extending import intrinsic


class _Compilations(event.Listener):
    """Count of compilations under way, each within the one that needs it; loading from disk is none.

    ``ended_s``: seconds that those took that have ended, each moment once.
    """

    def __init__(self) -> None:
        self.under_way, self.ended_s, self._began_s = 0, 0.0, 0.0

    def on_start(self, _: Any) -> None:
        if not self.under_way:
            self._began_s = time.perf_counter()
        self.under_way += 1

    def on_end(self, _: Any) -> None:
        self.under_way -= 1
        if not self.under_way:
            self.ended_s += time.perf_counter() - self._began_s


_COMPILATIONS = _Compilations()
event.register("numba:compile", _COMPILATIONS)  # type: ignore[no-untyped-call]


def is_compiling() -> bool:
    """Tell whether a kernel is being compiled in this process."""
    return _COMPILATIONS.under_way > 0


def clock_s() -> float:
    """Read, between kernels, a clock in seconds that stands while one is compiled: for limits of time."""
    return time.perf_counter() - _COMPILATIONS.ended_s


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
    # is not takes it over from its first caller.
    options: dict[str, Any] = {"_nrt": counts_references}
    try:
        compiled: Any = numba.njit(cache=True, nogil=True, **options)(function)
    except RuntimeError:
        # Neither the package's folder nor a home can be written: compile anew in every process.
        return numba.njit(nogil=True, **options)(function)  # type: ignore[no-any-return]
    # There is none where NUMBA_DISABLE_JIT is set.
    if (cache := getattr(compiled, "_cache", None)) is not None:
        cache._cache_file.__class__ = _CacheFile
    return compiled  # type: ignore[no-any-return]


class _CacheFile(IndexDataCacheFile):
    """A kernel's index on disk, which is empty where another version of Hocket has left it.

    numba reads which types a kernel was compiled for before it looks whether that is still so, and fails
    where one of them has another name by now.
    """

    def _load_index(self) -> dict[Any, Any]:
        try:
            found: dict[Any, Any] = super()._load_index()  # type: ignore[no-untyped-call]
        except Exception:  # unpickling may raise any
            return {}
        return found


def _look_for_stop(_: Any) -> tuple[Any, Callable[..., Any]]:
    """Let Python look for signals, and call :func:`hocket.signals.look`; what either raises ends the kernel.

    Python looks between its own instructions, of which a kernel has none. A loop that may run for a second
    calls this every few milliseconds; a look takes about a microsecond.
    """

    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        tools: Any = cgutils  # untyped, as all of numba is
        python = context.get_python_api(builder)
        status, pointer = ir.IntType(32), python.pyobj

        def call(name: str, returns: Any, *arguments: Any, variadic: bool = False) -> Any:
            fixed = [argument.type for argument in arguments[: 2 if variadic else None]]
            kind = ir.FunctionType(returns, fixed, var_arg=variadic)
            return builder.call(tools.get_or_insert_function(builder.module, kind, name), arguments)

        def text(value: str) -> Any:
            return context.insert_const_string(builder.module, value)

        held = python.gil_ensure()
        raised = tools.alloca_once_value(builder, tools.true_bit)
        signal = call("PyErr_CheckSignals", status)
        with builder.if_then(builder.icmp_signed("==", signal, status(0))):
            module = call("PyImport_ImportModule", pointer, text("hocket.signals"))
            with builder.if_then(tools.is_not_null(builder, module)):
                end = tools.get_null_value(pointer)
                said = call("PyObject_CallMethod", pointer, module, text("look"), end, variadic=True)
                builder.store(tools.is_null(builder, said), raised)
                call("Py_DecRef", ir.VoidType(), module)
                call("Py_DecRef", ir.VoidType(), said)  # takes NULL too
        python.gil_release(held)
        with builder.if_then(builder.load(raised), likely=False):
            context.call_conv.return_exc(builder)
        return context.get_dummy_value()

    return types.void(), generate


look_for_stop: Any = intrinsic(_look_for_stop)
