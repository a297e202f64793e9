"""How jobs with parameter servers end: no step is lost, and no error, without a word."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hocket.errors import HocketError
from hocket.launch import Rule
from hocket.runtime.ps.server_training import serve
from hocket.runtime.training.plan_source import PlanSource
from hocket.tuner.server_plans import ServingPlanner
from tests.multiprocess.serving_setups import OPTIMIZERS, Layers, made, step
from tests.multiprocess.setups import batch
from tests.serving import client_of, served, wait_until

pytestmark = pytest.mark.slow


def test_a_worker_leaves_when_its_last_step_counts() -> None:
    def work(worker: int) -> list[int]:
        model = made(Layers)
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        step(model, optimizer, *batch(worker, 0))
        (server,) = job.servers
        update = server.core.values.update

        def slowly(*given: Any) -> None:
            time.sleep(0.1)
            update(*given)

        server.core.values.update = slowly  # type: ignore[method-assign]
        step(model, optimizer, *batch(worker, 1))
        client_of(model).finish()
        return list(server.core.ledger.versions)

    with served(Rule(mode="async")) as job:
        (versions,) = job.on_workers(work)
    assert versions == [2] * 6
    assert job.statuses == [0]


def test_a_step_that_is_lost_while_its_worker_leaves_is_told() -> None:
    leaving = threading.Event()

    def work(worker: int) -> None:
        model = made(Layers)
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        step(model, optimizer, *batch(worker, 0))
        model.hocket.flush()
        (server,) = job.servers

        def fail(*_: Any) -> None:
            assert leaving.wait(60)  # else the step itself may be told
            raise MemoryError

        server.core.values.update = fail  # type: ignore[method-assign]
        step(model, optimizer, *batch(worker, 1))
        leaving.set()
        with pytest.raises(HocketError, match=r"server 0 ended it: an update failed: MemoryError\(\)"):
            client_of(model).finish()
        client_of(model).finish()  # once is enough

    with served(Rule(mode="async")) as job:
        job.on_workers(work)
    assert job.statuses == [1]


def test_a_step_that_is_lost_with_nobody_to_catch_it_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    """As where an interpreter ends."""

    def work(worker: int) -> None:
        model = made(Layers)
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        step(model, optimizer, *batch(worker, 0))
        model.hocket.flush()
        (server,) = job.servers
        server.core.fail("the power is gone")
        wait_until(lambda: client_of(model)._finished)
        model.hocket._undo[-1]()

    with served(Rule(mode="async")) as job:
        job.on_workers(work)
    assert (
        "hocket: worker 0: training stopped: server 0 ended it: the power is gone" in capfd.readouterr().err
    )


def test_a_model_that_is_collected_in_a_thread_of_its_own_training_has_finished() -> None:
    def work(worker: int) -> None:
        model = made(Layers)
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        client, end = client_of(model), model.hocket._undo[-1]
        step(model, optimizer, *batch(worker, 0))
        model.hocket.flush()
        client.on_transfer = lambda direction, *_: end() if direction == "pull" else None  # at most once
        step(model, optimizer, *batch(worker, 1))
        wait_until(lambda: all(connection.has_ended for connection in client.connections))

    with served(Rule(mode="async")) as job:
        job.on_workers(work)
    assert job.statuses == [0]


def test_a_worker_whose_timeline_cannot_be_written_has_finished(tmp_path: Path) -> None:
    def work(worker: int) -> None:
        model = made(Layers)
        optimizer = OPTIMIZERS["sgd"](model)
        path = str(tmp_path / "missing" / "timeline.json")
        source = PlanSource(planner=ServingPlanner("fifo", 0))
        serve(model, optimizer, source, job=job.job, worker=worker, timeline_path=path)
        step(model, optimizer, *batch(worker, 0))
        with pytest.raises(HocketError, match="missing"):
            model.hocket.detach()

    with served(Rule(mode="async")) as job:
        job.on_workers(work)
    assert job.statuses == [0]


def test_updates_that_are_not_made_in_time_when_all_is_over_are_an_error() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def work(worker: int) -> None:
        model = made(Layers)
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        (server,) = job.servers

        def slowly(*_: Any) -> None:
            begun.set()
            go_on.wait(60)

        server.core.values.update = slowly  # type: ignore[method-assign]
        step(model, optimizer, *batch(worker, 0))
        assert begun.wait(60)
        server.job = server.core.job = msgspec.structs.replace(server.job, timeout_s=0.5)
        client_of(model).close()

    with served(Rule(mode="async")) as job:
        job.on_workers(work)
    go_on.set()
    assert job.statuses == [1]
    assert "updates that are due take longer than 0.5 s" in job.servers[0].core.failure


def test_what_a_server_says_last_is_told_though_its_other_connections_break_first() -> None:
    def work(worker: int) -> str:
        model = made(Layers)
        job.train(worker, model, OPTIMIZERS["sgd"](model))
        model.hocket.flush()
        client = client_of(model)
        handle_message = client.handle_message

        def late(*given: Any) -> None:
            time.sleep(0.2)
            handle_message(*given)

        client.handle_message = late
        job.servers[0].core.fail("worker 7 is gone")
        client.handle_loss(client.connections[0], "its connection was closed")
        return str(client._error)

    with served(Rule(mode="async")) as job:
        assert job.on_workers(work) == ["server 0 ended it: worker 7 is gone"]


def test_a_disk_that_is_full_ends_the_job_in_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def work(worker: int) -> None:
        model = made(Layers)
        own = OPTIMIZERS["sgd"](model)
        job.train(worker, model, own)
        step(model, own, *batch(worker, 0))
        model.hocket.flush()
        kept = job.servers[0].core.values.checkpoint
        assert kept is not None
        assert kept._file is not None
        kept._file.close()
        kept._file = Path("/dev/full").open("wb")  # noqa: SIM115

        def train() -> None:
            for number in range(1, 4):
                step(model, own, *batch(worker, number))

        with pytest.raises(HocketError, match=r"no checkpoint can be kept there \(No space left on device\)"):
            train()

    with served(Rule(mode="async"), checkpoint=str(tmp_path)) as job:
        job.on_workers(work)
    assert job.statuses == [1]
    assert f"hocket: server 0: {tmp_path}: no checkpoint can be kept there" in capfd.readouterr().err
