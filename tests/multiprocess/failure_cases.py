"""What ranks run for test_failures.py: different models and plans, killed ranks, ranks that end early."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path

import msgspec
import torch
import torch.distributed as dist
from torch import nn

import hocket
from hocket.errors import HocketError
from tests.delayed.install import moved
from tests.multiprocess.setups import Plain, batch, sgd
from tests.multiprocess.twins import sliced_plan


def _refusal(model: nn.Module, plan: object, **arguments: bool) -> str:
    try:
        hocket.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1), plan=plan, **arguments)
    except HocketError as error:
        return str(error)
    return "accepted"


def refused(rank: int, world: int) -> dict[str, str]:
    """Refusals at the start, on every rank alike; afterwards the ranks still train."""
    found = {}
    wider = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4 + rank), nn.Linear(4 + rank, 2))
    found["shape"] = _refusal(wider, "ddp")
    part_frozen = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    part_frozen[1].requires_grad_(rank == 0)
    found["frozen on one"] = _refusal(part_frozen, "ddp")
    table = nn.Sequential(nn.Embedding(4 + rank, 2).requires_grad_(False), nn.Linear(2, 2))
    found["frozen shape"] = _refusal(table, "ddp")
    norm = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, track_running_stats=rank == 0))
    found["buffer"] = _refusal(norm, "ddp")
    more = nn.Sequential(*[nn.Linear(2, 2) for _ in range(2 + rank)])
    found["count"] = _refusal(more, "ddp")
    model = Plain()
    plan = sliced_plan(model)
    if rank == 1:
        plan = msgspec.structs.replace(plan, reductions=plan.reductions[::-1])
    found["plan"] = _refusal(model, plan)
    part = sliced_plan(model)
    part = msgspec.structs.replace(part, reductions=part.reductions[1:])
    same = sliced_plan(model, "ready" if rank else "listed")
    found["issue"] = _refusal(model, same)
    found["incomplete"] = _refusal(model, part)
    found["policy"] = _refusal(model, "ddp" if rank else "auto")
    found["policy or plan"] = _refusal(model, sliced_plan(model) if rank else "auto")
    found["values"] = _refusal(model, "ddp", init_sync=rank == 0)
    found["compile"] = _refusal(model, "ddp", compile=rank == 1)
    found["name"] = _refusal(model, "fastest")
    found["frozen"] = _refusal(nn.Linear(2, 2).requires_grad_(False), "ddp")
    model = Plain()
    optimizer = sgd(model)
    hocket.distribute(model, optimizer, plan="ddp")
    found["twice"] = _refusal(model, "ddp")
    model(batch(rank, 0)[0]).sum().backward()
    optimizer.step()
    return found


class Bufferless(nn.Module):
    """Ranks hear of each other by gradients alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(192, 64), nn.ReLU(), nn.Linear(64, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def _raise(_: torch.Tensor) -> None:
    raise ValueError("no gradient today")


def _train_until(rank: int, fail_at: int, how: str) -> None:
    model = moved(Bufferless() if "no buffers" in how else Plain())
    optimizer = sgd(model)
    issue = "ready" if how.endswith("ready") else "listed"
    hocket.distribute(model, optimizer, plan=sliced_plan(model, issue), timeout_s=120)  # noticed long before
    for step in range(1000):
        if rank == 1 and step == fail_at:
            if how.startswith("kill") and "backward" not in how:
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "raise":
                raise ValueError("no more data")
            if how.startswith("return"):
                return
        x, y = batch(rank, step)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        if rank == 1 and step == fail_at + 1 and how == "kill in backward":
            loss.register_hook(lambda _: os.kill(os.getpid(), signal.SIGKILL))
        if rank == 1 and step == fail_at + 1 and how.startswith("raise halfway"):
            halfway = list(model.parameters())[2]  # gradients of later layers are on their way
            halfway.register_hook(_raise)
        loss.backward()
        if rank == 0 and step == fail_at and how.endswith("later"):
            time.sleep(2.0)  # the other's end is known before anybody waits for it
        optimizer.step()


def failing(rank: int, world: int, fail_at: int, how: str) -> str:
    """The error of the ranks that are left."""
    try:
        _train_until(rank, fail_at, how)
    except HocketError as error:
        return str(error)
    return "ended"


def many_steps(rank: int, world: int, steps: int, leak_every: int = 0) -> list[dict[str, tuple[int, int]]]:
    """Least and most memory, files, threads and tensors of this process in ten steps, five times a training.

    Ten, as transfers and updates that are under way hold a few tensors at one moment and not at the next.
    """
    model = Plain()
    optimizer = sgd(model)
    hocket.distribute(model, optimizer)
    found: list[dict[str, tuple[int, int]]] = []
    sizes: list[dict[str, int]] = []
    leaked = []
    for step in range(steps):
        x, y = batch(rank, step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        if leak_every and step % leak_every == 0:
            leaked.append(x)
        if steps // 5 - 10 <= step % (steps // 5):
            sizes.append(_sizes())
        if len(sizes) == 10:
            found.append({what: _range([s[what] for s in sizes]) for what in sizes[0]})
            sizes = []
    return found


def _range(values: list[int]) -> tuple[int, int]:
    return min(values), max(values)


def _sizes() -> dict[str, int]:
    gc.collect()
    status = Path("/proc/self/status").read_text()
    return {
        "resident_kb": int(status.split("VmRSS:")[1].split()[0]),
        "files": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "tensors": sum(isinstance(o, torch.Tensor) for o in gc.get_objects()),
    }


def grown(moments: list[dict[str, tuple[int, int]]]) -> dict[str, tuple[int, int]]:
    """Sizes of :func:`many_steps` that grew: the most once the training had settled, the least in its end."""
    settled, *_, last = moments[1:]
    most = {what: high for what, (_, high) in settled.items()}
    allowed = most | {"resident_kb": most["resident_kb"] + 4096}
    return {what: (most[what], low) for what, (low, _) in last.items() if low > allowed[what]}


def ending_apart(rank: int, world: int) -> None:
    """Training is over; rank 1 has something left to do, rank 0, which serves the job's store, has not."""
    model = Plain()
    optimizer = sgd(model)
    hocket.distribute(model, optimizer, plan="ddp")
    model(batch(rank, 0)[0]).sum().backward()
    optimizer.step()
    if rank == 1:
        time.sleep(2.5)


def collected_on_one_rank(rank: int, world: int) -> str:
    """The first rank lets go of models that the other one keeps, and then is waited for some seconds only."""
    meeting = dist.new_group(timeout=timedelta(seconds=12))
    kept = []
    for _ in range(4):
        model = Plain()
        optimizer = sgd(model)
        hocket.distribute(model, optimizer, plan="ddp")
        for step in range(3):
            model(batch(rank, step)[0]).sum().backward()
            optimizer.step()
        model.hocket.flush()
        kept.append((model, optimizer))
    dist.barrier(meeting)
    if rank == 0:
        del model, optimizer
        kept.clear()
        gc.collect()
    dist.barrier(meeting)
    return "met"
