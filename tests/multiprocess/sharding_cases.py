"""What ranks run for test_sharding.py: sharded by a plan beside torch's own sharding."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import hocket
from hocket.runtime.sharding.module_tree import blocks_of
from hocket.runtime.sharding.module_units import modules_of_units
from hocket.runtime.sharding.share_sums import of_torch, sum_shares
from hocket.runtime.sharding.torch_sharding import noting_full_bytes
from hocket.runtime.sharding.unit_profile import graph_of
from hocket.sim.sharded_evaluator import ShardedEvaluator
from hocket.tuner.sharded_training import _UnitPlanner
from tests.multiprocess.sharding_setups import (
    MODELS,
    PLANS,
    Pair,
    adamw,
    batch_of,
    gpt,
    loss_of,
    refusal,
    whole_state,
)


def parity(
    rank: int, world: int, *, kind: str, plan: str, compiled: bool = False, clipped: bool = False
) -> list[str]:
    """What differs after 20 steps."""
    pair = Pair(kind, plan, compiled=compiled, same_units=world > 2)
    pair.train(rank, 20, clipped=clipped)
    return pair.differences()


def every_way(rank: int, world: int, *, kind: str) -> dict[str, list[str]]:
    """What differs by each plan, clipped and not."""
    ways = [("batched", False), ("batched", True), ("default", True), ("unhurried", False)]
    return {
        f"{plan} clipped={clipped}": parity(rank, world, kind=kind, plan=plan, clipped=clipped)
        for plan, clipped in ways
    }


def compiled(rank: int, world: int, *, kind: str) -> dict[str, list[str]]:
    """What differs between compiled models, clipped and not."""
    found = {}
    for clipped in (False, True):
        torch._dynamo.reset()
        found[f"clipped={clipped}"] = parity(
            rank, world, kind=kind, plan="batched", compiled=True, clipped=clipped
        )
    return found


def mixed(rank: int, world: int) -> dict[str, list[str]]:
    """What differs where parameters are gathered, and gradients reduced, in other types."""
    half, full = torch.bfloat16, torch.float32
    ways = [(half, full), (half, None), (half, half), (None, half)]
    found = {}
    for gathered, reduced in ways:
        policy = MixedPrecisionPolicy(param_dtype=gathered, reduce_dtype=reduced)
        pair = Pair("gpt", "batched", mp_policy=policy)
        pair.train(rank, 8)
        found[f"{gathered} {reduced}"] = pair.differences()
    model, _ = hocket.shard(gpt(), adamw, mp_policy=MixedPrecisionPolicy(param_dtype=half))
    found["auto"] = [] if "steps in mixed precision" in model.hocket.explain() else [model.hocket.explain()]
    return found


def accumulation(rank: int, world: int, *, sync: bool) -> list[str]:
    """Gradients of three batches a step, reduced each, or once."""
    pair = Pair("gpt", "batched")
    for step in range(6):
        for model, optimizer in pair.each():
            for part in range(3):
                last = part == 2
                model.set_requires_gradient_sync(sync or last)
                x, wanted = batch_of("gpt", rank, 10 * step + part)
                loss_of(model(x), wanted).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=step % 2 == 0)
    return pair.differences()


def without_sync(rank: int, world: int) -> list[str]:
    """``model.hocket.no_sync()`` is what torch's own switch is."""
    pair = Pair("gpt", "batched")
    for step in range(4):
        for model, optimizer in pair.each():
            handle = getattr(model, "hocket", None)
            model.set_requires_gradient_sync(False)
            with contextlib.nullcontext() if handle is None else handle.no_sync():
                x, wanted = batch_of("gpt", rank, 10 * step)
                loss_of(model(x), wanted).backward()
            if handle is None:
                model.set_requires_gradient_sync(True)
            x, wanted = batch_of("gpt", rank, 10 * step + 1)
            loss_of(model(x), wanted).backward()
            optimizer.step()
            optimizer.zero_grad()
    return pair.differences()


