"""Clipping by norm with parameter servers: as torch's own, and what servers cannot take back is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import hocket
from hocket.errors import HocketError
from hocket.launch import Rule
from tests.multiprocess.serving_setups import OPTIMIZERS, SYNC2, Layers, both, close, equal, made
from tests.multiprocess.setups import batch
from tests.serving import served

pytestmark = pytest.mark.slow

ASYNC = Rule(mode="async")
STEPS = 6

Clip = Callable[[nn.Module, float], torch.Tensor]


def torchs(model: nn.Module, max_norm: float) -> torch.Tensor:
    return nn.utils.clip_grad_norm_(model.parameters(), max_norm)


def trained(rule: Rule, loop: Callable[[nn.Module, Any, int, bool], None]) -> list[dict[str, torch.Tensor]]:
    """Each worker's state dict after ``loop(model, optimizer, worker, whole)``; last, that of one process."""
    models = [made(Layers) for _ in range(rule.workers + 1)]

    def work(worker: int) -> dict[str, torch.Tensor]:
        model = models[worker]
        optimizer = OPTIMIZERS["momentum"](model)
        job.train(worker, model, optimizer)
        loop(model, optimizer, worker, False)
        state = copy.deepcopy(model.state_dict())
        model.hocket.detach()
        return state

    with served(rule) as job:
        states = job.on_workers(work)
    loop(models[-1], OPTIMIZERS["momentum"](models[-1]), 0, True)
    return [*states, models[-1].state_dict()]


def gradients(model: nn.Module, optimizer: Any, x: torch.Tensor, y: torch.Tensor, scale: float = 1) -> None:
    optimizer.zero_grad()
    (scale * functional.cross_entropy(model(x), y)).backward()


# A step that is left out behind the norm.


def skipping(model: nn.Module, optimizer: Any, worker: int, bad: int, *, both_ways: bool) -> None:
    """Leaves step ``bad`` out, since its norm is no number; ``both_ways``: gradients leave with the step."""
    for number in range(STEPS):
        x, y = batch(worker, number)
        if both_ways:
            gradients(model, optimizer, *batch(worker, 10 + number))
        else:
            optimizer.zero_grad()
        (functional.cross_entropy(model(x), y) * (torch.nan if number == bad else 1.0)).backward()
        if not hocket.clip_grad_norm_(model, 1.0).isfinite():
            optimizer.zero_grad()
            continue
        optimizer.step()


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("bad", [0, 4], ids=["at first", "later"])
def test_a_step_that_is_left_out_once_its_norm_is_known_is_refused(bad: int, both_ways: bool) -> None:
    def work(worker: int) -> None:
        model = made(Layers)
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        skipping(model, optimizer, worker, bad, both_ways=both_ways)

    with served(SYNC2) as job, pytest.raises(HocketError) as refused:
        job.on_workers(work)
    said = str(refused.value)
    assert "came again behind hocket.clip_grad_norm_, whose gradients servers cannot give back" in said
    assert "call optimizer.step() first" in said


@pytest.mark.parametrize("bad", [0, 4], ids=["at first", "later"])
def test_an_asynchronous_worker_may_leave_out_the_steps_that_have_not_left(bad: int) -> None:
    """It has the norm without anybody's help: two backward passes make its gradients leave with the step."""

    def loop(model: nn.Module, optimizer: Any, _: int, whole: bool) -> None:
        for number in range(STEPS):
            gradients(model, optimizer, *batch(0, 10 + number))
            x, y = batch(0, number)
            (functional.cross_entropy(model(x), y) * (torch.nan if number == bad else 1.0)).backward()
            clip = torchs if whole else hocket.clip_grad_norm_
            if clip(model, 1.0).isfinite():
                optimizer.step()

    found, expected = trained(ASYNC, loop)
    assert equal(found, expected)


# Clipping in some steps only.


def test_an_asynchronous_worker_may_begin_to_clip_at_any_step() -> None:
    def loop(model: nn.Module, optimizer: Any, _: int, whole: bool) -> None:
        for number in range(STEPS):
            gradients(model, optimizer, *batch(0, number))
            if number >= 3:
                norm = (torchs if whole else hocket.clip_grad_norm_)(model, 0.2)
                norms[whole].append(norm.item())
                grads[whole].append(model.layers[5].weight.grad.clone())
            optimizer.step()

    norms: dict[bool, list[float]] = {False: [], True: []}
    grads: dict[bool, list[torch.Tensor]] = {False: [], True: []}
    found, expected = trained(ASYNC, loop)
    assert close(found, expected)
    assert norms[False] == pytest.approx(norms[True], rel=1e-4)
    assert all(torch.allclose(*pair, atol=1e-6) for pair in zip(*grads.values(), strict=True))


def test_what_is_changed_beside_the_norm_is_refused_all_the_same() -> None:
    def work(worker: int) -> None:
        model = made(Layers)
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        for number in range(STEPS):
            gradients(model, optimizer, *batch(worker, number))
            if number == 3:
                model.layers[5].bias.grad.mul_(0.5)
                hocket.clip_grad_norm_(model, 0.2)
            optimizer.step()

    with served(ASYNC) as job, pytest.raises(HocketError, match="gradients were changed between"):
        job.on_workers(work)


# As torch's own.


@pytest.mark.parametrize("rule", [SYNC2, ASYNC], ids=lambda rule: rule.mode)
def test_clipping_twice_clips_what_the_first_has_left(rule: Rule) -> None:
    def loop(model: nn.Module, optimizer: Any, worker: int, whole: bool) -> None:
        for number in range(STEPS):
            gradients(model, optimizer, *(both(number, rule.workers) if whole else batch(worker, number)))
            clip = torchs if whole else hocket.clip_grad_norm_
            clip(model, 0.3)
            assert clip(model, 1e9).item() == pytest.approx(0.3, rel=1e-3)
            assert clip(model, 0.2).item() == pytest.approx(0.3, rel=1e-3)
            optimizer.step()

    *found, expected = trained(rule, loop)
    assert all(close(state, expected) for state in found)


@pytest.mark.parametrize("rule", [SYNC2, ASYNC], ids=lambda rule: rule.mode)
def test_the_norm_of_no_gradients_is_0(rule: Rule) -> None:
    def loop(model: nn.Module, optimizer: Any, worker: int, whole: bool) -> None:
        clip = torchs if whole else hocket.clip_grad_norm_
        for number in range(STEPS):
            optimizer.zero_grad()
            assert clip(model, 0.2).item() == 0.0
            gradients(model, optimizer, *(both(number, rule.workers) if whole else batch(worker, number)))
            clip(model, 0.2)
            optimizer.step()

    *found, expected = trained(rule, loop)
    assert all(close(state, expected) for state in found)


def test_gradients_that_nobody_has_summed_up_have_no_norm() -> None:
    def work(worker: int) -> None:
        model = made(Layers)
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        with model.hocket.no_sync():
            gradients(model, optimizer, *batch(worker, 0))
        hocket.clip_grad_norm_(model, 0.2)

    with served(SYNC2) as job, pytest.raises(HocketError, match="without a backward pass since"):
        job.on_workers(work)
