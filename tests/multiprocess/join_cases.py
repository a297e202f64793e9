"""What ranks run for test_join.py: uneven inputs within ``join``, beside DistributedDataParallel's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn import functional

import hocket
from tests.multiprocess.setups import Plain, batch, sgd
from tests.multiprocess.twins import Twins


class Normed(nn.Module):
    """Statistics in buffers, and weights."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.head = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.first(x)).tanh())


def _batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * rank + step)
    return torch.randn(4, 8, generator=generator), torch.randint(0, 3, (4,), generator=generator)


def _epochs(
    rank: int, twins: Twins, batches: Sequence[Sequence[int]], join: Any, *, parts: int = 1
) -> list[str]:
    """Train ``batches[epoch][rank]`` steps within ``join(model)``; what differs after each epoch."""
    found = []
    for epoch, counts in enumerate(batches):
        for model, optimizer, no_sync in twins.each():
            with join(model):
                for step in range(counts[rank]):
                    x, y = _batch(rank, 100 * epoch + step)
                    if step % parts == 0:
                        optimizer.zero_grad()
                    if step % parts < parts - 1:
                        with no_sync():
                            functional.cross_entropy(model(x), y).backward()
                    else:
                        functional.cross_entropy(model(x), y).backward()
                        optimizer.step()
        models = [twins.ddp.module.state_dict(), twins.ours.state_dict()]
        grads = [[p.grad for p in model.parameters()] for model in (twins.ddp.module, twins.ours)]
        if not all(torch.equal(models[0][name], models[1][name]) for name in models[0]):
            found.append(f"epoch {epoch}: model")
        if not all(a is b is None or torch.equal(a, b) for a, b in zip(*grads, strict=True)):
            found.append(f"epoch {epoch}: gradients")
    return found + twins.differences()


EPOCHS = [(3, 7), (6, 4), (5, 5), (0, 3), (4, 0)]


def means_over_all(rank: int) -> list[str]:
    return _epochs(rank, Twins(Normed, sgd), EPOCHS, lambda model: model.join())


def means_over_those_that_train(rank: int) -> list[str]:
    twins = Twins(Normed, sgd, plan="ddp")
    return _epochs(rank, twins, EPOCHS, lambda model: model.join(divide_by_initial_world_size=False))


def from_the_first_step(rank: int) -> list[str]:
    """One rank has nothing to train from the start; steps that learn the model wait for all."""
    return _epochs(rank, Twins(Normed, sgd), [(0, 2), (1, 4), (9, 6)], lambda model: model.join())


def torchs_own_block(rank: int) -> list[str]:
    return _epochs(rank, Twins(Normed, sgd), EPOCHS[:3], lambda model: Join([model]))


def accumulated(rank: int) -> list[str]:
    return _epochs(rank, Twins(Normed, sgd), [(4, 8), (6, 2), (4, 4)], lambda model: model.join(), parts=2)


def not_enabled(rank: int) -> list[str]:
    return _epochs(rank, Twins(Normed, sgd), [(4, 4), (3, 3)], lambda model: model.join(enable=False))


def within_and_without(rank: int) -> list[str]:
    """An epoch in a block, an epoch without, an epoch in a block."""
    twins = Twins(Normed, sgd)
    found = _epochs(rank, twins, [(3, 5)], lambda model: model.join())
    for step in range(4):
        x, y = _batch(rank, 500 + step)
        for model, optimizer, _ in twins.each():
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    return found + twins.differences() + _epochs(rank, twins, [(5, 2)], lambda model: model.join())


def ended_early(rank: int) -> list[str]:
    """Every rank raises as soon as one has no inputs, and trains on afterwards."""
    twins = Twins(Normed, sgd)
    said = []
    for model, optimizer, _ in twins.each():
        try:
            with model.join(throw_on_early_termination=True):
                for step in range(3 + 2 * rank):
                    x, y = _batch(rank, step)
                    optimizer.zero_grad()
                    functional.cross_entropy(model(x), y).backward()
                    optimizer.step()
            said.append("went on")
        except RuntimeError as error:
            said.append(str(error))
    x, y = _batch(rank, 50)
    twins.ours.hocket.flush()
    functional.cross_entropy(twins.ours(x), y).backward()
    twins.optimizers[1].step()
    twins.ours.hocket.flush()
    return [] if said[0] == said[1] and "exhausted" in said[0] else said


CASES = (
    means_over_all, means_over_those_that_train, from_the_first_step, torchs_own_block, accumulated,
    not_enabled, within_and_without, ended_early,
)  # fmt: skip


def all_of_them(rank: int, world: int) -> dict[str, list[str]]:
    return {case.__name__: case(rank) for case in CASES}


def plans_are_tried_between(rank: int, world: int) -> list[Any]:
    """Ranks that join while plans are tried: a plan is chosen all the same, and ranks stay alike."""
    torch.manual_seed(rank)
    model = Plain()
    optimizer = sgd(model)
    network = hocket.Network(bandwidth_bps=2e6)
    hocket.distribute(model, optimizer, network=network)
    epoch = epochs = 0
    while epochs < 60:
        epoch, epochs = epoch + 1, epochs + (model.hocket.phase != "planning")
        with model.hocket.join():
            for step in range(3 + (epoch + rank) % world):
                x, y = batch(rank, 100 * epoch + step)
                optimizer.zero_grad()
                functional.cross_entropy(model(x), y).backward()
                optimizer.step()
        if model.hocket.settled:
            break
    total = sum(p.detach().double().sum().item() for p in model.parameters())
    return [model.hocket.settled, model.hocket.plan.policy, total]
