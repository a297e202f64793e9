"""Ranks that choose a plan: how many steps that takes, and that all of them end with the same."""

from __future__ import annotations

from typing import Any

import torch

import hocket
from hocket.runtime.training.plan_trials import Choice
from tests.multiprocess.setups import Plain, sgd, train
from tests.multiprocess.twins import SLOW, Twins


def steps_to_settle(rank: int, world: int, measured: bool) -> dict[str, Any]:
    """The way from the first step to a plan that stays, on a network that is given or measured."""
    phases: list[list[Any]] = []
    steps = 0
    enter = Choice.enter

    def noted(self: Choice, phase: str, more: str = "") -> None:
        phases.append([steps, phase.split()[0]])
        enter(self, phase, more)

    Choice.enter = noted  # type: ignore[method-assign]
    twins = Twins(Plain, sgd, plan="auto", **({} if measured else {"network": SLOW}))
    handle = twins.ours.hocket
    while not handle.settled and steps < 70:
        differences = train(twins, rank, 1)
        assert differences == [] or world > 2, differences  # sums of three run in another order
        steps += 1
    network = handle.network
    assert isinstance(network, hocket.Network)
    assert (network.reduction is not None) == measured
    total = torch.nn.utils.parameters_to_vector(twins.ours.parameters()).sum().item()
    return {"plan": handle.plan.policy, "steps": steps, "phases": phases, "alike": [total, str(network)]}