def steps_in_backward(rank: int, world: int) -> list[str]:
    """Each parameter is updated by a hook as soon as its gradient is there."""
    pair = Pair("gpt", "batched")
    for model in pair.plain:
        for p in model.parameters():
            one = torch.optim.SGD([p], lr=0.1)

            def update(p: torch.Tensor, one: torch.optim.Optimizer = one) -> None:
                one.step()
                p.grad = None

            p.register_post_accumulate_grad_hook(update)
    for step in range(5):
        x, wanted = batch_of("gpt", rank, step)
        for model in pair.plain:
            loss_of(model(x), wanted).backward()
    return pair.differences()


class Skips(nn.Module):
    """A block that only training runs."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for k, block in enumerate(self.blocks):
            if self.training or k != 2:
                x = block(x)
        return x


def skipped_in_evaluation(rank: int, world: int) -> list[str]:
    """A unit that is gathered ahead, and not run, is not taken for the next step's."""
    torch.manual_seed(0)
    torchs, ours = Skips(), Skips()
    ours.load_state_dict(torchs.state_dict())
    for block in torchs.blocks:
        fully_shard(block)
    fully_shard(torchs)
    units = tuple(tuple(f"blocks.{k}.0.{part}" for part in ("weight", "bias")) for k in range(4))
    plan = hocket.Plan(
        policy="ahead",
        model="Skips",
        architecture="fsdp",
        units=units,
        forward_prefetch=((1,), (2,), (3,), ()),
        backward_prefetch=((), (0,), (1,), (2,)),
        reshard_after_forward=(True,) * 4,
        compute_order=None,
    )
    pairs = [(torchs, torch.optim.SGD(torchs.parameters(), lr=0.1))]
    pairs.append(hocket.shard(ours, lambda p: torch.optim.SGD(p, lr=0.1), plan=plan))
    for step in range(4):
        x = torch.randn(3, 8, generator=torch.Generator().manual_seed(step + 10 * rank))
        for model, optimizer in pairs:
            optimizer.zero_grad()
            model.train()(x).square().sum().backward()
            model.eval()
            with torch.no_grad():
                model(x)
            optimizer.step()
    theirs, mine = (whole_state(model) for model, _ in pairs)
    return [name for name in theirs if not torch.equal(theirs[name], mine[name])]


def checkpoint(rank: int, world: int, *, kind: str, folder: str, clipped: bool) -> dict[str, Any]:
    """Saved under one plan by torch's distributed checkpoints, loaded under another, and trained on."""
    pair = Pair(kind, "batched")
    pair.train(rank, 6, clipped=clipped)
    model, optimizer = pair.ours, pair.optimizers[1]
    states = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
    dcp.save(states, checkpoint_id=folder)
    pair.train(rank, 6, clipped=clipped, first=6)
    again, other = hocket.shard(MODELS[kind](), adamw, plan="fsdp")
    states = dict(zip(("model", "optimizer"), get_state_dict(again, other), strict=True))
    dcp.load(states, checkpoint_id=folder)
    set_state_dict(again, other, model_state_dict=states["model"], optim_state_dict=states["optimizer"])
    for step in range(6, 12):
        x, wanted = batch_of(kind, rank, step)
        other.zero_grad()
        loss_of(again(x), wanted).backward()
        if clipped:
            hocket.clip_grad_norm_(again, 0.1)
        other.step()
    ours, loaded = whole_state(model), whole_state(again)
    # Of buffers, which each rank has its own, a checkpoint of torch's holds those of some rank.
    compared = [name for name, _ in model.named_parameters()]
    return {
        "plans": [model.hocket.plan.policy, again.hocket.plan.policy],
        "torch": pair.differences(),
        "loaded": [name for name in compared if not torch.equal(ours[name], loaded[name])],
    }


