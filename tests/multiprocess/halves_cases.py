"""What ranks run for test_halves.py: plans that sum gradients up in halves, beside DDP."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import nn
from torch.nn import functional

import hocket
from hocket.errors import HocketError
from hocket.graph import Plan, Reduction
from hocket.runtime.transfers.gloo_group import GlooGroup
from tests.multiprocess.gradient_cases import Odd
from tests.multiprocess.setups import STEPS, Plain, Small, batch, sgd, train
from tests.multiprocess.short_cases import ShortTwins
from tests.multiprocess.training_cases import Branches
from tests.multiprocess.twins import Twins, differing, sliced_plan

Issue = Literal["listed", "ready"]
Clip = Callable[[nn.Module, torch.optim.Optimizer], torch.Tensor]


def halved_plan(model: nn.Module, issue: Issue = "ready") -> Plan:
    """As :func:`sliced_plan`, two of three reductions in halves."""
    plan = sliced_plan(model, issue)
    reductions = tuple(
        Reduction(parameters=r.parameters, window=r.window, slice=r.slice, halves=k % 3 < 2)
        for k, r in enumerate(plan.reductions)
    )
    return Plan(
        policy="halves",
        model="test",
        architecture="allreduce",
        reductions=reductions,
        compute_order=None,
        issue=issue,
    )


def one_bucket(model: nn.Module, chunks: int = 3) -> Plan:
    """All gradients in one reduction in halves, in ``chunks``."""
    names = tuple(name for name, p in model.named_parameters() if p.requires_grad)
    reduction = Reduction(parameters=names, window="forward", halves=True, chunks=chunks)
    return Plan(
        policy="one", model="test", architecture="allreduce", reductions=(reduction,), compute_order=None
    )


PLANS: tuple[Callable[[nn.Module], Plan], ...] = (
    lambda model: halved_plan(model, "ready"),
    lambda model: halved_plan(model, "listed"),
    one_bucket,
)


def in_halves(make: Callable[[], nn.Module], plan: Callable[[nn.Module], Plan], **options: Any) -> Twins:
    return Twins(make, options.pop("optimize", sgd), plan=plan(make()), **options)


def by_torch(model: nn.Module, _: object) -> torch.Tensor:
    return nn.utils.clip_grad_norm_(model.parameters(), 0.3)


def by_hocket(model: nn.Module, _: object) -> torch.Tensor:
    return hocket.clip_grad_norm_(model, 0.3)


def by_foreach(model: nn.Module, _: object) -> torch.Tensor:
    return nn.utils.clip_grad_norm_(model.parameters(), 0.3, foreach=True)


def by_hand(model: nn.Module, _: object) -> torch.Tensor:
    """As scripts of old do it."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    total = torch.stack([g.data.norm(2) ** 2 for g in gradients]).sum().sqrt()
    factor = (0.3 / (total + 1e-6)).clamp(max=1.0)
    for g in gradients[1:]:
        g.detach().mul_(factor)
    gradients[0] *= factor
    return total


CLIPS: tuple[Clip, ...] = (by_torch, by_hocket, by_foreach, by_hand)


LEARNING_STEPS = 2


def waited(model: nn.Module) -> list[str]:
    """What made steps of the plan in halves wait."""
    lines = [line for line in model.hocket.explain().splitlines() if line.startswith("barrier")]
    return [line for line in lines if f"last in step {LEARNING_STEPS}," not in line]


def clip_alike(twins: Twins, clip: Clip, most: float = 0.3, order: float = 2.0) -> list[str]:
    """Clip ours, and DDP's gradients by the same norm; where the norms differ by more than they may."""
    norm = clip(twins.ours, twins.optimizers[1])
    gradients = [p.grad for p in twins.ddp.parameters() if p.grad is not None]
    theirs = nn.utils.get_total_norm([g.double() for g in gradients], order)
    nn.utils.clip_grads_with_norm_(twins.ddp.parameters(), most, norm)
    off = 1e-5 if order == 1 else 1e-6  # torch's own sums of magnitudes, in the steps that learn
    same = math.isclose(norm, theirs, rel_tol=off) or not (math.isfinite(norm) or math.isfinite(theirs))
    return [] if same else [f"norms {float(norm)} and {float(theirs)}"]


