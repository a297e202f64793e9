"""What ranks run for test_training.py: our training beside DistributedDataParallel's, on the same batches."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

import hocket
from tests.multiprocess.setups import STEPS, Plain, Small, batch, sgd, train, trainable
from tests.multiprocess.twins import Twins


def unlike_at_the_start(rank: int) -> list[str]:
    def make() -> nn.Module:
        model = Plain()
        with torch.no_grad():
            model.layers[4].weight.add_(rank)
        return model

    return train(Twins(make, sgd, init_sync=False), rank)


def accumulation(rank: int) -> list[str]:
    twins = Twins(Plain, sgd)
    for step in range(STEPS):
        for model, optimizer, no_sync in twins.each():
            optimizer.zero_grad()
            for part in range(3):
                x, y = batch(rank, 10 * step + part)
                if part < 2:
                    with no_sync():
                        (functional.cross_entropy(model(x), y) / 3).backward()
                else:
                    (functional.cross_entropy(model(x), y) / 3).backward()
            optimizer.step()
    return twins.differences()


def accumulation_without_no_sync(rank: int) -> list[str]:
    twins = Twins(Plain, sgd)
    for step in range(STEPS):
        for model, optimizer, _ in twins.each():
            optimizer.zero_grad()
            for part in range(2):
                x, y = batch(rank, 10 * step + part)
                functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    return twins.differences()


def clipping_by_norm(rank: int) -> list[str]:
    twins = Twins(Plain, sgd)
    norms: list[list[float]] = []
    for step in range(STEPS):
        x, y = batch(rank, step)
        norms.append([])
        for model, optimizer, _ in twins.each():
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            if model is twins.ours:
                norm = hocket.clip_grad_norm_(model, 0.3)
            else:
                norm = nn.utils.clip_grad_norm_(model.parameters(), 0.3)
            norms[-1].append(norm.item())
            optimizer.step()
    assert "clipping by norm" in twins.ours.hocket.explain()
    return twins.differences() + [f"norms {a} {b}" for a, b in norms if a != b]


def clipping_by_torch(rank: int) -> list[str]:
    return train(
        Twins(Plain, sgd), rank, after=lambda model, _: nn.utils.clip_grad_norm_(model.parameters(), 0.3)
    )


def clipping_by_value(rank: int) -> list[str]:
    return train(
        Twins(Plain, sgd), rank, after=lambda model, _: nn.utils.clip_grad_value_(model.parameters(), 0.01)
    )


def scaler_and_autocast(rank: int) -> list[str]:
    twins = Twins(Plain, sgd)
    scalers = [torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3) for _ in range(2)]
    for step in range(STEPS):
        x, y = batch(rank, step)
        if step == 4 and rank == 0:
            x = x * float("inf")  # every rank has to leave this step out
        for (model, optimizer, _), scaler in zip(twins.each(), scalers, strict=True):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    scales = [scaler.get_scale() for scaler in scalers]
    # BatchNorm's statistics are not finite after that batch, and nan is not equal to nan.
    found = [d for d in twins.differences() if "running" not in d]
    return found + ([] if scales[0] == scales[1] else [f"scales {scales}"])


def parameter_groups(rank: int) -> list[str]:
    def groups(model: nn.Module) -> torch.optim.Optimizer:
        decayed = [p for p in trainable(model) if p.ndim > 1]
        rest = [p for p in trainable(model) if p.ndim <= 1]
        settings = [{"params": decayed, "weight_decay": 0.1}, {"params": rest, "lr": torch.tensor(0.02)}]
        return torch.optim.AdamW(settings, lr=torch.tensor(0.01), foreach=False)

    twins = Twins(Plain, groups)
    schedulers = [torch.optim.lr_scheduler.StepLR(o, 1, gamma=0.7) for o in twins.optimizers]
    for step in range(STEPS):
        x, y = batch(rank, step)
        for (model, optimizer, _), scheduler in zip(twins.each(), schedulers, strict=True):
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            scheduler.step()
    return twins.differences()


def several_optimizers(rank: int) -> list[str]:
    def two(model: nn.Module) -> list[torch.optim.Optimizer]:
        body, head = list(model.layers[:4].parameters()), list(model.layers[4:].parameters())
        return [torch.optim.SGD(body, lr=0.05), torch.optim.Adam(head, lr=0.01)]

    twins = Twins(Plain, two)
    for step in range(STEPS):
        x, y = batch(rank, step)
        for model, (first, second), _ in twins.each():
            model.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            first.step()
            if step % 2:
                second.step()
    return twins.differences()


class Branches(nn.Module):
    """One layer or the other, as the caller says; a third that nobody uses."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.left, self.right, self.none = (nn.Linear(6, 6) for _ in range(4))

    def forward(self, x: torch.Tensor, left: bool) -> torch.Tensor:
        return (self.left if left else self.right)(self.trunk(x))


