"""Gradients that travel in half the bytes, beside DistributedDataParallel with torch's own hooks for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn import functional

import hocket
from hocket.errors import HocketError
from tests.multiprocess.gradient_cases import Odd
from tests.multiprocess.setups import STEPS, Plain, Small, batch, sgd, train
from tests.multiprocess.training_cases import Branches
from tests.multiprocess.twins import Twins, differing

TYPES = (torch.bfloat16, torch.float16)
# Where there are two addends their order makes no difference. Of more each rounds as it comes, and steps that
# follow take differences further.
ROUNDED = 0.02
FEW_STEPS = 2


def sent_by_ddp(dtype: torch.dtype) -> Callable[[Any, Any], Any]:
    """Torch's hook for ``dtype``, by a name for which DDP does not ask for NCCL."""
    compress = {
        torch.bfloat16: default_hooks.bf16_compress_hook,
        torch.float16: default_hooks.fp16_compress_hook,
    }[dtype]

    return lambda state, bucket: compress(state, bucket)


class ShortTwins(Twins):
    """Twins whose gradients travel as ``dtype``, with DDP by its hook."""

    def __init__(self, make: Any, optimize: Any, dtype: torch.dtype, **options: Any) -> None:
        super().__init__(make, optimize, gradient_dtype=dtype, **options)
        self.ddp.register_comm_hook(None, sent_by_ddp(dtype))


def tolerance() -> float:
    return 0.0 if dist.get_world_size() == 2 else ROUNDED


def steps() -> int:
    return STEPS if dist.get_world_size() == 2 else FEW_STEPS


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.01)


def usual_loop(rank: int) -> list[str]:
    found = []
    for dtype in TYPES:
        for plan in (None, "ddp"):
            twins = ShortTwins(Plain, sgd, dtype, plan=plan)
            train(twins, rank, steps())
            found += [f"{dtype}, {plan}: {d}" for d in twins.differences(tolerance())]
            told = f"travel as {dtype}"
            found += [] if told in twins.ours.hocket.explain() else ["explain() does not say it"]
    return found


def accumulated_and_read(rank: int) -> list[str]:
    """Accumulated with and without no_sync, read between backward pass and step, and clipped."""
    twins, found = ShortTwins(Plain, sgd, torch.bfloat16), []
    for step in range(steps()):
        gradients = []
        for model, optimizer, no_sync in twins.each():
            optimizer.zero_grad()
            with no_sync() if step % 3 else contextlib.nullcontext():
                x, y = batch(rank, 10 * step)
                functional.cross_entropy(model(x), y).backward()
            x, y = batch(rank, 10 * step + 1)
            functional.cross_entropy(model(x), y).backward()
            if step % 2:
                gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
            if step == 3:
                nn.utils.clip_grad_norm_(model.parameters(), 0.3)
            optimizer.step()
        found += differing(f"gradients of step {step}", *gradients, tolerance()) if gradients else []
    return found + twins.differences(tolerance())


def unused(rank: int) -> list[str]:
    """Parameters that some ranks did not use in a step, and one that none ever uses."""
    found = []
    for dtype in TYPES:
        twins = ShortTwins(Branches, sgd, dtype, unused=True)
        for step in range(steps()):
            x = torch.randn(3, 6, generator=torch.Generator().manual_seed(100 * rank + step))
            left = (step + rank) % 2 == 0 if step % 3 else True
            for model, optimizer, _ in twins.each():
                optimizer.zero_grad()
                model(x, left).square().mean().backward()
                optimizer.step()
            pairs = zip(twins.ddp.module.named_parameters(), twins.ours.parameters(), strict=True)
            found += [
                f"step {step}: {name}" for (name, a), b in pairs if (a.grad is None) != (b.grad is None)
            ]
        assert twins.ours.none.weight.grad is None
        found += twins.differences(tolerance())
    return found


def autocast(rank: int) -> list[str]:
    """float32 parameters, passes in bfloat16, gradients that travel in their own type and in half of it."""
    found = []
    for make in (Twins, lambda *args: ShortTwins(*args, torch.bfloat16)):
        twins = make(Plain, sgd)
        for step in range(steps()):
            x, y = batch(rank, step)
            for model, optimizer, _ in twins.each():
                optimizer.zero_grad()
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    loss = functional.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
        found += twins.differences(tolerance())
    return found


def scaled(rank: int) -> list[str]:
    """float16 on the way with GradScaler, whose scale falls where a gradient does not fit."""
    twins = ShortTwins(lambda: nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 2)), sgd, torch.float16)
    scalers = [torch.amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=3) for _ in range(2)]
    for step in range(steps()):
        x = torch.randn(3, 6, generator=torch.Generator().manual_seed(100 * rank + step))
        for (model, optimizer, _), scaler in zip(twins.each(), scalers, strict=True):
            optimizer.zero_grad()
            scaler.scale(model(x).square().sum()).backward()
            scaler.step(optimizer)
            scaler.update()
    scales = [scaler.get_scale() for scaler in scalers]
    assert scales[1] < 2.0**20
    return twins.differences(tolerance()) + ([] if scales[0] == scales[1] else [f"scales {scales}"])


def bfloat16_throughout(rank: int) -> list[str]:
    """Nothing is shorter than the parameters themselves, and nothing changes."""

    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).to(torch.bfloat16)

    found = []
    for twins in (Twins(make, adam), ShortTwins(make, adam, torch.bfloat16)):
        for step in range(steps()):
            x = torch.randn(4, 8, generator=torch.Generator().manual_seed(100 * rank + step)).bfloat16()
            for model, optimizer, _ in twins.each():
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
        found += twins.differences(tolerance())
    return found