def clipped(
    rank: int, twins: Twins, clip: Clip = by_torch, tolerance: float = 0.0, steps: int = STEPS
) -> list[str]:
    """The usual loop that clips; DDP's gradients are clipped by our norm."""
    found = []
    for step in range(steps):
        x, y = batch(rank, step)
        for model, optimizer, _ in twins.each():
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
        found += clip_alike(twins, clip)
        for optimizer in twins.optimizers:
            optimizer.step()
    return found + twins.differences(tolerance)


def _clipping(rank: int, clip: Clip, tolerance: float = 0.0) -> list[str]:
    found = []
    for plan in PLANS:
        twins = in_halves(Plain, plan)
        found += clipped(rank, twins, clip, tolerance) + waited(twins.ours)
    return found


def clipping_by_torch(rank: int) -> list[str]:
    return _clipping(rank, by_torch)


def clipping_by_hocket(rank: int) -> list[str]:
    return _clipping(rank, by_hocket)


def clipping_by_foreach(rank: int) -> list[str]:
    return _clipping(rank, by_foreach)


def clipping_by_hand(rank: int) -> list[str]:
    return _clipping(rank, by_hand)


def without_clipping(rank: int) -> list[str]:
    found = []
    for plan in PLANS:
        twins = in_halves(Small, plan, unused=True)
        found += train(twins, rank)
    return found


def accumulating(rank: int) -> list[str]:
    """With no_sync, and without."""
    found = []
    for synchronising in (False, True):
        twins = in_halves(Plain, halved_plan)
        for step in range(STEPS):
            for model, optimizer, no_sync in twins.each():
                optimizer.zero_grad()
                for part in range(3):
                    x, y = batch(rank, 10 * step + part)
                    with contextlib.nullcontext() if synchronising or part == 2 else no_sync():
                        (functional.cross_entropy(model(x), y) / 3).backward()
            found += clip_alike(twins, by_torch)
            for optimizer in twins.optimizers:
                optimizer.step()
        found += twins.differences()
        found += [] if synchronising else waited(twins.ours)
    return found


def _scaled(rank: int, order: float | None) -> list[str]:
    """With GradScaler, and clipped by a norm of an ``order``; None: not clipped."""
    twins = in_halves(Plain, halved_plan)
    scalers = [torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3) for _ in range(2)]
    found = []
    for step in range(STEPS):
        x, y = batch(rank, step)
        if step == 5 and rank == 0:
            x = x * float("inf")  # every rank has to leave this step out
        for (model, optimizer, _), scaler in zip(twins.each(), scalers, strict=True):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            if order is not None:
                scaler.unscale_(optimizer)
        if order is not None:
            # In the first steps unscale_ has gradients arrive: nobody hears of norms that torch takes then.
            how = "each" if order == 2 else "hocket"
            found += clip_alike(twins, _by_order(order, how), _most(order), order)
        for optimizer, scaler in zip(twins.optimizers, scalers, strict=True):
            scaler.step(optimizer)
            scaler.update()
        scales = [scaler.get_scale() for scaler in scalers]
        found += [] if scales[0] == scales[1] else [f"step {step}: scales {scales}"]
    # BatchNorm's statistics are not finite after that batch, and nan is not equal to nan.
    return found + [d for d in twins.differences() if "running" not in d] + waited(twins.ours)


def scaled(rank: int) -> list[str]:
    return _scaled(rank, None)


def scaled_and_clipped(rank: int) -> list[str]:
    return _scaled(rank, 2.0)


def scaled_and_clipped_by_other_orders(rank: int) -> list[str]:
    return _scaled(rank, 1.0) + _scaled(rank, math.inf)


def unused_parameters(rank: int) -> list[str]:
    twins = in_halves(Branches, halved_plan, unused=True)
    found = []
    for step in range(STEPS):
        x = torch.randn(3, 6, generator=torch.Generator().manual_seed(100 * rank + step))
        left = (step + rank) % 2 == 0 if step % 3 else True  # some steps: not the same on all ranks
        for model, optimizer, _ in twins.each():
            optimizer.zero_grad()
            model(x, left).square().sum().backward()
        found += clip_alike(twins, by_torch)
        for optimizer in twins.optimizers:
            optimizer.step()
        for (name, a), b in zip(twins.ddp.module.named_parameters(), twins.ours.parameters(), strict=True):
            if (a.grad is None) != (b.grad is None):
                found.append(f"step {step}: {name}.grad is {a.grad} and {b.grad}")
    return found + twins.differences()


