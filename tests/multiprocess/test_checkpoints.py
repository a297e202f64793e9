"""Servers that go on from their checkpoint: nothing acknowledged is lost, and nothing counts twice."""

from __future__ import annotations

import contextlib
import copy
import os
import random
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hocket.errors import HocketError
from hocket.launch import JOB_VARIABLE, Rule, ServedJob
from hocket.ports import free_port
from hocket.runtime.ps.server.checkpoint import Checkpoint
from hocket.runtime.ps.server.checkpoint_records import Buffers, PushedStep, Update
from hocket.runtime.ps.server.shard import Shard
from hocket.runtime.ps.server_training import serve
from hocket.runtime.ps.wire.model_spec import Spec, TensorSpec
from hocket.runtime.training.plan_source import PlanSource
from hocket.tuner.server_plans import ServingPlanner
from tests.multiprocess.serving_setups import (
    OPTIMIZERS,
    STEPS,
    SYNC2,
    Layers,
    alone,
    close,
    equal,
    made,
    step,
    trained,
)
from tests.multiprocess.setups import Plain, batch
from tests.serving import TIMEOUT_S, Served, client_of, served
from tests.tokens import TOKEN

pytestmark = pytest.mark.slow


def some_steps(
    job: Served,
    models: list[nn.Module],
    optimizer: str,
    last: int,
    first: dict[int, int],
    leave: bool,
    acknowledged: bool = False,
) -> list[dict[str, torch.Tensor]]:
    """Train up to step ``last``; then finish, or, once all have come, ``leave`` as killed processes do.

    ``acknowledged``: by all servers, before it leaves.
    """

    come = threading.Barrier(len(models))

    def work(worker: int) -> dict[str, torch.Tensor]:
        model = models[worker]
        own = OPTIMIZERS[optimizer](model)
        job.train(worker, model, own)
        first[worker] = model.hocket.first_step
        if leave:
            come.wait(TIMEOUT_S)
        # Whoever leaves first ends a synchronous job for the others.
        with contextlib.suppress(*[HocketError] * leave):
            for number in range(model.hocket.first_step, last):
                step(model, own, *batch(worker, number))
        if leave:
            if acknowledged:
                model.hocket.flush()
            client_of(model).close()
            return {}
        state = copy.deepcopy(model.state_dict())
        model.hocket.detach()
        return state

    return job.on_workers(work)


def ended(job: Served, now: bool) -> None:
    """Asynchronous servers wait for workers that have gone; they do no longer, if it is to be ``now``."""
    for server in job.servers if now else []:
        server.core.fail("this test ends servers")


@pytest.mark.parametrize(
    ("optimizer", "barrier", "servers"), [("momentum", "step", 1), ("adam", "parameter", 2)]
)
def test_a_synchronous_job_goes_on_bit_by_bit(
    optimizer: str, barrier: Any, servers: int, tmp_path: Path
) -> None:
    rule = Rule(workers=2, barrier=barrier)
    with served(rule, servers) as job:
        expected = trained(job, [made(Layers), made(Layers)], OPTIMIZERS[optimizer])
    for last in (3, 4, STEPS):
        first: dict[int, int] = {}
        with served(rule, servers, checkpoint=str(tmp_path)) as job:
            # What later workers are made of does not matter: values are the servers'.
            models = [made(Layers) if last == 3 else Layers() for _ in range(2)]
            states = some_steps(job, models, optimizer, last, first, leave=last < STEPS)
        assert len(set(first.values())) == 1
        before = {3: 0, 4: 3, STEPS: 4}[last]
        # Whoever leaves between steps does not hear of its last one.
        assert before - 1 <= first[0] <= before
    assert equal(states[0], expected[0])
    assert equal(states[1], expected[0])
    assert close(states[0], alone(OPTIMIZERS[optimizer]).state_dict())


def test_buffers_go_on_too(tmp_path: Path) -> None:
    """BatchNorm's are worker 0's, and no step counts without them."""
    with served(SYNC2, 2) as job:
        expected = trained(job, [made(Plain), made(Plain)], OPTIMIZERS["momentum"], 12)
    for last in (5, 12):
        with served(SYNC2, 2, checkpoint=str(tmp_path)) as job:
            states = some_steps(job, [made(Plain), made(Plain)], "momentum", last, {}, leave=last < 12)
    assert equal(states[0], expected[0])


