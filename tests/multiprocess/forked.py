"""Ranks that are forked from a process that has imported PyTorch and Hocket: each would import them anew.

Importing takes seconds of a processor a rank, which is more than most of the cases that ranks run. Tests of
what a process does as it begins and ends, or of its memory, have programs of their own.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import forkserver, get_context
from multiprocessing.util import get_temp_dir
from pathlib import Path
from typing import Any

_CONTEXT = get_context("forkserver")
get_temp_dir()  # of the forking process's socket, for good: a test's own TMPDIR may be too long for one


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Start the forking process as ranks are started: OpenMP reads its variables when PyTorch is imported."""
    given = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        os.environ.pop("OMP_NUM_THREADS")
        if given is not None:
            os.environ["OMP_NUM_THREADS"] = given


class ForkedRank:
    """A started process that runs ``work`` in ``environment`` and prints to ``output``.

    Its methods are those of a ``subprocess.Popen``.
    """

    def __init__(
        self,
        work: Callable[..., None],
        arguments: tuple[Any, ...],
        environment: Mapping[str, str],
        output: Path,
    ) -> None:
        _CONTEXT.set_forkserver_preload(["tests.multiprocess.preloaded"])
        with _one_thread():
            forkserver.ensure_running()
        given = (work, arguments, dict(environment), str(output), os.getcwd())
        self._process = _CONTEXT.Process(target=_rank, args=given)
        self._process.start()
        self.pid = self._process.ident or 0

    def poll(self) -> int | None:
        """The exit status; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float) -> int:
        """The exit status, waited for."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Signal the process, where it runs."""
        if self._process.exitcode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process, where it runs."""
        self._process.kill()


def _rank(
    work: Callable[..., None],
    arguments: tuple[Any, ...],
    environment: dict[str, str],
    output: str,
    folder: str,
) -> None:
    os.chdir(folder)
    sys.argv = [__file__]  # what a timeline says that it was made by
    os.environ.clear()
    os.environ.update(environment)
    random.seed()  # processes that are forked from one draw alike
    with open(output, "wb", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    faulthandler.enable()
    if "tests.multiprocess.preloaded" not in sys.modules:
        raise RuntimeError("the forking process has imported nothing: it began in another folder")
    work(*arguments)