def shared_frozen_functional(rank: int) -> list[str]:
    return clipped(rank, in_halves(Small, halved_plan, unused=True))


def several_types(rank: int) -> list[str]:
    def slow(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.003, momentum=0.9)

    found = []
    for plan in PLANS:
        twins = in_halves(Odd, plan, optimize=slow)
        for step in range(6):
            x = torch.randn(4, 6, generator=torch.Generator().manual_seed(10 * rank + step))
            for model, optimizer, _ in twins.each():
                optimizer.zero_grad()
                model(x).backward()
            # Norms of bfloat16 are told in it.
            norm = by_torch(twins.ours, None)
            nn.utils.clip_grads_with_norm_(twins.ddp.parameters(), 0.3, norm)
            for optimizer in twins.optimizers:
                optimizer.step()
        found += twins.differences() + waited(twins.ours)
    return found


def in_fewer_bytes(rank: int) -> list[str]:
    """Gradients travel as bfloat16, and norms are of what comes of that."""
    twins = ShortTwins(Plain, sgd, torch.bfloat16, plan=halved_plan(Plain()))
    return clipped(rank, twins) + waited(twins.ours)


def norms_on_one_rank(rank: int) -> list[str]:
    """Rank 0 logs norms, in some steps those of some parameters, before the step and after it."""
    twins = in_halves(Plain, halved_plan)
    found = []
    for step in range(STEPS):
        x, y = batch(rank, step)
        norms = []
        for model, optimizer, _ in twins.each():
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            shown = list(model.parameters())[step % 3 :]
            if rank == 0 and step % 4:
                norms.append(float(nn.utils.get_total_norm([p.grad for p in shown])))
            optimizer.step()
            if rank == 0 and step % 3:
                norms.append(float(shown[0].grad.norm()))
        half = len(norms) // 2
        if not all(
            math.isclose(*pair, rel_tol=1e-5) for pair in zip(norms[:half], norms[half:], strict=True)
        ):
            found.append(f"step {step}: {norms}")
    return found + twins.differences() + waited(twins.ours)


def read_after_scaling(rank: int) -> list[str]:
    """Scaled several times, by numbers and tensors that change afterwards, then looked at."""
    twins = in_halves(Plain, halved_plan)
    found = []
    for step in range(STEPS):
        x, y = batch(rank, step)
        seen = []
        for model, optimizer, _ in twins.each():
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            factor = torch.tensor(0.7)
            gradients = [p.grad for p in model.parameters()]
            torch._foreach_mul_([*gradients, torch.ones(3)], factor)
            factor.fill_(100.0)
            for g in gradients:
                g.div_(3)
            gradients[0].mul_(torch.tensor(2.0, dtype=torch.float64))
            del gradients, g
            norms = [float(p.grad.norm()) for p in model.parameters()]
            seen.append((norms, [p.grad.clone() for p in model.parameters()] if step % 2 else []))
            optimizer.step()
        (theirs, their_values), (ours, our_values) = seen
        found += differing(f"gradients of step {step}", their_values, our_values)
        found += differing(f"norms of step {step}", torch.tensor(theirs), torch.tensor(ours), 1e-6)
    return found + twins.differences()


def _most(order: float) -> float:
    """A norm below that of each step's gradients."""
    return {1.0: 3.0, 2.0: 0.3, math.inf: 0.02}.get(order, 0.1)


def _by_order(order: float, how: str) -> Clip:
    def clip(model: nn.Module, _: object) -> torch.Tensor:
        if how == "hocket":
            return hocket.clip_grad_norm_(model, _most(order), order)
        return nn.utils.clip_grad_norm_(model.parameters(), _most(order), order, foreach=how == "foreach")

    return clip


def _clipped_by_order(rank: int, twins: Twins, order: float, how: str, tolerance: float = 0.0) -> list[str]:
    found = []
    for step in range(STEPS):
        x, y = batch(rank, step)
        for model, optimizer, _ in twins.each():
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
        found += clip_alike(twins, _by_order(order, how), _most(order), order)
        for optimizer in twins.optimizers:
            optimizer.step()
    return found + twins.differences(tolerance)