def replicas(rank: int, world: int) -> list[str]:
    """Shards inside of groups of two, replicas between them (HSDP), beside torch's own."""
    mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("replicate", "shard"))
    torch.manual_seed(0)
    torchs, ours = gpt(), gpt()
    ours.load_state_dict(torchs.state_dict())
    for unit in modules_of_units(torchs, PLANS["batched"](torchs).units):
        fully_shard(list(unit.modules) if len(unit.modules) > 1 else unit.modules[0], mesh=mesh)
    pairs = [(torchs, adamw(torchs.parameters()))]
    pairs.append(hocket.shard(ours, adamw, plan=PLANS["batched"](ours), mesh=mesh))
    for step in range(5):
        x, wanted = batch_of("gpt", rank, step)
        for model, optimizer in pairs:
            optimizer.zero_grad()
            loss_of(model(x), wanted).backward()
            optimizer.step()
    theirs, mine = (whole_state(model) for model, _ in pairs)
    return [name for name in theirs if not torch.equal(theirs[name], mine[name])]


def taken_over(rank: int, world: int) -> dict[str, Any]:
    """An optimizer of before, with groups and a scheduler, goes on as one that is made afterwards."""
    torch.manual_seed(rank)  # every rank takes over the first one's values
    ours = gpt()
    optimizer = _grouped(ours)
    scheduled = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    returned = hocket.shard(ours, optimizer)
    torch.manual_seed(0)
    torchs = gpt()
    for block in blocks_of(torchs):
        fully_shard(block)
    fully_shard(torchs)
    theirs = _grouped(torchs)
    each = [(ours, optimizer, scheduled)]
    each.append((torchs, theirs, torch.optim.lr_scheduler.StepLR(theirs, 2, 0.5)))
    for step in range(5):
        x, wanted = batch_of("gpt", rank, step)
        for model, stepped, schedule in each:
            stepped.zero_grad()
            loss_of(model(x), wanted).backward()
            stepped.step()
            schedule.step()
    mine, other = whole_state(ours), whole_state(torchs)
    return {
        "same": returned[0] is ours and returned[1] is optimizer,
        "differences": [name for name in mine if not torch.equal(mine[name], other[name])],
    }


def _grouped(model: nn.Module) -> torch.optim.Optimizer:
    norms = [p for name, p in model.named_parameters() if "norm" in name]
    others = [p for name, p in model.named_parameters() if "norm" not in name]
    return torch.optim.AdamW([{"params": norms, "weight_decay": 0.0}, {"params": others}], lr=1e-2)


def refused(rank: int, world: int) -> dict[str, str]:
    """What ranks that differ are told; afterwards they still train."""
    said: list[str] = []
    with refusal(said):
        hocket.shard(nn.Sequential(nn.Linear(4, 4 + rank), nn.Linear(4 + rank, 2)), adamw)
    model = gpt()
    plan = PLANS["batched"](model)
    if rank:
        plan = msgspec.structs.replace(plan, reshard_after_forward=(True,) * len(plan.units))
    with refusal(said):
        hocket.shard(model, adamw, plan=plan)
    with refusal(said):
        hocket.shard(model, adamw, plan=PLANS["batched"](model) if rank else "auto")
    pair = Pair("gpt", "default")
    pair.train(rank, 2)
    assert pair.differences() == []
    return dict(zip(("model", "plan", "policy"), said, strict=True))


def trains_until_killed(rank: int, world: int, *, folder: str) -> None:
    """Steps without end; each rank leaves a mark after five of them."""
    torch.manual_seed(0)
    model = gpt()
    model, optimizer = hocket.shard(model, adamw, plan=PLANS["batched"](model))
    deadline_s, step = time.monotonic() + 120, 0
    while time.monotonic() < deadline_s:
        x, wanted = batch_of("gpt", rank, step)
        optimizer.zero_grad()
        loss_of(model(x), wanted).backward()
        optimizer.step()
        step += 1
        if step == 5:
            (Path(folder) / f"under-way-{rank}").touch()
    raise AssertionError("nobody was killed")