def test_one_asynchronous_worker_goes_on_bit_by_bit(tmp_path: Path) -> None:
    """From where all servers are: of a step that only one of them has, another gradient is computed."""
    for last in (7, STEPS):
        with served(Rule(mode="async"), 2, checkpoint=str(tmp_path)) as job:
            (state,) = some_steps(
                job, [made(Layers)], "adam", last, {}, leave=last < STEPS, acknowledged=True
            )
            ended(job, last < STEPS)
    assert equal(state, alone(OPTIMIZERS["adam"], workers=1).state_dict())


@pytest.mark.parametrize("staleness", [None, 0, 1])
def test_asynchronous_steps_count_once_however_often_servers_end(
    staleness: int | None, tmp_path: Path
) -> None:
    """Gradients of one and a rate of one: a value says how many updates it has had."""
    steps = 12
    rule = Rule(mode="async", workers=3, staleness=staleness)

    def work(worker: int, last: int) -> None:
        model = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Linear(4, 2, bias=False))
        with torch.no_grad():
            for p in model.parameters():
                p.zero_()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        job.train(worker, model, optimizer)
        for _ in range(model.hocket.first_step, last):
            optimizer.zero_grad()
            model(torch.ones(1, 3))
            sum(p.sum() for p in model.parameters()).backward()
            optimizer.step()
        if last < steps:
            client_of(model).close()
        else:
            model.hocket.detach()

    for last in (4, 9, steps):
        with served(rule, 2, checkpoint=str(tmp_path)) as job:
            job.on_workers(lambda worker, last=last: work(worker, last))
            ended(job, last < steps)
    for server in job.servers:
        for p in server.core.shard.parameters:
            assert torch.equal(p, torch.full_like(p, -3.0 * steps))


def killed(
    job: ServedJob, models: list[nn.Module], optimizer: str, steps: int, chance: random.Random
) -> list[int]:
    """Train with servers that are processes, one of which is killed; how many steps each worker saw count."""
    environment = os.environ | {JOB_VARIABLE: job.encoded(), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-m", "hocket.runtime.ps.server.server"]
    processes = [subprocess.Popen([*command, str(k)], env=environment) for k in range(job.servers)]
    known = [threading.Event() for _ in models]  # that a step of this life counts
    counted, errors = [0] * len(models), list[str]()

    def work(worker: int) -> None:
        try:
            own = OPTIMIZERS[optimizer](models[worker])
            source = PlanSource(planner=ServingPlanner("fifo", 0))
            serve(models[worker], own, source, job=job, worker=worker)
            for number in range(models[worker].hocket.first_step, steps):
                step(models[worker], own, *batch(worker, number))
                counted[worker] = number  # this step's parameters came, so the one before counts
                if number > models[worker].hocket.first_step:
                    known[worker].set()
        except HocketError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=work, args=[worker], daemon=True) for worker in range(len(models))]
    for thread in threads:
        thread.start()
    try:
        assert all(each.wait(100) for each in known), (errors, [each.poll() for each in processes])
        time.sleep(chance.uniform(0.0, 0.3))
        chance.choice(processes).kill()
        for thread in threads:
            thread.join(30)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return counted


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("mode", ["sync", pytest.param("async", marks=pytest.mark.long)])
def test_servers_that_are_killed_in_any_step_lose_nothing_that_was_acknowledged(
    mode: Any, tmp_path: Path
) -> None:
    chance, steps = random.Random(mode), 4000
    rule = Rule(mode=mode, workers=2)
    known = [0, 0]
    for _ in range(3):
        job = ServedJob(
            address=f"127.0.0.1:{free_port('127.0.0.1')}",
            token=TOKEN,
            rule=rule,
            servers=2,
            timeout_s=90.0,  # two processes load torch, beside whatever runs
            checkpoint=str(tmp_path),
        )
        models = [made(Layers), made(Layers)]
        counted = killed(job, models, "momentum", steps, chance)
        for worker in (0, 1):
            assert models[worker].hocket.first_step >= known[worker]
        known = [max(pair) for pair in zip(known, counted, strict=True)]
    assert 0 < max(known) < steps
    first: dict[int, int] = {}
    steps = max(known) + 20
    with served(rule, 2, checkpoint=str(tmp_path)) as running:
        states = some_steps(running, [Layers(), Layers()], "momentum", steps, first, leave=False)
    assert all(first[worker] >= known[worker] for worker in (0, 1))
    for server in running.servers:  # each worker's every step once, in whichever run
        kept = server.core.values.checkpoint
        assert kept is not None
        assert all(row == [steps] * len(row) for row in kept.applied_updates.steps)
    if mode == "sync":
        with served(rule, 2) as running:
            expected = trained(running, [made(Layers), made(Layers)], OPTIMIZERS["momentum"], steps)
        assert equal(states[0], expected[0])


