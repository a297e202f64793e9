"""A stop ends a command wherever it comes, also where Python or LLVM would lose the exception."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import CancelledError

import pytest

from hocket.kernel import kernel, look_for_stop
from hocket.signals import told_by, uninterrupted

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
from hocket.signals import unwinding

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


@pytest.mark.parametrize(
    ("between_s", "prints"),
    [(0.0, "cleaned\n"), (0.1, "cleaned\n"), (2.0, "")],
    ids=["twice", "soon", "later"],
)
def test_a_stop_that_is_sent_twice_is_one_and_a_later_one_ends_what_cleans_up(
    between_s: float, prints: str
) -> None:
    """``timeout`` sends one to its command and one to its group."""
    cleaning = _CLEANING.replace("time.sleep(0.5)", "time.sleep(4)")
    program = f"""
import os, signal, sys, threading, time
from hocket.signals import unwinding

def stop():
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep({between_s})
    os.kill(os.getpid(), signal.SIGTERM)

def ready():
    threading.Timer(0.1, stop).start()

def command():
{textwrap.indent(cleaning, "    ")}

unwinding(command)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=60, text=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (143, prints), ran.stderr


@kernel
def _spin(rounds):  # type: ignore[no-untyped-def]
    done = 0
    for k in range(rounds):
        if k % 1000 == 0:
            look_for_stop()
        done += k & 1
    return done


@kernel
def _spin_inside(rounds):  # type: ignore[no-untyped-def]
    return _spin(rounds) + 1


def test_a_handlers_exception_ends_a_kernel_at_any_depth() -> None:
    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    assert _spin_inside(2001) == 1001
    earlier = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            _spin_inside(2**62)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)
    assert _spin_inside(2001) == 1001


def test_a_kernel_on_another_thread_ends_when_that_is_told_to() -> None:
    end, other, raised = threading.Event(), threading.Event(), []

    def spin(told: threading.Event) -> None:
        try:
            with told_by(told):
                _spin_inside(2**62)
        except CancelledError as error:
            raised.append(error)

    threads = [threading.Thread(target=spin, args=[told], daemon=True) for told in (end, other)]
    _spin_inside(1)
    for thread in threads:
        thread.start()
    end.set()
    threads[0].join(60)
    assert not threads[0].is_alive()
    assert threads[1].is_alive()
    other.set()
    threads[1].join(60)
    assert len(raised) == 2


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
