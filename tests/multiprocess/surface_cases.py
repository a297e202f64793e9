"""What ranks run for test_surface.py: names of DistributedDataParallel on a model that we train."""

from __future__ import annotations

import torch
from torch.nn import functional

import hocket
from tests.multiprocess.setups import Plain, batch, sgd
from tests.multiprocess.twins import Twins

STEPS = 8


def accumulation_by_the_flag(rank: int, world: int) -> list[str]:
    """The model's flag says which micro-batches travel; as many rounds as optimizer steps."""
    twins = Twins(Plain, sgd)
    for step in range(STEPS):
        for model, optimizer, _ in twins.each():
            optimizer.zero_grad()
            for part in range(3):
                x, y = batch(rank, 10 * step + part)
                model.require_backward_grad_sync = part == 2
                (functional.cross_entropy(model(x), y) / 3).backward()
            optimizer.step()
    rounds = twins.ours.hocket._training.steps
    return twins.differences() + ([] if rounds == STEPS else [f"{rounds} rounds"])


def the_module_evaluates_and_saves(rank: int, world: int) -> list[str]:
    """What is under ``module`` is read by rank 0 alone between steps, as scripts do."""
    twins = Twins(Plain, sgd)
    found = []
    for step in range(STEPS):
        x, y = batch(rank, step)
        outputs = []
        for model, optimizer, _ in twins.each():
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            if rank == 0:
                model.module.eval()
                with torch.no_grad():
                    outputs.append((model.module(x), sorted(model.module.state_dict())))
                model.module.train()
        if rank == 0 and not (outputs[0][0].equal(outputs[1][0]) and outputs[0][1] == outputs[1][1]):
            found.append(f"step {step}")
    return found + twins.differences()


def the_network_of_one_rank(rank: int, world: int, of: int) -> list[float]:
    """Rank ``of`` alone is given a network; the bandwidth that each rank plans for."""
    model = Plain()
    optimizer = sgd(model)
    network = hocket.Network(bandwidth_bps=123e6) if rank == of else None
    hocket.distribute(model, optimizer, plan="caramel", network=network, timeout_s=60)
    for step in range(12):
        x, y = batch(rank, step)
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    model.hocket.flush()
    return [model.hocket.network.bandwidth_bps, model.hocket.network.num_workers]
