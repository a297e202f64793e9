"""Parameter servers when workers come, go, are slow or are lost."""

from __future__ import annotations

import copy
import time
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

from hocket.errors import HocketError
from hocket.launch import Rule
from tests.multiprocess.serving_setups import (
    OPTIMIZERS,
    SYNC2,
    Layers,
    made,
    step,
)
from tests.multiprocess.setups import batch
from tests.serving import client_of, served, wait_until

pytestmark = pytest.mark.slow


def test_agents_only_pull() -> None:
    model = made(Layers).eval()
    wanted = model(batch(0, 0)[0])

    def work(worker: int) -> list[torch.Tensor]:
        mine = copy.deepcopy(model) if worker == 0 else Layers().eval()
        optimizer = OPTIMIZERS["sgd"](mine)
        job.train(worker, mine, optimizer, "tac")
        with torch.no_grad():
            outputs = [mine(batch(0, 0)[0]) for _ in range(14)]
            deadline_s = time.monotonic() + 40
            while mine.hocket.plan.policy != "tac" and time.monotonic() < deadline_s:
                outputs.append(mine(batch(0, 0)[0]))  # worker 0 plans, and may be behind
        assert mine.hocket.order.transfers["pull"] > 0
        assert mine.hocket.plan.policy == "tac"
        with pytest.raises(HocketError, match="trains nothing"):
            optimizer.step()
        mine.hocket.detach()
        return outputs

    with served(Rule(mode="inference", workers=2), servers=2) as job:
        for outputs in job.on_workers(work):
            assert all(torch.equal(output, wanted) for output in outputs)


def test_workers_that_are_lost_and_come_again_count_every_push_once() -> None:
    """A rate of one and gradients of one: what a value has lost is how many updates it has had."""
    steps, lives = 15, 3

    def train(worker: int, last: int, leave: str) -> None:
        model = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Linear(4, 2, bias=False))
        with torch.no_grad():
            for p in model.parameters():
                p.zero_()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        job.train(worker, model, optimizer)
        for _ in range(last):
            optimizer.zero_grad()
            sum(p.sum() for p in model.parameters() if model(torch.ones(1, 3)) is not None).backward()
            optimizer.step()
        if leave == "finished":
            model.hocket.detach()
            return
        if leave == "in a step":  # what it pushed without a step is not to count
            model(torch.ones(1, 3))
            sum(p.sum() for p in model.parameters()).backward()
        client_of(model).close()  # as a process that is killed: its connections end

    def work(worker: int) -> None:
        if worker == 1:
            for life in range(lives):
                train(1, 3 + life, "in a step" if life % 2 else "between steps")
                wait_until(lambda: all(1 not in server.core.peers for server in job.servers))
        train(worker, steps, "finished")

    with served(Rule(mode="async", workers=2), servers=2) as job:
        job.on_workers(work)
    for server in job.servers:
        exchange = server.core
        counts = exchange.ledger.counts
        assert counts.received == counts.applied + counts.dropped
        assert counts.applied == sum(exchange.ledger.versions)
        for version, p in zip(exchange.ledger.versions, exchange.shard.parameters, strict=True):
            assert torch.equal(p, torch.full_like(p, -float(version)))
            committed = 2 * steps + sum(3 + life for life in range(lives))
            # Of the last step before it was lost a worker's gradients may not have got through.
            assert committed - lives <= version <= committed


def test_a_synchronous_job_ends_for_all_when_a_worker_is_lost() -> None:
    errors = {}

    def work(worker: int) -> None:
        model = made(Layers)
        optimizer = OPTIMIZERS["sgd"](model)
        if worker == 1:
            job.train(worker, model, optimizer)
            step(model, optimizer, *batch(worker, 0))
            client_of(model).close()
            return
        try:  # from the first on: this worker may not be through with anything when the other leaves
            job.train(worker, model, optimizer)
            for number in range(100):
                step(model, optimizer, *batch(worker, number))
        except HocketError as error:
            errors[worker] = str(error)

    with served(SYNC2, servers=2) as job:
        job.on_workers(work)
    assert "ended it: worker 1 is gone in step " in errors[0]
    assert job.statuses == [1, 1]


def test_a_worker_with_fewer_batches_is_named() -> None:
    def work(worker: int) -> None:
        model = made(Layers)
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        for number in range(3 + 2 * worker):
            step(model, optimizer, *batch(worker, number))
        model.hocket.detach()

    with (
        served(SYNC2) as job,
        pytest.raises(HocketError, match=r"worker 0 has finished while others go on; .* number of batches"),
    ):
        job.on_workers(work)


def test_a_wait_ends_with_the_jobs_timeout() -> None:
    """The other worker never comes."""

    def work(worker: int) -> None:
        model = made(Layers)
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        client = client_of(model)
        client.job = msgspec.structs.replace(client.job, timeout_s=0.5)  # to join may take longer
        try:
            for number in range(3):
                step(model, optimizer, *batch(worker, number))
        finally:
            client.close()

    with (
        served(SYNC2) as job,
        pytest.raises(HocketError, match=r"server 0 did not send 'layers\.0\.weight' within \d+ s"),
    ):
        job.on_workers(work, workers=1)


@pytest.mark.slow
def test_a_worker_that_finishes_waits_for_pushes_that_take_long() -> None:
    """As over a slow link: more than any wait of our own for the end."""

    def work(worker: int) -> None:
        model = made(Layers)
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        step(model, optimizer, *batch(worker, 0))
        (connection,) = client_of(model).connections
        send = connection._transport.send

        def slowly(header: Any, payload: Any = None) -> None:
            time.sleep(1.0)
            send(header, payload)

        connection._transport.send = slowly
        step(model, optimizer, *batch(worker, 1))
        client_of(model).finish()

    with served(Rule(mode="async")) as job:
        job.on_workers(work)
    (server,) = job.servers
    counts = server.core.ledger.counts
    assert job.statuses == [0]
    assert counts.received == counts.applied == 2 * len(server.core.shard.parameters)
