"""``hocket.distribute`` with parameter servers: what a script asks for holds, or is refused in one line."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

import hocket
from hocket.errors import HocketError
from hocket.graph import Plan, Pull, Push
from hocket.launch import Rule
from hocket.launch.job import JOB_VARIABLE
from hocket.runtime.ps.server_training import serve
from hocket.runtime.training.plan_source import PlanSource
from hocket.tuner.server_plans import ServingPlanner
from tests.multiprocess.serving_setups import OPTIMIZERS, SYNC2, Layers, equal, made, step
from tests.multiprocess.setups import Plain, batch
from tests.serving import Served, served

pytestmark = pytest.mark.slow

ASYNC = Rule(mode="async")


@contextmanager
def asked(monkeypatch: pytest.MonkeyPatch, rule: Rule = ASYNC, **options: Any) -> Iterator[Served]:
    """A job that this process is the first worker of, as its environment says."""
    with served(rule, **options) as job:
        monkeypatch.setenv(JOB_VARIABLE, job.job.encoded())
        monkeypatch.setenv("RANK", "0")
        yield job


def distributed(**options: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = made(Layers)
    return hocket.distribute(model, OPTIMIZERS["sgd"](model), **options)


@pytest.mark.parametrize("ended", [False, True], ids=["beside", "behind"])
def test_a_job_trains_one_model(monkeypatch: pytest.MonkeyPatch, ended: bool) -> None:
    with asked(monkeypatch):
        model, optimizer = distributed()
        step(model, optimizer, *batch(0, 0))
        if ended:
            model.hocket.detach()
        started_s = time.monotonic()
        with pytest.raises(HocketError, match="worker 0 has brought a model to this job already"):
            distributed()
        assert time.monotonic() - started_s < 5
        if not ended:
            step(model, optimizer, *batch(0, 1))
            model.hocket.detach()


def test_what_is_refused_is_no_model_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    with asked(monkeypatch):
        model = made(Layers)
        several = [OPTIMIZERS["sgd"](model), OPTIMIZERS["sgd"](model)]
        with pytest.raises(HocketError, match="2 optimizers"):
            hocket.distribute(model, several)
        with pytest.raises(HocketError, match="compile=True is for training without servers"):
            hocket.distribute(model, several[0], compile=True)
        with pytest.raises(HocketError, match="gradient_dtype is for training without servers"):
            hocket.distribute(model, several[0], gradient_dtype=torch.bfloat16)
        with pytest.raises(HocketError, match="init_sync=False is for training without servers"):
            hocket.distribute(model, several[0], init_sync=False)
        hocket.distribute(model, several[0])
        with pytest.raises(HocketError, match="'bf16_compress_hook' is for training without servers"):
            model.register_comm_hook(None, bf16_compress_hook)
        model.hocket.detach()


def plan(barrier: Any) -> Plan:
    names = [name for name, _ in made(Layers).named_parameters()]
    return Plan(
        policy="own",
        model="Layers",
        architecture="ps",
        compute_order=None,
        pulls=tuple(Pull(parameters=(name,), priority=k) for k, name in enumerate(names)),
        pushes=tuple(Push(parameters=(name,)) for name in names),
        barrier=barrier,
    )


@pytest.mark.parametrize(("mine", "jobs"), [("step", "parameter"), ("parameter", "step")])
def test_a_plan_with_another_barrier_than_the_jobs_is_refused(
    monkeypatch: pytest.MonkeyPatch, mine: Any, jobs: Any
) -> None:
    rule = Rule(mode="async", barrier=jobs)
    with asked(monkeypatch, rule):
        with pytest.raises(HocketError, match=f"has barrier '{mine}', but .* '{jobs}'; .* --barrier {mine}"):
            distributed(plan=plan(mine))
        model, optimizer = distributed(plan=plan(jobs))
        step(model, optimizer, *batch(0, 0))
        model.hocket.detach()


def test_plans_that_are_made_have_the_jobs_barrier(monkeypatch: pytest.MonkeyPatch) -> None:
    with asked(monkeypatch, Rule(mode="async", barrier="step")):
        model, optimizer = distributed(plan="p3", network=hocket.Network())
        for number in range(12):
            step(model, optimizer, *batch(0, number))
        assert (model.hocket.plan.policy, model.hocket.plan.barrier) == ("p3", "step")
        model.hocket.detach()


def test_no_wait_takes_longer_than_the_script_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other worker does not come; the job would wait for half a minute."""
    with asked(monkeypatch, SYNC2) as job:
        model, optimizer = distributed(timeout_s=1.0)
        step(model, optimizer, *batch(0, 0))
        started_s = time.monotonic()
        with pytest.raises(HocketError, match=r"did not .* within 1 s"):
            step(model, optimizer, *batch(0, 1))
        assert time.monotonic() - started_s < 10
        job.servers[0].core.fail("the test is over")


def test_a_timeout_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with asked(monkeypatch) as job:
        with pytest.raises(HocketError, match=r"a timeout of 0 s is not between"):
            distributed(timeout_s=0)
        job.servers[0].core.fail("the test is over")


def buffers_after(job: Served, told: Callable[[int, nn.Module, torch.optim.Optimizer], None]) -> Any:
    def work(worker: int) -> dict[str, torch.Tensor]:
        model = made(Plain)
        optimizer = OPTIMIZERS["sgd"](model)
        told(worker, model, optimizer)
        for number in range(4):
            step(model, optimizer, *batch(worker, number))
        with torch.no_grad():
            model.eval()(batch(0, 50)[0])
        kept = {name: buffer.clone() for name, buffer in model.named_buffers()}
        model.hocket.detach()
        return kept

    return job.on_workers(work)


def test_buffers_may_stay_each_workers_own() -> None:
    def told(worker: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        source = PlanSource(planner=ServingPlanner("fifo", 0))
        serve(model, optimizer, source, job=job.job, worker=worker, broadcast_buffers=False)

    with served(SYNC2) as job:
        mine, theirs = buffers_after(job, told)
    assert not torch.allclose(mine["layers.1.running_mean"], theirs["layers.1.running_mean"])
    with served(SYNC2) as job:
        assert equal(*buffers_after(job, job.train))


def test_a_script_that_keeps_buffers_apart_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    with asked(monkeypatch):
        model, _ = distributed(broadcast_buffers=False)
        assert not model.hocket._training._broadcast_buffers
        model.hocket.detach()