@pytest.mark.slow
def test_what_is_due_when_everybody_has_finished_is_kept_however_long_it_takes(tmp_path: Path) -> None:
    """As with a slow disk: longer than any wait of our own for the end."""

    def work(worker: int) -> None:
        model = made(Layers)
        own = OPTIMIZERS["sgd"](model)
        job.train(worker, model, own)
        step(model, own, *batch(worker, 0))
        model.hocket.flush()
        values = job.servers[0].core.values
        update, waits_s = values.update, [11.0]

        def slowly(*given: Any) -> None:
            time.sleep(waits_s.pop() if waits_s else 0.0)
            update(*given)

        values.update = slowly  # type: ignore[method-assign]
        step(model, own, *batch(worker, 1))
        client_of(model).finish()

    with served(Rule(mode="async"), checkpoint=str(tmp_path)) as job:
        job.on_workers(work)
    (server,) = job.servers
    kept = server.core.values.checkpoint
    assert kept is not None
    assert kept.applied_updates.steps == [[2] * len(server.core.shard.parameters)]
    assert job.statuses == [0]


# Files.


SPEC = Spec(
    parameters=(TensorSpec("a", (40,), "float32"), TensorSpec("b", (7,), "float32")),
    groups=(0, 0),
    optimizer="Adam",
    settings=[{"lr": 0.1}],
    state=(TensorSpec("running", (3,), "float32"),),
    buffers=1,
)


def job_at(folder: Path, rule: Rule = SYNC2, **options: Any) -> ServedJob:
    return ServedJob(address="127.0.0.1:1", token=TOKEN, rule=rule, checkpoint=str(folder), **options)


def written(folder: Path, rounds: int) -> list[dict[str, torch.Tensor]]:
    """A server's values after each of so many rounds, of which each is written down."""
    checkpoint, shard = Checkpoint(job_at(folder), 0, SPEC, 2), Shard(SPEC, [0, 1], with_state=True)
    shard.load({"a": torch.zeros(40), "b": torch.zeros(7), "running": torch.zeros(3)}, {})
    checkpoint.begin(shard)
    values = [copy.deepcopy(shard.values())]
    for label in range(rounds):
        gradients = {0: torch.randn(40), 1: torch.randn(7) if label % 3 else None}
        pushes = [PushedStep(0, label), PushedStep(1, label)]
        used = {SPEC.parameters[p].name: g for p, g in gradients.items() if g is not None}
        settings = [{"lr": 0.1 / (label + 1)}]
        running = torch.full((3,), label + 1.0)
        checkpoint.append(Buffers(label=label), {"running": running})
        shard.load_state({"running": running})
        checkpoint.append(Update(parameters=[0, 1], pushes=pushes, settings=settings, scale="0.5"), used)
        shard.update(gradients, settings, 0.5)
        checkpoint.sync()
        values.append(copy.deepcopy(shard.values()))
        if checkpoint.full:
            checkpoint.begin(shard)
    checkpoint.close()
    return values


def restored(folder: Path, rounds: int | None = None) -> tuple[int, dict[str, torch.Tensor]]:
    """After how many rounds the files stand, and the values after those, or after fewer."""
    checkpoint, shard = Checkpoint(job_at(folder), 0, SPEC, 2), Shard(SPEC, [0, 1], with_state=True)
    try:
        held = checkpoint.steps_of(0)
        checkpoint.restore(shard, held if rounds is None else rounds)
        return held, shard.values()
    finally:
        checkpoint.close()