def overlap(rank: int, world: int) -> dict[str, Any]:
    """Spans of a measured timeline, and a report."""
    model = gpt()
    model, optimizer = hocket.shard(model, adamw, plan=PLANS["batched"](model))
    for step in range(4):
        x, wanted = batch_of("gpt", rank, step)
        optimizer.zero_grad()
        with noting_full_bytes(model) as full:
            loss_of(model(x), wanted).backward()
        optimizer.step()
    timeline, handle = model.hocket.timeline, model.hocket
    graph = graph_of(handle._sharded.events.last, model, handle.plan, world)
    assert graph is not None
    evaluator = ShardedEvaluator(graph, hocket.Network(num_workers=world))
    return {
        "full": max(full),
        "simulated_full": evaluator.full_bytes(handle.plan),
        "held": max(point.held_bytes for point in timeline.memory),
        "simulated_held": max(evaluator.step.schedule(handle.plan).most_held().values()),
        "held_at_end": timeline.memory[-1].held_bytes,
        "kinds": sorted({(timeline.lanes[span.lane].name, span.kind) for span in timeline.spans}),
        "ordered": all(span.end_s >= span.start_s for span in timeline.spans),
        "explain": model.hocket.explain().splitlines(),
        "repr": repr(model.hocket),
        "world": dist.get_world_size(),
    }


def learned(rank: int, world: int, *, folder: str, fails: bool = False) -> dict[str, Any]:
    """Two runs of "auto" beside torch's own sharding, by a planner that batches, or that fails."""
    os.environ["HOCKET_CACHE"] = folder

    def plans(_: Any, graph: hocket.StepGraph, network: hocket.Network, own: hocket.Plan) -> Any:
        if fails:
            raise hocket.HocketError("nothing can be planned today")
        assert graph.num_parameters == sum(map(len, own.units))
        assert network.num_workers == world
        assert network.reduction is not None
        halves = network.reduction.halves
        assert halves is not None
        assert halves.exchange is not None
        assert all(line.a_s + 1e6 * line.b_s_per_byte > 0 for line in (halves.gather, halves.exchange))
        assert halves.scatter is None  # gloo's own is not in force
        ahead = tuple(tuple(range(k + 1, min(k + 3, len(own.units)))) for k in range(len(own.units)))
        here = msgspec.structs.replace(own, policy="two ahead", forward_prefetch=ahead)
        return here, PLANS["batched"](gpt())

    _UnitPlanner.plans = plans  # type: ignore[method-assign]
    told: dict[str, Any] = {}
    for run in ("first", "second"):
        pair = Pair("gpt", "auto")
        handle = pair.ours.hocket
        begun = handle.plan.policy
        steps = 0
        while steps < 12:
            pair.train(rank, 1, first=steps)
            steps += 1
            if steps == 3:
                early = handle.phase
        graph = handle.profile
        told[run] = {
            "policies": [begun, handle.plan.policy],
            "next": None if handle.next_plan is None else handle.next_plan.policy,
            "phases": [early, handle.phase],
            "profile": None
            if graph is None
            else [graph.num_operations > 10, float(graph.durations_s.min()) >= 0],
            "explain": handle.explain().splitlines(),
            "differences": pair.differences(),
        }
    told["kept"] = len(list(Path(folder).rglob("*.json")))
    return told


def sums(rank: int, world: int) -> dict[str, int]:
    """How many numbers are other ones than those of gloo's own reduce-scatter, by length and type."""
    found = {}
    generator = torch.Generator().manual_seed(rank)
    for kind in (torch.float32, torch.bfloat16, torch.float64):
        for share in (1, 3, 64, 1001, 700_001):  # the last in more than two segments a rank
            numbers = torch.randn(world * share, generator=generator).to(kind)
            theirs, ours = torch.empty(share, dtype=kind), torch.empty(share, dtype=kind)
            reduce = of_torch("reduce_scatter_single", "reduce_scatter_tensor")
            reduce(theirs, numbers.clone(), op=dist.ReduceOp.AVG)
            received = torch.empty_like(numbers)
            dist.all_to_all_single(received, numbers)
            sum_shares(received, ours, rank, world, mean=True)
            found[f"{share} {kind}"] = int((theirs != ours).sum())
    return found