def norms_of_other_orders(rank: int) -> list[str]:
    """Those that shares tell of wait for no gradient; others do."""
    found = []
    for order in (1.0, math.inf):
        for how, plan in zip(("each", "foreach", "hocket"), PLANS, strict=True):
            twins = in_halves(Plain, plan)
            found += _clipped_by_order(rank, twins, order, how) + waited(twins.ours)
    twins = in_halves(Plain, halved_plan)
    found += _clipped_by_order(rank, twins, 3.0, "each")
    return found if waited(twins.ours) else [*found, "norms of order 3 did not wait"]


def orders_that_change(rank: int) -> list[str]:
    """Norms that rank 0 alone takes, of an order that comes when learning is over, of what was scaled."""
    twins = in_halves(Plain, halved_plan)
    found = []
    for step in range(STEPS):
        x, y = batch(rank, step)
        told = []
        for model, optimizer, _ in twins.each():
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            gradients = [p.grad for p in model.parameters()]
            torch._foreach_mul_(gradients, -0.3)
            order = 1 if step > 5 else math.inf
            told.append([float(g.norm(order)) for g in gradients] if rank == 0 else [])
            del gradients
            optimizer.step()
        theirs, ours = (torch.tensor(norms) for norms in told)
        found += differing(f"norms of step {step}", theirs, ours, 1e-6 if step > 5 else 0.0)
    return found + twins.differences()


def no_number_among_norms(rank: int) -> list[str]:
    """A gradient that is no number on one rank makes no number of every rank's largest."""
    twins = in_halves(Plain, one_bucket)
    found = _clipped_by_order(rank, twins, math.inf, "each")
    x, y = batch(rank, 50)
    for model, optimizer, _ in twins.each():
        optimizer.zero_grad()
        outputs = model(x)
        loss = functional.cross_entropy(outputs, y)
        if rank:
            outputs.register_hook(lambda g: g.index_fill(1, torch.tensor([2]), float("nan")))
        loss.backward()
        norms = [float(p.grad.norm(math.inf)) for p in model.parameters()]
        if not all(math.isnan(norm) for norm in norms[:-1]):
            found.append(f"{type(model).__name__}: {norms}")
    return found


def other_norms(rank: int) -> list[str]:
    """Of the largest element, by DDP's own norm, and clipping by value, which waits."""
    twins = in_halves(Plain, halved_plan)
    for step in range(STEPS):
        x, y = batch(rank, step)
        for model, optimizer, _ in twins.each():
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            if step % 2:
                nn.utils.clip_grad_norm_(model.parameters(), 0.1, math.inf)
            else:
                nn.utils.clip_grad_value_(model.parameters(), 0.01)
            optimizer.step()
    return twins.differences()


def not_finite(rank: int) -> list[str]:
    return [line for order in (2.0, 1.0, math.inf) for line in _not_finite(rank, order)]


def _not_finite(rank: int, order: float) -> list[str]:
    """An infinite gradient on one rank is an error on all, and nothing has changed."""
    twins = in_halves(Plain, halved_plan)
    found = _clipped_by_order(rank, twins, order, "each")
    x, y = batch(rank, 50)
    for model, optimizer, _ in twins.each():
        optimizer.zero_grad()
        (functional.cross_entropy(model(x), y) * (float("inf") if rank else 1.0)).backward()
        try:
            nn.utils.clip_grad_norm_(model.parameters(), 0.3, order, error_if_nonfinite=True)
            found.append(f"{type(model).__name__}: no error")
        except RuntimeError as error:
            found += [] if "non-finite" in str(error) else [str(error)]
        optimizer.zero_grad()
    again = _clipped_by_order(rank, twins, order, "each")
    return found + [d for d in again if "running" not in d]


CASES: Sequence[Callable[[int], list[str]]] = (
    clipping_by_torch,
    clipping_by_hocket,
    clipping_by_foreach,
    clipping_by_hand,
    without_clipping,
    accumulating,
    scaled,
    scaled_and_clipped,
    scaled_and_clipped_by_other_orders,
    unused_parameters,
    shared_frozen_functional,
    several_types,
    in_fewer_bytes,
    norms_on_one_rank,
    read_after_scaling,
    other_norms,
    norms_of_other_orders,
    orders_that_change,
    no_number_among_norms,
    not_finite,
)


