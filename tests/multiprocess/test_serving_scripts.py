"""Parameter servers and scripts: loops of one process go on as they were, or are refused in one line."""

from __future__ import annotations

import copy
import functools
import math
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import hocket
from hocket.errors import HocketError
from hocket.launch import Rule
from hocket.runtime.ps.wire.model_spec import spec_of
from tests.multiprocess.gradient_cases import Dropping
from tests.multiprocess.serving_setups import (
    OPTIMIZERS,
    STEPS,
    SYNC2,
    Layers,
    alone,
    both,
    close,
    equal,
    made,
    step,
    trained,
)
from tests.multiprocess.setups import Small, batch
from tests.serving import Served, served

pytestmark = pytest.mark.slow


def test_shared_frozen_unused_and_functional_parameters() -> None:
    models = [made(Small), Small()]

    def optimize(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.01)

    with served(SYNC2, servers=2) as job:
        states = trained(job, models, optimize, steps=8)
    assert equal(states[0], states[1])
    begun = made(Small).state_dict()
    assert torch.equal(states[0]["frozen.weight"], begun["frozen.weight"])
    assert torch.equal(states[0]["unused.weight"], begun["unused.weight"])
    assert not torch.equal(states[0]["attention.out_proj.weight"], begun["attention.out_proj.weight"])


def accumulating(model: nn.Module, optimizer: Any, worker: int, number: int, whole: bool) -> None:
    optimizer.zero_grad()
    for part in range(2):
        x, y = both(10 * number + part) if whole else batch(worker, 10 * number + part)
        quiet = not whole and part == 0
        with model.hocket.no_sync() if quiet else threading.Lock():
            (functional.cross_entropy(model(x), y) / 2).backward()
    optimizer.step()


def clipping(model: nn.Module, optimizer: Any, worker: int, number: int, whole: bool) -> None:
    optimizer.zero_grad()
    x, y = both(number) if whole else batch(worker, number)
    functional.cross_entropy(model(x), y).backward()
    clip = nn.utils.clip_grad_norm_ if whole else hocket.clip_grad_norm_
    assert clip(model.parameters() if whole else model, 0.2) > 0.2
    optimizer.step()


def clipping_by_the_largest(model: nn.Module, optimizer: Any, worker: int, number: int, whole: bool) -> None:
    """With the norm of another order asked for in between."""
    optimizer.zero_grad()
    x, y = both(number) if whole else batch(worker, number)
    functional.cross_entropy(model(x), y).backward()
    if whole:
        nn.utils.clip_grad_norm_(model.parameters(), 0.02, norm_type=torch.inf)
    else:
        hocket.clip_grad_norm_(model, 1e9)
        hocket.clip_grad_norm_(model, 0.02, norm_type=torch.inf)
    optimizer.step()


def twice(model: nn.Module, optimizer: Any, worker: int, number: int, whole: bool) -> None:
    """Two backward passes, both synchronised: gradients leave with the step."""
    optimizer.zero_grad()
    for part in range(2):
        x, y = both(10 * number + part) if whole else batch(worker, 10 * number + part)
        functional.cross_entropy(model(x), y).backward()
    optimizer.step()


def dropping(model: nn.Module, optimizer: Any, worker: int, number: int, whole: bool) -> None:
    """A backward function gives no gradient: in some steps one worker's, in one step all of them."""
    optimizer.zero_grad()
    for w in range(2) if whole else [worker]:
        x, y = batch(w, number)
        drop = number == 5 or number % 3 == w
        loss = functional.cross_entropy(Dropping.apply(model(x), drop), y)
        (loss / 2 if whole else loss).backward()
    optimizer.step()


@pytest.mark.parametrize("loop", [accumulating, clipping, clipping_by_the_largest, twice, dropping])
@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_loops_that_users_of_one_process_have(loop: Any, optimizer: str) -> None:
    """With a schedule that changes the learning rate after each step."""

    def run(model: nn.Module, worker: int, whole: bool) -> dict[str, torch.Tensor]:
        optimizer_ = OPTIMIZERS[optimizer](model)
        if not whole:
            job.train(worker, model, optimizer_)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer_, 2, gamma=0.7)
        for number in range(10):
            loop(model, optimizer_, worker, number, whole)
            schedule.step()
        state = copy.deepcopy(model.state_dict())
        kept = optimizer_.state_dict()["state"]
        if not whole:
            model.hocket.detach()
        return state | {
            f"{k}/{key}": v for k, each in kept.items() for key, v in each.items() if v is not None
        }

    expected = run(made(Layers), 0, True)
    models = [made(Layers), made(Layers)]
    with served(SYNC2, servers=2) as job:
        states = job.on_workers(lambda worker: run(models[worker], worker, False))
    assert states[0].keys() == expected.keys()
    assert close(states[0], expected)
    assert equal(states[0], states[1])


class Double(Layers):
    def __init__(self) -> None:
        super().__init__()
        self.double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.double())


