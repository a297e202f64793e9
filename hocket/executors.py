"""One function over many arguments: in processes on this machine's cores, or spread over a Ray cluster."""

from __future__ import annotations

import logging
import multiprocessing
import os
import secrets
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, redirect_stdout
from typing import Any, TypeVar

from hocket.errors import HocketError
from hocket.signals import uninterrupted

T = TypeVar("T")
Progress = Callable[[int, int], None]

POLL_S = 0.2


def on_processes(
    function: Callable[..., T], tasks: Sequence[tuple[Any, ...]], progress: Progress | None = None
) -> list[T]:
    """``function(*task)`` of each task, in order; as many new processes as there are cores.

    ``function`` is one that a module names. ``progress`` is called with the tasks done and in all.

    Raises
    ------
    HocketError
        As ``function`` raises it, or when a process is ended from outside.
    """
    others = set(multiprocessing.active_children())
    cores = min(len(tasks), len(os.sched_getaffinity(0)))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(cores, mp_context=context, initializer=_ignore_interrupts) as pool:
        try:
            # Ctrl-C reaches all processes of a terminal; those that begin inherit that it is held back.
            with uninterrupted():
                futures = [pool.submit(_outcome, function, task) for task in tasks]
            left = set(futures)
            while left:
                done, left = wait(left, timeout=POLL_S, return_when=FIRST_COMPLETED)
                for future in done:
                    _result(future.result())
                if progress is not None:
                    progress(len(tasks) - len(left), len(tasks))
            return [_result(future.result()) for future in futures]
        except BrokenProcessPool:
            raise HocketError("a process was ended from outside, perhaps for want of memory") from None
        except BaseException:
            with uninterrupted():  # processes that are left would compute to their end, and we wait for them
                for child in set(multiprocessing.active_children()) - others:
                    child.kill()
                # The pool's own thread joins them: of two that do, one can miss an end for good.
                pool.shutdown(cancel_futures=True)
            raise


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _outcome(function: Callable[..., T], task: tuple[Any, ...]) -> tuple[T | None, str | None]:
    """The result of ``function``, or the message of its HocketError, as not all of these can be sent."""
    try:
        return function(*task), None
    except HocketError as error:
        return None, str(error)


def _result(outcome: tuple[T | None, str | None]) -> T:
    value, message = outcome
    if message is not None:
        raise HocketError(message)
    return value  # type: ignore[return-value]


def on_ray(
    function: Callable[..., T], tasks: Sequence[tuple[Any, ...]], progress: Progress | None = None
) -> list[T]:
    """``function(*task)`` of each task, in order, on a Ray cluster: RAY_ADDRESS's, or one on this machine.

    An object that several tasks share is sent once; arrays arrive as read-only views.

    Raises
    ------
    HocketError
        As ``function`` raises it, when there is no Ray or no cluster, and when one of its processes dies.
    """
    with ray_cluster() as ray:
        sent: dict[int, Any] = {}
        for argument in (argument for task in tasks for argument in task):
            if id(argument) not in sent:
                sent[id(argument)] = ray.put(argument)
        remote = ray.remote(num_cpus=1)(_apart)
        references = [remote.remote(function, *(sent[id(argument)] for argument in task)) for task in tasks]
        left = references
        while left:
            done, left = ray.wait(left, timeout=POLL_S)
            for outcome in ray.get(done):
                _result(outcome)
            if progress is not None:
                progress(len(tasks) - len(left), len(tasks))
        return [_result(outcome) for outcome in ray.get(references)]


def _apart(function: Callable[..., T], *task: Any) -> tuple[T | None, str | None]:
    return _outcome(function, task)


@contextmanager
def ray_cluster(address: str | None = None) -> Iterator[Any]:
    """Ray, connected to the cluster at ``address``, else RAY_ADDRESS's, else to one that ends with us.

    Raises
    ------
    HocketError
        When there is no Ray, or no cluster there.
    """
    address = address or os.environ.get("RAY_ADDRESS")
    if not address and "ray" not in sys.modules:
        # A process that reaches a cluster's port runs code on it: ours asks for a secret token. Ray
        # reads these when it is imported.
        os.environ.update(
            RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32)
        )
    try:
        import ray
    except ImportError:
        raise HocketError(
            "engine 'ray' needs Ray; install it with: pip install '.[ray]' in a clone of Hocket"
        ) from None
    ours = not ray.is_initialized()
    if ours:
        # A cluster of our own listens on loopback only, without a dashboard.
        alone: dict[str, Any] = (
            {} if address else {"_node_ip_address": "127.0.0.1", "include_dashboard": False}
        )
        try:
            ray.init(address or "local", log_to_driver=False, logging_level=logging.ERROR, **alone)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise HocketError(f"Ray cluster '{address or 'local'}' cannot be reached: {error}") from None
    try:
        # Ray prints what goes wrong in its cluster where results belong.
        with redirect_stdout(sys.stderr):
            yield ray
    except ray.exceptions.RayTaskError:
        raise  # what went wrong is in our function
    except ray.exceptions.RayError as error:
        raise HocketError(f"a Ray process died, perhaps for want of memory: {error}") from None
    finally:
        if ours:
            ray.shutdown()
