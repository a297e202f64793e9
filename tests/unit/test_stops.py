"""A stop ends a command wherever it comes, also where Python or LLVM would lose the exception."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time

import pytest

from hocket.stops import uninterrupted

_IN_A_FINALIZER = """
class Held:
    def __del__(self):
        ready()
        time.sleep(60)

Held()
"""
_IN_A_CALLBACK = """
import weakref
class Held: pass
held = Held()
reference = weakref.ref(held, lambda _: (ready(), time.sleep(60)))
del held
"""
_IN_LLVM = """
space = {"__name__": "llvmlite.binding.passes", "time": time, "ready": ready}
exec("def halfway(): ready(); time.sleep(0.5); print('whole', flush=True)", space)
space["halfway"]()
"""
_IN_THE_IMPORT_LOCK = """
import weakref
space = {"time": time, "ready": ready}
exec(compile("def cb(_): ready(); time.sleep(0.5)", "<frozen importlib._bootstrap>", "exec"), space)
class Lock: pass
lock = Lock()
kept = weakref.ref(lock, space["cb"])
del lock
"""
_CLEANING = """
try:
    ready()
    time.sleep(60)
finally:
    time.sleep(0.5)
    print("cleaned", flush=True)
"""


@pytest.mark.parametrize(
    ("where", "prints"),
    [
        (_IN_A_FINALIZER, ""),
        (_IN_A_CALLBACK, ""),
        (_IN_LLVM, "whole\n"),
        (_IN_THE_IMPORT_LOCK, ""),
        (_CLEANING, "cleaned\n"),
    ],
    ids=["finalizer", "callback", "llvm", "import lock", "cleaning"],
)
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_is_neither_lost_nor_repeated(where: str, prints: str, number: int, status: int) -> None:
    program = f"""
import os, sys, time
from hocket.stops import unwinding

def ready():
    print("ready", flush=True)

def command():
{textwrap.indent(where, "    ")}
    time.sleep(60)
    sys.exit(0)

unwinding(command)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        # Python does not see a signal that comes between its last look and the system call that follows.
        time.sleep(0.1)
        process.send_signal(number)
        out, _ = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == status
    assert out == prints


@pytest.mark.parametrize("call", ["pthread_sigmask", "signal"])
def test_a_stop_while_stops_are_held_back_or_let_through_again_leaves_no_trace(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread takes a stop, and Python raises it here once a call of its own has had effect."""
    original, mask, done, chosen = getattr(signal, call), signal.pthread_sigmask, 0, 0

    def interrupted(*arguments: object) -> object:
        nonlocal done
        done += 1
        said = original(*arguments)
        if done == chosen:
            raise KeyboardInterrupt
        return said

    def kept() -> tuple[object, ...]:
        return mask(signal.SIG_BLOCK, ()), *map(signal.getsignal, sorted(signal.valid_signals()))

    before = kept()
    with monkeypatch.context() as patched:
        patched.setattr(signal, call, interrupted)
        with uninterrupted():
            calls = done
        for chosen in range(1, done + 1):  # noqa: B007
            done = 0
            with pytest.raises(KeyboardInterrupt), uninterrupted():
                assert done == calls
            assert kept() == before