def test_clipping_is_as_exact_as_the_gradients_are() -> None:
    def run(model: nn.Module, worker: int, whole: bool) -> dict[str, torch.Tensor]:
        optimizer = OPTIMIZERS["momentum"](model)
        if not whole:
            job.train(worker, model, optimizer)
        for number in range(4):
            clipping(model, optimizer, worker, number, whole)
        state = copy.deepcopy(model.state_dict())
        if not whole:
            model.hocket.detach()
        return state

    expected = run(made(Double), 0, True)
    models = [made(Double), made(Double)]
    with served(SYNC2) as job:
        states = job.on_workers(lambda worker: run(models[worker], worker, False))
    assert close(states[0], expected, 1e-13)


def test_training_goes_on_from_a_state_dict() -> None:
    expected = alone(OPTIMIZERS["adam"]).state_dict()
    begun = alone(OPTIMIZERS["adam"], steps=8)
    optimizer = OPTIMIZERS["adam"](made(Layers))
    before = made(Layers)
    first = OPTIMIZERS["adam"](before)
    for number in range(8):
        step(before, first, *both(number))
    saved = copy.deepcopy(first.state_dict())

    def work(worker: int) -> dict[str, torch.Tensor]:
        model = copy.deepcopy(begun) if worker == 0 else Layers()
        mine = OPTIMIZERS["adam"](model)
        if worker == 0:
            mine.load_state_dict(copy.deepcopy(saved))
        job.train(worker, model, mine)
        with pytest.raises(HocketError, match="before hocket"):
            model.load_state_dict(begun.state_dict())
        for number in range(8, STEPS):
            step(model, mine, *batch(worker, number))
        state = copy.deepcopy(model.state_dict())
        model.hocket.detach()
        return state

    with served(SYNC2, servers=2) as job:
        states = job.on_workers(work)
    assert optimizer.state_dict()["state"] == {}
    assert close(states[0], expected)


def refusal(rule: Rule, work: Callable[[Served, int], None]) -> str:
    with served(rule) as job, pytest.raises(HocketError) as refused:
        job.on_workers(functools.partial(work, job))
    return str(refused.value)


def test_gradients_that_are_changed_by_hand_are_refused_where_they_are_summed_up() -> None:
    def work(job: Served, worker: int) -> None:
        model = made(Layers)
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        model(batch(worker, 0)[0]).sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()

    assert "hocket.clip_grad_norm_" in refusal(SYNC2, work)


@pytest.mark.parametrize("added", [False, True], ids=["unfrozen", "added"])
def test_parameters_that_are_to_be_trained_later_are_refused(added: bool) -> None:
    def work(job: Served, worker: int) -> None:
        model = made(Layers)
        last = model.layers[5].requires_grad_(False)
        given = [p for p in model.parameters() if p.requires_grad or not added]
        optimizer = torch.optim.SGD(given, lr=0.05)
        job.train(worker, model, optimizer)
        step(model, optimizer, *batch(worker, 0))  # frozen, it is no obstacle
        last.requires_grad_(True)
        if added:
            optimizer.add_param_group({"params": list(last.parameters())})
        step(model, optimizer, *batch(worker, 1))

    refused = refusal(Rule(mode="async"), work)
    assert "'layers.5.weight' has a gradient, but was not trained" in refused


def test_weights_that_a_script_changes_are_refused_since_nobody_would_see_them() -> None:
    def work(job: Served, worker: int) -> None:
        model = made(Layers)
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        for number in range(2):
            step(model, optimizer, *batch(worker, number))
            for p in model.parameters():
                p.data.clamp_(-0.01, 0.01)

    assert "'layers.0.weight' was changed between steps" in refusal(Rule(mode="async"), work)


def test_weights_that_are_moved_and_put_back_are_as_they_came() -> None:
    """As sharpness-aware minimisation does: the gradients are those of the weights that were moved."""

    def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for number in range(6):
            x, y = batch(0, number)
            functional.cross_entropy(model(x), y).backward()
            parameters = list(model.parameters())
            moves = [0.05 * p.grad for p in parameters]
            with torch.no_grad():
                for p, move in zip(parameters, moves, strict=True):
                    p.add_(move)
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            with torch.no_grad():
                for p, move in zip(parameters, moves, strict=True):
                    p.sub_(move)
            optimizer.step()
            optimizer.zero_grad()

    expected, model = made(Layers), made(Layers)
    train(expected, OPTIMIZERS["momentum"](expected))

    def work(worker: int) -> None:
        optimizer = OPTIMIZERS["momentum"](model)
        job.train(worker, model, optimizer)
        train(model, optimizer)
        model.hocket.detach()

    with served(Rule(mode="async")) as job:
        job.on_workers(work)
    assert close(model.state_dict(), expected.state_dict(), 1e-5)


class Read(nn.Parameter):
    """A parameter of a class of its own, which cannot tell that it is read."""


