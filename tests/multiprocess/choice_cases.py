"""Ranks that choose a plan: how many steps that takes, and that all of them end with the same."""

from __future__ import annotations

import json
import os
import pickle
import re
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import hocket
from hocket.runtime.training import kept_choice_check, plan_drift, plan_selection
from hocket.runtime.training.plan_trials import Choice
from tests.multiprocess.planning_cases import children
from tests.multiprocess.setups import Plain, sgd, train
from tests.multiprocess.twins import SLOW, Twins

# On a busy machine plans and the network take now this long, now that: a kept choice is not to be left out.
kept_choice_check._SAME_NETWORK = kept_choice_check._SAME_STEP = 50.0
kept_choice_check._LOSES = kept_choice_check._SLOW = 50.0


def steps_to_settle(rank: int, world: int, measured: bool) -> dict[str, Any]:
    """The way from the first step to a plan that stays, on a network that is given or measured."""
    phases: list[list[Any]] = []
    steps = 0
    enter = Choice.enter

    def noted(self: Choice, phase: str, *more: Any) -> None:
        phases.append([steps, phase.split()[0]])
        enter(self, phase, *more)

    Choice.enter = noted  # type: ignore[method-assign]
    twins = Twins(Plain, sgd, plan="auto", **({} if measured else {"network": SLOW}))
    handle = twins.ours.hocket
    while not handle.settled and steps < 70:
        differences = train(twins, rank, 1)
        assert differences == [] or world > 2, differences  # sums of three run in another order
        steps += handle.phase != "planning"
    network = handle.network
    assert isinstance(network, hocket.Network)
    assert (network.reduction is not None) == measured
    total = torch.nn.utils.parameters_to_vector(twins.ours.parameters()).sum().item()
    return {
        "plan": handle.plan.policy,
        "stays": re.findall(" stays: (.*)", handle.explain()),
        "steps": steps,
        "phases": phases,
        "alike": [total, str(network)],
    }


def run_again(rank: int, world: int, folder: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Two trainings of one model, of which the second finds what the first kept, with these ``changes``.

    ``hidden``: parameters of its layer; ``batch``: its batch size; ``slower``: how many times as long its
    network takes, or its plan's step; ``entry``: what the file is before it.
    """
    os.environ["HOCKET_CACHE"] = folder
    torch.manual_seed(0)
    told: dict[str, Any] = {}
    for run in ("first", "second"):
        if run == "second":
            change(rank, Path(folder), changes)
        width = changes.get("hidden", 64) if run == "second" else 64
        model = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        network = None if changes.get("measured") else hocket.Network(bandwidth_bps=2e6)
        hocket.distribute(model, optimizer, network=network)
        handle: Any = model.hocket
        loading = len(children())
        if run == "second" and changes.get("loaded"):
            handle.load_state_dict(pickle.loads(pickle.dumps(told["state"])))
        steps = trained(model, optimizer, handle, changes.get("batch", 4) if run == "second" else 4)
        told[run] = {"plan": handle.plan.policy, "steps": steps, "why": handle.explain().splitlines()}
        told[run] |= {"loading": loading, "left": len(children())}
        told["state"] = handle.state_dict()
        handle.detach()
    told["files"] = len(list(Path(folder).rglob("*.json")))
    return told


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, handle: Any, batch_size: int) -> int:
    """Train until a plan stays, and for a step more; after how many steps it did, but those of planning."""
    steps = 0
    while not handle.settled and steps < 70:
        optimizer.zero_grad()
        model(torch.ones(batch_size, 8)).sum().backward()
        optimizer.step()
        steps += handle.phase != "planning"
    return steps


def change(rank: int, folder: Path, changes: dict[str, Any]) -> None:
    """Change what the second training finds."""
    dist.barrier()
    files = list(folder.rglob("*.json"))
    if rank == 0:
        for file in files:
            if (entry := changes.get("entry")) is not None:
                file.write_text(entry)
            if (factor := changes.get("network")) is not None:
                kept = json.loads(file.read_text())
                kept["point"]["seconds"] *= factor
                file.write_text(json.dumps(kept))
            if changes.get("step") is not None:
                kept = json.loads(file.read_text())
                kept["step_s"] = dict.fromkeys(kept["step_s"], changes["step"])
                file.write_text(json.dumps(kept))
    if "forget" in changes:
        os.environ["HOCKET_FORGET"] = "1"
    dist.barrier()


def drift(rank: int, world: int) -> dict[str, Any]:
    """A training whose steps take longer from some moment on, on rank 1 alone."""
    plan_drift.WINDOW_STEPS, plan_selection.REST_STEPS = 8, 40
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    hocket.distribute(model, optimizer, network=hocket.Network(bandwidth_bps=2e6))
    handle: Any = model.hocket
    settled, step = [], 0
    while step < 400:
        optimizer.zero_grad()
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        step += handle.phase != "planning"
        if not settled or handle.settled != settled[-1][1]:
            settled.append((step, handle.settled))
        if rank == 1 and len(settled) > 1 and step > settled[1][0] + 8:
            time.sleep(0.1)
        if len(settled) == 4:
            break
    return {"settled": settled, "plan": handle.plan.policy, "steps": step}
