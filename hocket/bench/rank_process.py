"""A rank's process: how it is started, how it begins and ends, whatever its benchmark, and what that says."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import torch.distributed as dist

from hocket.errors import HocketError

LOST = 3  # the status of a rank that failed because another is gone


def run_rank(work: Callable[[], None], folder: Path) -> NoReturn:
    """Do ``work`` as this process's only purpose, and end it.

    A rank that fails leaves one line in RANK.failed of ``folder`` and ends with status 1, or with
    :data:`LOST` where it failed because another was gone.
    """
    threading.Thread(target=_leave_with, args=[os.getppid()], daemon=True).start()
    # An interrupt is for the process that started us to speak of.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # A user's file prints to stderr: stdout is for the answer of the process that started us.
    os.dup2(2, 1)
    try:
        work()
        # An interpreter that ends is aborted where one of torch's threads still has a tensor to give back.
        sys.stdout.flush()
        os._exit(0)
    except Exception as error:
        kind = "" if isinstance(error, HocketError) else f"{type(error).__name__}: "
        (folder / f"{os.environ['RANK']}.failed").write_text(f"{kind}{error}".strip().partition("\n")[0])
        # Threads of the process groups may still wait for a rank that is gone.
        os._exit(LOST if _by_another(error) else 1)


def environment_of_ranks(threads: int) -> dict[str, str]:
    """The environment variables of ranks: they import what this process imports, from where it does.

    A plan is chosen anew in each: what an earlier run chose would decide on what is measured here.
    """
    return {
        "HOCKET_CACHE": "off",
        "OMP_NUM_THREADS": str(threads),
        "TORCH_CPP_LOG_LEVEL": "ERROR",  # it warns of namespaces without a name server
        "PYTHONPATH": os.pathsep.join(os.path.abspath(entry) for entry in sys.path),
    }


def _leave_with(parent: int) -> None:
    """End this process when the one that started it is gone: nobody waits for what it finds."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _by_another(error: Exception) -> bool:
    """True if this rank failed only because another is gone; gloo has no type of its own for that."""
    text = str(error).lower()
    return isinstance(error, dist.DistError) or "connection closed" in text or "connection reset" in text