def test_whatever_is_read_after_a_step_is_up_to_date() -> None:
    def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[float]:
        seen = []
        for number in range(5):
            step(model, optimizer, *batch(0, number))
            seen.append(model.layers[5].weight.sum().item())
        return seen

    def make() -> nn.Module:
        model = made(Layers)
        model.layers[5].weight = Read(model.layers[5].weight.detach().clone())
        return model

    expected = make()
    wanted = train(expected, OPTIMIZERS["sgd"](expected))

    def work(worker: int) -> list[float]:
        model = make()
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        seen = train(model, optimizer)
        model.hocket.detach()
        return seen

    with served(Rule(mode="async")) as job:
        assert job.on_workers(work) == [wanted]


def test_gradients_that_a_fused_step_would_unscale_are_refused() -> None:
    def work(job: Served, worker: int) -> None:
        model = made(Layers)
        optimizer = torch.optim.Adam(model.parameters(), fused=True)
        job.train(worker, model, optimizer)
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(model(batch(worker, 0)[0]).sum()).backward()
        scaler.step(optimizer)

    assert "make it without fused" in refusal(Rule(mode="async"), work)


def clamped(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 6) -> None:
    """Gradients changed by hand, by a way that leaves no mark on them."""
    for number in range(steps):
        x, y = batch(0, number)
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        for p in model.parameters():
            p.grad.data.clamp_(-0.001, 0.001)
        optimizer.step()


def test_gradients_that_are_changed_without_a_mark_count_as_they_are() -> None:
    expected, model = made(Layers), made(Layers)
    clamped(expected, OPTIMIZERS["momentum"](expected))

    def work(worker: int) -> None:
        optimizer = OPTIMIZERS["momentum"](model)
        job.train(worker, model, optimizer)
        clamped(model, optimizer)
        model.hocket.detach()

    with served(Rule(mode="async")) as job:
        job.on_workers(work)
    assert equal(model.state_dict(), expected.state_dict())

    def refused(job: Served, worker: int) -> None:
        model = made(Layers)
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        clamped(model, optimizer)

    assert "gradients were changed between backward pass and optimizer.step()" in refusal(SYNC2, refused)


def test_backup_workers_leave_no_norm_to_clip_by() -> None:
    def work(job: Served, worker: int) -> None:
        model = made(Layers)
        job.train(worker, model, OPTIMIZERS["sgd"](model))
        model(batch(worker, 0)[0]).sum().backward()
        hocket.clip_grad_norm_(model, 0.1)

    assert "train without --backup" in refusal(Rule(workers=2, backup=1), work)


def test_the_norm_of_gradients_that_are_no_numbers_is_none_either() -> None:
    model = made(Layers)
    optimizer = OPTIMIZERS["sgd"](model)

    def work(worker: int) -> float:
        job.train(worker, model, optimizer)
        (model(batch(worker, 0)[0]).sum() * torch.nan).backward()
        with pytest.raises(RuntimeError, match="is nan, which clips nothing"):
            hocket.clip_grad_norm_(model, 0.1, error_if_nonfinite=True)
        norm = float(hocket.clip_grad_norm_(model, 0.1))
        optimizer.step()
        model.hocket.detach()
        return norm

    with served(Rule(workers=1)) as job:
        (norm,) = job.on_workers(work)
    assert math.isnan(norm)
    assert all(p.isnan().all() for p in model.parameters())


def test_one_worker_alone_may_look_at_the_norm() -> None:
    """To log it, while the other one's step is committed already."""
    stepped = threading.Event()
    model, expected = made(Layers), made(Layers)
    functional.cross_entropy(expected(both(0)[0]), both(0)[1]).backward()

    def work(worker: int) -> float:
        mine = model if worker == 0 else made(Layers)
        optimizer = OPTIMIZERS["sgd"](mine)
        job.train(worker, mine, optimizer)
        x, y = batch(worker, 0)
        functional.cross_entropy(mine(x), y).backward()
        if worker == 0:
            assert stepped.wait(60)
        norm = float(hocket.clip_grad_norm_(mine, math.inf)) if worker == 0 else 0.0
        optimizer.step()
        stepped.set()
        mine.hocket.detach()
        return norm

    with served(SYNC2, timeout_s=10.0) as job:
        norm, _ = job.on_workers(work)
    assert norm == pytest.approx(float(nn.utils.clip_grad_norm_(expected.parameters(), math.inf)), rel=1e-4)


def test_another_model_is_refused() -> None:
    def work(job: Served, worker: int) -> None:
        model = nn.Linear(3, 4 + worker)
        job.train(worker, model, OPTIMIZERS["sgd"](model))

    assert "give every worker the same model" in refusal(SYNC2, work)


def test_optimizers_that_no_server_can_run_are_refused() -> None:
    class Own(torch.optim.SGD):
        pass

    parameters = dict(made(Layers).named_parameters())
    for optimizer in (Own(parameters.values(), lr=0.1), torch.optim.LBFGS(parameters.values())):
        with pytest.raises(HocketError, match=r"a server cannot run .*; it runs torch\.optim's"):
            spec_of(parameters, optimizer, {}, {})
