"""Ranks that train on while rank 0 has plans made by a process that takes long, or fails."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import hocket
from hocket.errors import HocketError
from tests.multiprocess.setups import Plain, batch, sgd
from tests.multiprocess.twins import SLOW, Twins

# In place of what planners load: it takes a while first, and is then the one that others would have loaded.
_LATE = """
import sys, time
time.sleep({seconds})
del sys.modules["numba"]
sys.path.remove({folder!r})
{then}
import numba
"""


def hold_up(folder: str, seconds: float, then: str = "") -> None:
    """Have planning take ``seconds`` more, and do ``then``."""
    (Path(folder) / "numba.py").write_text(_LATE.format(folder=folder, seconds=seconds, then=then))
    sys.path.insert(0, folder)


def children() -> list[int]:
    """The processes that this one has started."""
    return [
        int(pid)
        for thread in Path("/proc/self/task").iterdir()
        for pid in (thread / "children").read_text().split()
    ]


def steps_of(rank: int, twins: Twins) -> Iterator[int]:
    """Steps of both, each number when it is over."""
    step = 0
    while True:
        x, y = batch(rank, step)
        for model, optimizer, _ in twins.each():
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        yield step
        step += 1


def trained_meanwhile(rank: int, world: int, folder: str, fails: bool) -> dict[str, Any]:
    """In which phase each step was, and how long those took in which plans were made."""
    os.environ["HOCKET_CACHE"] = str(Path(folder) / "kept")
    hold_up(folder, 5.0, "raise OSError('no kernels')" if fails else "")
    twins = Twins(Plain, sgd, plan="auto", network=SLOW)
    handle: Any = twins.ours.hocket
    phases: list[str] = []
    seconds: list[float] = []
    behind, waiting, making = 0, children(), ""
    begun_s = time.perf_counter()
    for _ in steps_of(rank, twins):
        ended_s = time.perf_counter()
        phases.append(handle.phase)
        if phases[-2:] == ["planning"] * 2:
            seconds.append(ended_s - begun_s)
            making = handle.explain().splitlines()[1]
        behind += handle.settled
        if behind > 5:
            break
        begun_s = time.perf_counter()
    return {
        "phases": phases,
        "longest": max(seconds),
        "differences": twins.differences(0.0 if world == 2 else 1e-6),
        "plan": handle.plan.policy,
        "said": handle.explain().splitlines()[1],
        "waiting": len(waiting),
        "making": making,
        "children": children(),
        "kept": len(list(Path(folder).glob("kept/**/*.json"))),
    }


def ended_meanwhile(rank: int, world: int, folder: str, how: str) -> dict[str, Any]:
    """A training that ends while plans are made: by itself, by a rank that goes, or as it is detached."""
    hold_up(folder, 120.0)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    hocket.distribute(model, optimizer, network=SLOW, timeout_s=60)
    handle: Any = model.hocket
    told: dict[str, Any] = {"error": "", "children": []}
    steps_left = 20
    try:
        while steps_left:
            optimizer.zero_grad()
            model(torch.ones(4, 8)).sum().backward()
            optimizer.step()
            steps_left -= handle.phase == "planning"
            if steps_left == 10:
                told["children"] = children()
                if how == f"rank {rank} goes":
                    (Path(folder) / "children").write_text(" ".join(map(str, told["children"])))
                    os.kill(os.getpid(), signal.SIGKILL)
        if how == "one more pass" and rank == 0:
            model(torch.ones(4, 8))  # which others do not have
        if how == "one less pass" and rank == 1:
            model(torch.ones(4, 8))
        if how == "detached":
            handle.detach()
            told["left"] = children()
    except HocketError as error:
        told["error"] = str(error)
    return told