@pytest.mark.parametrize("seed", range(20))
def test_a_file_that_ends_anywhere_holds_every_round_before(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    values = written(tmp_path, chance.randrange(12))
    latest = max(tmp_path.glob("*.checkpoint"))
    whole = latest.read_bytes()
    held, found = restored(tmp_path)
    assert held == len(values) - 1
    assert equal(found, values[held])
    # A server dies in the middle of its last record, or leaves something behind it that is none.
    extra = whole + chance.randbytes(chance.randrange(1, 60))
    latest.write_bytes(extra)
    assert restored(tmp_path)[0] == held
    if held and len(whole) > whole.rfind(b"HKC1") > 0:
        cut = chance.randrange(whole.rfind(b"HKC1"), len(whole))
        latest.write_bytes(whole[:cut])
        before, found = restored(tmp_path)
        # At the start of a generation the last record is all values.
        if before < held:
            assert before == held - 1
            assert equal(found, values[before])


def test_a_server_goes_back_to_where_others_are(tmp_path: Path) -> None:
    values = written(tmp_path, 9)
    held, found = restored(tmp_path, rounds=8)
    assert held == 9
    assert equal(found, values[8])


def test_two_generations_are_kept_and_stay_small(tmp_path: Path) -> None:
    written(tmp_path, 60)
    files = sorted(tmp_path.glob("*.checkpoint"))
    assert len(files) == 2
    first = written(tmp_path / "fresh", 0) and next((tmp_path / "fresh").glob("*.checkpoint"))
    size = first.stat().st_size
    assert all(file.stat().st_size < 8 * size for file in files)


def refusal(folder: Path, **changes: Any) -> str:
    options: dict[str, Any] = {"rule": SYNC2, "index": 0, "spec": SPEC, **changes}
    index, spec = options.pop("index"), options.pop("spec")
    with pytest.raises(HocketError) as refused:
        Checkpoint(job_at(folder, **options), index, spec, 2)
    return str(refused.value)


def test_files_of_another_job_are_refused(tmp_path: Path) -> None:
    written(tmp_path, 2)
    assert "a job with workers 2, not 3" in refusal(tmp_path, rule=Rule(workers=3))
    assert "a job with mode sync, not async" in refusal(tmp_path, rule=Rule(workers=2, mode="async"))
    assert "a job with servers 1, not 2" in refusal(tmp_path, servers=2)
    other = Spec(parameters=SPEC.parameters[:1], groups=(0,), optimizer="Adam", settings=SPEC.settings)
    assert "holds another model: parameter 1 is none, others have b" in refusal(tmp_path, spec=other)


def test_files_that_another_server_writes_or_nobody_can_are_refused(tmp_path: Path) -> None:
    written(tmp_path, 2)
    checkpoint = Checkpoint(job_at(tmp_path), 0, SPEC, 2)
    assert "another job keeps its checkpoint there" in refusal(tmp_path)
    checkpoint.close()
    (tmp_path / "file").write_text("")
    assert "no checkpoint can be kept there" in refusal(tmp_path / "file")


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    written(tmp_path, 2)
    latest = max(tmp_path.glob("*.checkpoint"))
    latest.write_bytes(b"nothing of the kind")
    assert re.search(r"server-0-\d+\.checkpoint: is damaged", refusal(tmp_path))
    assert os.listdir(tmp_path)


def test_a_server_that_has_lost_its_files_is_named(tmp_path: Path) -> None:
    rule = Rule(mode="async")
    with served(rule, 2, checkpoint=str(tmp_path)) as job:
        some_steps(job, [made(Layers)], "sgd", 4, {}, leave=True)
        ended(job, True)
    for file in tmp_path.glob("server-1-*.checkpoint"):
        file.unlink()
    with (
        served(rule, 2, checkpoint=str(tmp_path)) as job,
        pytest.raises(HocketError, match=r"server 1 has nothing in its checkpoint, others have steps"),
    ):
        some_steps(job, [made(Layers)], "sgd", 6, {}, leave=False)
