"""Labs need root, iproute2 and a kernel that lets us; each test's name no other test run uses."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hocket.ending import TERMINATE, end_processes
from hocket.lab import Lab, names, remove


def _lacking() -> str | None:
    if os.geteuid() != 0:
        return "labs need root"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"labs need {tool} of iproute2"
    made = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True, check=False)
    return f"this machine lets nobody make namespaces: {made.stderr.strip()}" if made.returncode else None


_LACKING = _lacking()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path, as sockets are in it; nothing of it is left."""
    made = Path(tempfile.mkdtemp(prefix="h"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def name() -> Iterator[str]:
    """A lab's name; in the end nothing is left of it, by the test's own doing."""
    if _LACKING:
        pytest.skip(_LACKING)
    own = f"test{os.getpid()}"
    yield own
    left = [other for other in names() if other.startswith(own)]
    for other in left:
        remove(other)
    assert left == []


@pytest.fixture(scope="module")
def pair() -> Iterator[Lab]:
    """A lab of two nodes that a module's tests share."""
    if _LACKING:
        pytest.skip(_LACKING)
    with Lab(nodes=2, rate_bps=100e6, name=f"pair{os.getpid()}") as lab:
        yield lab


@pytest.fixture
def two(pair: Lab) -> Iterator[Lab]:
    """The shared lab; in the end no process is left in it."""
    yield pair
    left = processes(pair)
    # Those of a test that failed are no fault of the tests after it.
    end_processes(lambda: processes(pair), TERMINATE[-1:], lambda: time.sleep(0.05))
    assert left == []


def processes(lab: Lab) -> list[int]:
    """What iproute2 says is running in a lab."""
    found = []
    for node in lab.nodes:
        listed = subprocess.run(
            ["ip", "netns", "pids", node.namespace], capture_output=True, text=True, check=True
        )
        found += [int(pid) for pid in listed.stdout.split()]
    return found


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C interrupts, also where a shell has started the suite in its background."""
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, earlier)