def unused_parameters(rank: int) -> list[str]:
    twins = Twins(Branches, lambda model: torch.optim.Adam(model.parameters(), lr=0.01), unused=True)
    found = []
    for step in range(STEPS):
        x = torch.randn(3, 6, generator=torch.Generator().manual_seed(100 * rank + step))
        left = (step + rank) % 2 == 0 if step % 3 else True  # some steps: not the same on all ranks
        for model, optimizer, _ in twins.each():
            optimizer.zero_grad()
            model(x, left).square().sum().backward()
            if step % 4 == 3:
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
        for (name, a), b in zip(twins.ddp.module.named_parameters(), twins.ours.parameters(), strict=True):
            if (a.grad is None) != (b.grad is None):
                found.append(f"step {step}: {name}.grad is {a.grad} and {b.grad}")
    assert twins.ours.none.weight.grad is None
    return found + twins.differences()


def shared_frozen_functional(rank: int) -> list[str]:
    return train(Twins(Small, sgd, unused=True), rank)


def batch_norm_statistics(rank: int) -> list[str]:
    twins = Twins(Plain, sgd)
    found = []
    for step in range(STEPS):
        found += train(twins, rank, 1)
        x, _ = batch(rank, 77)
        for model in (twins.ddp, twins.ours):
            model.eval()
        with torch.no_grad():
            if not torch.equal(twins.ddp(x), twins.ours(x)):
                found.append(f"step {step}: evaluation differs")
        for model in (twins.ddp, twins.ours):
            model.train()
    return found


def evaluation_on_one_rank(rank: int) -> list[str]:
    twins = Twins(Plain, sgd)
    for _ in range(4):
        train(twins, rank, 2)
        if rank == 0:
            with torch.no_grad():
                twins.ours.eval()(batch(0, 5)[0])
                twins.ours.train()
    return [d for d in twins.differences() if "running" not in d]


def state_at_any_moment(rank: int) -> list[str]:
    """Right after a step, after a backward pass, and for one rank alone; loading goes on from there."""
    twins = Twins(Plain, sgd)
    found = train(twins, rank, 5)
    if rank == 0:
        saved = io.BytesIO()
        torch.save(twins.ours.state_dict(), saved)
    found += train(twins, rank, 1)
    states = [
        (copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict()))
        for model, optimizer in ((twins.ddp.module, twins.optimizers[0]), (twins.ours, twins.optimizers[1]))
    ]
    if list(states[0][0]) != list(states[1][0]):
        found.append("keys differ")
    train(twins, rank, 3)
    x, y = batch(rank, 40)
    functional.cross_entropy(twins.ours(x), y).backward()
    part = twins.ours.layers.state_dict()  # of a part, in the middle of a step
    assert part["4.weight"] is not None
    twins.optimizers[1].zero_grad()
    for model, optimizer, state in zip(
        (twins.ddp.module, twins.ours), twins.optimizers, (states[0], states[0]), strict=True
    ):
        model.load_state_dict(state[0])
        optimizer.load_state_dict(copy.deepcopy(state[1]))
    return found + train(twins, rank, 4)


def copies(rank: int) -> list[str]:
    twins = Twins(Plain, sgd)
    train(twins, rank, 5)
    found = []
    copied, pickled = copy.deepcopy(twins.ours), pickle.loads(pickle.dumps(twins.ours))
    part = copy.deepcopy(twins.ours.layers)
    for name, model in (("copy", copied), ("pickle", pickled)):
        for key, value in twins.ddp.module.state_dict().items():
            if not torch.equal(value, model.state_dict()[key]):
                found.append(f"{name}: {key}")
        if "hocket" in vars(model) or any(m._forward_pre_hooks for m in model.modules()):
            found.append(f"{name} has hooks")
    if not torch.equal(part[4].weight, twins.ddp.module.layers[4].weight):
        found.append("part")
    if rank == 0:  # a copy trains by itself
        copied(batch(0, 1)[0]).sum().backward()
    return found + train(twins, rank, 3)


