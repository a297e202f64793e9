"""Variants timed side by side: the step alone, the network alone, DDP's ways to overlap them, and hocket's.

Each variant has a copy of the same model and, where it communicates, a process group of its own, so that none
waits for another's collectives.
"""

from __future__ import annotations

import copy
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

import hocket
from hocket.bench.training.training_request import DEFAULT_BUCKET_MB
from hocket.errors import HocketError
from hocket.graph import Plan, StepGraph
from hocket.network import Network
from hocket.profiler import StepSetup, arguments, returned_loss
from hocket.runtime.training.allreduce_handle import AllReduceHandle
from hocket.runtime.transfers.queue import CREDIT

_PIECE_BYTES = 2_000_000
_SETTLED_BY = 200
_MOST_NORM = 1.0

Run = Callable[[int], None]
Around = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A way to spend a step.

    ``run``: do so many steps; ``finish``: wait for what they have begun; ``around``: what is the case while
    they run, timed neither at its start nor at its end; ``end``: leave nothing running, once every rank has
    finished. ``alone``: no step waits for another rank, or goes on into the next one.
    """

    name: str
    run: Run
    finish: Callable[[], None] = lambda: None
    around: Around = nullcontext
    end: Callable[[], None] = lambda: None
    alone: bool = False


class Copy:
    """A model of its own, with its loss and optimizer, that trains on a shared batch.

    ``clip``: its steps clip gradients by their norm.
    """

    def __init__(self, setup: StepSetup, *, clip: bool = False) -> None:
        self._clip = clip
        model, self._loss, optimizer = copy.deepcopy((setup.model, setup.loss, setup.optimizer))
        assert optimizer is not None
        self.model: nn.Module = model
        self.optimizer: Optimizer = optimizer
        self._arguments = arguments(setup.batch, with_targets=self._loss is not None)

    def train(self, steps: int) -> None:
        """Steps as most scripts write them."""
        for _ in range(steps):
            self.optimizer.zero_grad()
            outputs = self.model(*self._arguments.args, **self._arguments.kwargs)
            if self._loss is None:
                loss = returned_loss(outputs)
            else:
                loss = self._loss(outputs, self._arguments.targets)
            loss.backward()  # type: ignore[no-untyped-call]
            if self._clip:
                nn.utils.clip_grad_norm_(self.model.parameters(), _MOST_NORM)
            self.optimizer.step()


def gradient_bytes(model: nn.Module) -> int:
    """Bytes that one all-reduce of all gradients moves."""
    return sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)


def ddp(
    setup: StepSetup, bucket_mb: int, group: dist.ProcessGroup, *, clip: bool = False, compiled: bool = False
) -> Run:
    """Steps of a copy under DDP with buckets of ``bucket_mb`` MiB, all else being its default.

    With :data:`DEFAULT_BUCKET_MB` it is DDP as users run it, whose first bucket is of 1 MiB; a size that is
    given to DDP holds for the first bucket, too.
    """
    trained = Copy(setup, clip=clip)
    trained.model = DistributedDataParallel(
        trained.model,
        bucket_cap_mb=None if bucket_mb == DEFAULT_BUCKET_MB else bucket_mb,
        process_group=group,
    )
    if compiled:
        trained.model.compile()
    return trained.train


class HocketCopy(Copy):
    """A copy under hocket's plan, and what hocket knows of it: ``handle`` is its own."""

    def __init__(self, setup: StepSetup, plan: str, *, clip: bool = False, compiled: bool = False) -> None:
        super().__init__(setup, clip=clip)
        hocket.distribute(self.model, self.optimizer, plan=plan, compile=compiled)
        self.handle = cast(AllReduceHandle, self.model.hocket)

    def train_until_settled(self) -> None:
        """Train until the plan that is in force stays; ranks agree on it, so all of them train as long.

        Raises
        ------
        HocketError
            When 200 steps are not enough, beside those in which plans are made.
        """
        steps = 0
        while steps < _SETTLED_BY:
            self.train(1)
            if self.handle.settled:
                return
            steps += self.handle.phase != "planning"
        raise HocketError(
            f"hocket has not settled on a plan within {_SETTLED_BY} steps; give one with --plan"
        )

    def finish(self) -> None:
        """Wait for all that training has begun."""
        self.handle.flush()

    def end(self) -> None:
        """End hocket's threads and process groups, once every rank has finished."""
        self.handle.detach()

    def known(self) -> tuple[StepGraph, Plan, Network]:
        """The step and the network as the runtime measured them, and its plan."""
        graph, network = self.handle.profile, self.handle.network
        assert graph is not None
        assert network is not None
        return graph, self.handle.plan, network


def all_reduce(size_bytes: int, group: dist.ProcessGroup) -> Run:
    """Steps that do nothing but reduce ``size_bytes``, in pieces of 2 MB, as many on the way as hocket's."""
    # Zeros stay zeros however often they are summed.
    pieces = torch.split(torch.zeros(size_bytes // 4), _PIECE_BYTES // 4)

    def run(steps: int) -> None:
        pending: deque[dist.Work] = deque()
        for piece in itertools.chain.from_iterable(itertools.repeat(pieces, steps)):
            if len(pending) == CREDIT:
                pending.popleft().wait()
            pending.append(_reduce(piece, group))
        for work in pending:
            work.wait()

    return run


@contextmanager
def traffic(group: dist.ProcessGroup, timeout_s: float) -> Iterator[None]:
    """All-reduces of 2 MB, as many on the way as hocket has, from a thread; they end once a rank leaves."""
    leaving = threading.Event()

    def reduce() -> None:
        pieces = [torch.zeros(_PIECE_BYTES // 4) for _ in range(CREDIT)]
        pending = deque((piece, _reduce(piece, group)) for piece in pieces)
        while True:
            piece, work = pending.popleft()
            work.wait()
            # That a rank leaves travels with a piece, so that all ranks see it at the same one.
            if piece[0] > 0:
                break
            piece[0] = float(leaving.is_set())
            pending.append((piece, _reduce(piece, group)))
        for _, work in pending:
            work.wait()

    with ThreadPoolExecutor(1, thread_name_prefix="traffic") as pool:
        ended = pool.submit(reduce)
        try:
            yield
        finally:
            leaving.set()
            ended.result(timeout=timeout_s)


def _reduce(piece: Tensor, group: dist.ProcessGroup) -> dist.Work:
    return cast(dist.Work, dist.all_reduce(piece, group=group, async_op=True))