def mixed_types(rank: int) -> list[str]:
    """float64, float32 and bfloat16 in one model, by plans that have them in one bucket and apart."""

    def brief_sgd(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.003, momentum=0.9)

    found = []
    for plan in ("ddp", None):
        twins = ShortTwins(Odd, brief_sgd, torch.bfloat16, plan=plan)
        for step in range(steps()):
            x = torch.randn(3, 6, generator=torch.Generator().manual_seed(100 * rank + step))
            for model, optimizer, _ in twins.each():
                optimizer.zero_grad()
                model(x).backward()
                optimizer.step()
        pairs = zip(twins.ddp.module.named_parameters(), twins.ours.parameters(), strict=True)
        found += [f"type of {name}" for (name, a), b in pairs if a.grad.dtype is not b.grad.dtype]
        found += twins.differences(tolerance())
    return found


def compiled(rank: int) -> list[str]:
    """The step through torch.compile, against an eager one of DDP's: within rounding."""
    twins = ShortTwins(lambda: nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 2)), sgd, TYPES[0], compile=True)
    for step in range(steps()):
        x = torch.randn(3, 6, generator=torch.Generator().manual_seed(100 * rank + step))
        for model, optimizer, _ in twins.each():
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    return twins.differences(ROUNDED)


def joined(rank: int) -> list[str]:
    """Ranks with fewer batches than others."""
    twins = ShortTwins(lambda: nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 2)), sgd, torch.bfloat16)
    for model, optimizer, _ in twins.each():
        with model.join():
            for step in range(3 + 2 * rank):
                x = torch.randn(3, 6, generator=torch.Generator().manual_seed(100 * rank + step))
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
    return twins.differences(tolerance())


def planned(rank: int) -> list[str]:
    """A plan that was made here, by gradients of half the bytes: what the step's graph has of them."""
    twins = ShortTwins(Small, sgd, torch.bfloat16, unused=True, plan="wfbp")
    unlike = train(twins, rank, 12)
    found = unlike if dist.get_world_size() == 2 else []
    profile = twins.ours.hocket.profile
    assert profile is not None
    sizes = dict(zip(profile.parameter_names, profile.parameter_bytes.tolist(), strict=True))
    trained = {name: p for name, p in twins.ours.named_parameters() if name in sizes}
    found += [name for name, p in trained.items() if sizes[name] != p.numel() * 2]
    assert trained
    assert twins.ours.hocket.plan.policy == "wfbp"
    return found


HOOKS: dict[str, tuple[Any, torch.dtype | None]] = {
    "fp16": (default_hooks.fp16_compress_hook, torch.float16),
    "bf16": (default_hooks.bf16_compress_hook, torch.bfloat16),
    "fp16 around": (default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook), torch.float16),
    "bf16 around": (default_hooks.bf16_compress_wrapper(default_hooks.allreduce_hook), torch.bfloat16),
    "plain": (default_hooks.allreduce_hook, None),
}


def registered(rank: int) -> list[str]:
    """Hooks that a script registers as with DDP, which are taken for what they send."""
    found = []
    for name, (hook, dtype) in HOOKS.items():
        twins = Twins(Plain, sgd)
        if dtype is not None:
            twins.ddp.register_comm_hook(None, sent_by_ddp(dtype))
        twins.ours.register_comm_hook(dist.group.WORLD if "around" in name else None, hook)
        train(twins, rank, steps())
        found += [f"{name}: {d}" for d in twins.differences(tolerance())]
        told = f"travel as {dtype}" in twins.ours.hocket.explain()
        found += [] if told == (dtype is not None) else [f"{name}: explain()"]
    return found


def refusals(rank: int, world: int) -> list[str]:
    """What each of these is refused with; the last one in the first step."""
    told = []

    def note(attempt: Callable[[], object]) -> None:
        try:
            attempt()
        except HocketError as error:
            told.append(str(error))
        else:
            told.append("accepted")

    model = nn.Linear(4, 2)
    hocket.distribute(model, sgd(model), plan="ddp")
    state = powerSGD_hook.PowerSGDState(None)
    note(lambda: model.register_comm_hook(state, powerSGD_hook.powerSGD_hook))
    note(
        lambda: model.register_comm_hook(
            None, default_hooks.fp16_compress_wrapper(powerSGD_hook.powerSGD_hook)
        )
    )
    note(lambda: model.register_comm_hook(3, default_hooks.fp16_compress_hook))
    model(torch.ones(3, 4)).sum().backward()
    note(lambda: model.register_comm_hook(None, default_hooks.fp16_compress_hook))
    model.hocket.detach()
    note(lambda: hocket.distribute(model, sgd(model), plan="ddp", gradient_dtype=torch.int8))
    words = nn.Embedding(4, 2, sparse=True)
    note(lambda: hocket.distribute(words, sgd(words), plan="ddp", gradient_dtype=torch.bfloat16))
    hocket.distribute(words, sgd(words), plan="ddp")
    note(lambda: words.register_comm_hook(None, default_hooks.bf16_compress_hook))
    words.hocket.detach()
    hocket.distribute(model, sgd(model), plan="ddp", gradient_dtype=torch.bfloat16 if rank else None)
    note(lambda: model(torch.ones(3, 4)))
    return told


CASES = (
    *(usual_loop, accumulated_and_read, unused, autocast, scaled, bfloat16_throughout, mixed_types),
    *(compiled, joined, planned, registered),
)


def all_of_them(rank: int, world: int) -> dict[str, list[str]]:
    """What differs in each case."""
    return {case.__name__: case(rank) for case in CASES}