def averaged_parameters(rank: int) -> list[str]:
    """Reading ``model.parameters()`` right after a step, as every moving average does."""
    twins = Twins(Plain, sgd)
    averages = [torch.optim.swa_utils.AveragedModel(m) for m in (twins.ddp.module, copy.deepcopy(twins.ours))]
    for step in range(STEPS):
        x, y = batch(rank, step)
        for (model, optimizer, _), average in zip(twins.each(), averages, strict=True):
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            average.update_parameters(getattr(model, "module", model))
    pairs = zip(averages[0].parameters(), averages[1].parameters(), strict=True)
    return ["average"] if not all(torch.equal(a, b) for a, b in pairs) else []


def step_hooks(rank: int) -> list[str]:
    twins = Twins(Plain, sgd)
    calls = [0, 0]
    for k, optimizer in enumerate(twins.optimizers):

        def count(*_: Any, k: int = k) -> None:
            calls[k] += 1

        optimizer.register_step_post_hook(count)
    return train(twins, rank) + ([] if calls == [STEPS, STEPS] else [f"calls {calls}"])


def closures(rank: int) -> list[str]:
    """The whole step within ``step``, as frameworks have it; transfers run on into the next one."""
    twins = Twins(Plain, lambda model: torch.optim.AdamW(trainable(model), lr=0.01))
    losses: list[list[float]] = [[], []]
    for step in range(STEPS):
        x, y = batch(rank, step)
        for seen, (model, optimizer, _) in zip(losses, twins.each(), strict=True):

            def closure(
                model: nn.Module = model, optimizer: torch.optim.Optimizer = optimizer
            ) -> torch.Tensor:
                loss = functional.cross_entropy(model(x), y)  # noqa: B023
                optimizer.zero_grad()
                loss.backward()
                return loss

            with torch.no_grad():
                seen.append(optimizer.step(closure).item())
    assert "barrier" not in twins.ours.hocket.explain()
    return twins.differences() + ([] if losses[0] == losses[1] else [f"losses {losses}"])


def zeroed_gradients(rank: int) -> list[str]:
    twins = Twins(Plain, sgd)
    for step in range(STEPS):
        x, y = batch(rank, step)
        for model, optimizer, _ in twins.each():
            optimizer.zero_grad(set_to_none=False)
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    return twins.differences()


def gradients_that_are_read(rank: int) -> list[str]:
    """Before and after a step, and replaced by others."""
    twins = Twins(Plain, sgd)
    found = []
    for step in range(STEPS):
        x, y = batch(rank, step)
        sums: list[list[float]] = []
        for model, optimizer, _ in twins.each():
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            values = [p.grad.sum().item() for p in model.parameters()] if step % 2 else []
            for p in list(model.parameters())[:2]:
                p.grad = p.grad * 0.5
            optimizer.step()
            sums.append(values + [p.grad.numpy().sum().item() for p in model.parameters()])
        found += [f"step {step}"] if sums[0] != sums[1] else []
    return found + twins.differences()


def another_group(rank: int, world: int) -> list[str]:
    """Ranks 0 and 2 of three train together; rank 1 does not."""
    assert world == 3
    group = dist.new_group([0, 2])
    if rank == 1:
        return []
    return train(Twins(Plain, sgd, group=group), rank)


def two_groups(rank: int, world: int) -> list[str]:
    """Halves of the job train a model each, and what all of them do next is not disturbed."""
    assert world == 4
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    found = train(Twins(Plain, sgd, group=halves[rank // 2]), rank)
    everybody = dist.new_group([0, 1, 2, 3])
    ones = torch.ones(1)
    dist.all_reduce(ones, group=everybody)
    return found if ones.item() == 4 else [*found, "others' groups are disturbed"]


def auto(rank: int) -> list[str]:
    """The whole way from profile to trial to a plan in force."""
    twins = Twins(Plain, sgd, plan="auto")
    step = 0
    while not twins.ours.hocket.settled or step < 80:
        x, y = batch(rank, step)
        for model, optimizer, _ in twins.each():
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        step += 1
    assert "ddp" in twins.ours.hocket.explain()
    return twins.differences()


def detached(rank: int) -> list[str]:
    twins = Twins(Plain, sgd)
    found = train(twins, rank, 4)
    twins.ours.hocket.detach()
    if "hocket" in vars(twins.ours) or "step" in vars(twins.optimizers[1]):
        found.append("something is left")
    if any(m._forward_pre_hooks or m._forward_hooks for m in twins.ours.modules()):
        found.append("hooks are left")
    hocket.distribute(twins.ours, twins.optimizers[1], plan="ddp")
    return found + train(twins, rank, 4)