def several(rank: int, world: int, names: Sequence[str]) -> dict[str, list[str]]:
    return {case.__name__: case(rank) for case in CASES if case.__name__ in names}


def several_ranks(rank: int, world: int) -> list[str]:
    found = clipped(rank, in_halves(Plain, halved_plan), tolerance=1e-6)
    for order in (1.0, math.inf):
        found += _clipped_by_order(rank, in_halves(Plain, halved_plan), order, "each", tolerance=1e-6)
    return found + clipped(rank, in_halves(Small, one_bucket, unused=True), tolerance=1e-6)


class Late(nn.Module):
    """Layers that take as long as the rank says, the first ones least of all to be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(256, 256) for _ in range(4)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
            time.sleep(0.02)
        return x


def gathered_late(rank: int, world: int) -> list[str]:
    """Where every gather is held up, the next forward pass begins before the last one has arrived."""
    torch.manual_seed(0)
    model = Late()
    names = [name for name, _ in model.named_parameters()]
    reductions = tuple(Reduction(parameters=(name,), window="forward", halves=True) for name in names)
    plan = Plan(policy="late", model="", architecture="allreduce", reductions=reductions, compute_order=None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    hocket.distribute(model, optimizer, plan=plan)
    gather = GlooGroup.gather_shares

    def held_up(group: GlooGroup, tensor: torch.Tensor) -> Any:
        time.sleep(0.01)
        return gather(group, tensor)

    GlooGroup.gather_shares = held_up  # type: ignore[method-assign]
    for step in range(12):
        optimizer.zero_grad()
        model(torch.full((4, 256), 0.1 + rank + step)).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
    model.hocket.flush()
    spans = model.hocket.timeline.spans
    forward = [(s.start_s, s.end_s) for s in spans if s.kind == "forward"]
    gathers = [s for s in spans if s.name.endswith("(gather)")]
    beside = [g for g in gathers if any(begin < g.end_s and g.start_s < end for begin, end in forward)]
    found = waited(model)
    if not len(gathers) / 4 < len(beside):
        found.append(f"{len(beside)} of {len(gathers)} gathers are beside a forward pass")
    return found


def planned(rank: int, world: int, how: str) -> list[Any]:
    """Whether a plan in halves is made, and what explain() says of it."""
    twins = Twins(Plain, sgd, plan="caramel", network=hocket.Network(bandwidth_bps=1e6, num_workers=2))
    for step in range(9):
        x, y = batch(rank, step)
        for model, optimizer, _ in twins.each():
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            if how.startswith("clipped") or (how == "logged on one" and rank == 0):
                order = math.inf if how.endswith("by the largest") else 2.0
                nn.utils.clip_grad_norm_(model.parameters(), 0.3 if how == "clipped" else 1e9, order)
            optimizer.step()
    plan = twins.ours.hocket.plan
    said = [line for line in twins.ours.hocket.explain().splitlines() if " in halves: " in line]
    differences = twins.differences(1e-6)
    return [plan.policy, any(r.halves for r in plan.reductions), len(said), differences]


def compiled(rank: int, world: int) -> list[str]:
    return clipped(rank, in_halves(Plain, halved_plan, compile=True))


def uneven(rank: int, world: int) -> list[str]:
    """Rank 1 has fewer batches, and takes part in the norms of the others."""
    twins = in_halves(Plain, halved_plan)
    for model, optimizer, _ in twins.each():
        with model.join():
            for step in range(8 - 3 * rank):
                x, y = batch(rank, step)
                optimizer.zero_grad()
                functional.cross_entropy(model(x), y).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.3)
                optimizer.step()
    return twins.differences(1e-6)


def failing(rank: int, world: int, how: str) -> str:
    """The error of the rank that is left, which waits for the norm."""
    model = Plain()
    optimizer = sgd(model)
    hocket.distribute(model, optimizer, plan=halved_plan(model), broadcast_buffers=False, timeout_s=120)
    try:
        for step in range(1000):
            x, y = batch(rank, step)
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            if rank == 1 and step == 7:
                if how == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                loss.register_hook(lambda _: os.kill(os.getpid(), signal.SIGKILL))
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.3)
            optimizer.step()
    except HocketError as error:
        return str(error)
    return "ended"
