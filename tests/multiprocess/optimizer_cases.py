"""What ranks run for test_training.py: every optimizer, compiled steps, and more ranks than two."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

import hocket
from tests.multiprocess.setups import STEPS, Plain, Small, batch, plan_at_once, sgd, train, trainable
from tests.multiprocess.twins import Twins

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {"momentum": 0.9, "nesterov": True, "weight_decay": 1e-3},
    "Adam": {"amsgrad": True},
    "AdamW": {"weight_decay": 0.1},
    "Adamax": {},
    "NAdam": {},
    "RAdam": {},
    "RMSprop": {"momentum": 0.5, "centered": True},
    "Rprop": {},
    "Adagrad": {},
    "Adadelta": {},
    "ASGD": {"t0": 3},
    "Adafactor": {},
    "Muon": {},
    "LBFGS": {},
}


def _scheduler(name: str, optimizer: torch.optim.Optimizer) -> Any:
    schedulers = torch.optim.lr_scheduler
    return {
        "OneCycle": lambda: schedulers.OneCycleLR(
            optimizer, 0.02, total_steps=STEPS + 1, cycle_momentum=False
        ),
        "StepLR": lambda: schedulers.StepLR(optimizer, 2, gamma=0.5),
        "CosineAnnealing": lambda: schedulers.CosineAnnealingLR(optimizer, STEPS),
    }[name]()


def optimizers(rank: int, world: int, compiled: bool) -> dict[str, list[str]]:
    """Every optimizer with one scheduler or another."""
    found = {}
    kinds = ["OneCycle", "StepLR", "CosineAnnealing"]
    for k, name in enumerate(OPTIMIZERS):

        def make(model: nn.Module, name: str = name) -> torch.optim.Optimizer:
            parameters = trainable(model)
            if name == "Muon":
                parameters = [p for p in parameters if p.ndim == 2]
            return getattr(torch.optim, name)(parameters, lr=0.01, **OPTIMIZERS[name])

        twins = Twins(Plain if compiled else Small, make, unused=True, compile=compiled)
        schedulers = [_scheduler(kinds[k % 3], optimizer) for optimizer in twins.optimizers]
        for step in range(STEPS):
            x, y = batch(rank, step)
            for (model, optimizer, _), scheduler in zip(twins.each(), schedulers, strict=True):

                def closure(
                    model: nn.Module = model, optimizer: torch.optim.Optimizer = optimizer
                ) -> torch.Tensor:
                    optimizer.zero_grad()
                    loss = functional.cross_entropy(model(x), y)  # noqa: B023
                    loss.backward()
                    return loss

                if name == "LBFGS":
                    optimizer.step(closure)
                else:
                    closure()
                    optimizer.step()
                scheduler.step()
        found[name] = twins.differences()
        twins.ours.hocket.detach()
    return found


def compiled_auto(rank: int, world: int) -> list[str]:
    """The whole way with compiled graphs: profile, Caramel's order of the backward pass, trials."""
    plan_at_once()
    twins = Twins(Plain, sgd, plan="auto", compile=True, network=hocket.Network(bandwidth_bps=2e7))
    found = train(twins, rank, 80)
    assert twins.ours.hocket.settled
    assert "tried: " in twins.ours.hocket.explain()
    twins.ours.hocket.detach()
    hocket.distribute(twins.ours, twins.optimizers[1], plan="caramel", compile=True)
    found += train(twins, rank, 14)
    assert twins.ours.hocket.plan.compute_order is not None
    return found


def compiled_weights_clamped(rank: int, world: int) -> list[str]:
    """After each step, by ways to parameters that do not lead over the model."""
    twins = Twins(Plain, sgd, plan="caramel", compile=True)
    held = [list(twins.ddp.parameters()), list(twins.ours.parameters())]
    for step in range(14):
        x, y = batch(rank, step)
        for (model, optimizer, _), parameters in zip(twins.each(), held, strict=True):
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            for p in parameters[:3]:
                p.data.clamp_(-0.1, 0.1)
            with torch.no_grad():
                parameters[-1].mul_(0.9)
    return twins.differences()


def several_ranks(rank: int, world: int) -> list[str]:
    twins = Twins(Plain, sgd)
    train(twins, rank)
    return twins.differences(1e-6)
