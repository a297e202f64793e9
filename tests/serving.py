"""Jobs with parameter servers inside one process: servers and workers are threads, their sockets are real."""

from __future__ import annotations

import gc
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import nn

from hocket.graph import Plan
from hocket.launch import Rule, ServedJob
from hocket.runtime.ps.server.server import ParameterServer
from hocket.runtime.ps.server_training import serve
from hocket.runtime.ps.worker.client import Client
from hocket.runtime.training.plan_source import PlanSource
from hocket.tuner.server_plans import ServingPlanner
from tests.tokens import TOKEN

T = TypeVar("T")

TIMEOUT_S = 30.0
_PATIENCE_S = 60.0


def wait_until(due: Callable[[], bool]) -> None:
    """Return once ``due``; a test that waits for ever fails."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while not due():
        assert time.monotonic() < deadline_s, "what was waited for did not happen"
        time.sleep(0.01)


@contextmanager
def served(rule: Rule, servers: int = 1, timeout_s: float = TIMEOUT_S, **options: Any) -> Iterator[Served]:
    """A job whose servers run; in the end they have ended by themselves."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(servers)]
    address = f"127.0.0.1:{listeners[0].getsockname()[1]}"
    job = ServedJob(address=address, token=TOKEN, rule=rule, servers=servers, timeout_s=timeout_s, **options)
    running = Served(job, [ParameterServer(job, k, listener) for k, listener in enumerate(listeners)])
    threads = [threading.Thread(target=running.run, args=[k], daemon=True) for k in range(servers)]
    for thread in threads:
        thread.start()
    try:
        yield running
    finally:
        for thread in threads:
            thread.join(TIMEOUT_S)
        for listener in listeners:
            listener.close()
        # A model that is left to its cycles would end, and say why, in the middle of a later test.
        gc.collect()
    assert not any(thread.is_alive() for thread in threads)


def _forget_models(error: BaseException | None) -> None:
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__


def client_of(model: nn.Module) -> Client:
    """The connections of a model in training, which users have no name for."""
    client: Client = vars(model)["hocket"]._training.client
    return client


class Served:
    """``statuses``: of servers that have ended."""

    def __init__(self, job: ServedJob, servers: list[ParameterServer]) -> None:
        self.job, self.servers = job, servers
        self.statuses: list[int | None] = [None] * len(servers)

    def run(self, index: int) -> None:
        self.statuses[index] = self.servers[index].run()

    def train(
        self,
        worker: int,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        policy: str = "fifo",
        plan: Plan | None = None,
    ) -> None:
        """What ``hocket.distribute`` does on that worker."""
        source = PlanSource(planner=ServingPlanner(policy, self.job.seed), plan=plan)
        serve(model, optimizer, source, job=self.job, worker=worker)

    def on_workers(
        self, work: Callable[[int], T], workers: int | None = None, limit_s: float = 2 * TIMEOUT_S
    ) -> list[T]:
        """What ``work(worker)`` returns on each, within ``limit_s``; its first exception, if any."""
        count = self.job.rule.workers if workers is None else workers
        results: dict[int, T] = {}
        errors: list[BaseException] = []

        def run(worker: int) -> None:
            try:
                results[worker] = work(worker)
            except BaseException as error:
                errors.append(error)
                _forget_models(error)

        threads = [threading.Thread(target=run, args=[worker], daemon=True) for worker in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(limit_s)
        if errors:
            for server in self.servers:
                server.core.fail("a worker of this test has failed")
            raise errors[0]
        assert len(results) == count, "a worker of this test has not ended"
        return [results[worker] for worker in range(count)]
