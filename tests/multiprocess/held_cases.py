"""Scripts that hold gradients or buffers by other names, and passes beside the one that is sent."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from hocket.errors import HocketError
from tests.multiprocess.odd_cases import STEPS, Layers, Statistics, adam, batch, loop, plain
from tests.multiprocess.twins import Twins, differing

HELD = "holds by other names"


def steps_of(rank: int, twins: Twins) -> Iterator[tuple[int, Any, nn.Module, Any, Any]]:
    """Each step's number and batch, for both models in turn: with its optimizer, and its no_sync."""
    for step in range(STEPS):
        for model, optimizer, no_sync in twins.each():
            yield step, batch(rank, step), model, optimizer, no_sync


def gradients_in_one_tensor(rank: int) -> list[str]:
    """Which is zeroed, looked at and scaled in their stead, also when the step has begun to wait."""
    twins = Twins(Layers, adam)
    flats: dict[int, torch.Tensor] = {}
    for model, _, _ in twins.each():
        parameters = list(model.parameters())
        flat = flats[id(model)] = torch.zeros(sum(p.numel() for p in parameters))
        pieces = flat.split([p.numel() for p in parameters])
        for p, piece in zip(parameters, pieces, strict=True):
            p.grad = piece.view_as(p)
    for _step, (x, y), model, optimizer, _ in steps_of(rank, twins):
        flat = flats[id(model)].zero_()
        functional.cross_entropy(model(x), y).backward()
        flat.mul_(0.1 / flat.norm())
        optimizer.step()
    return twins.differences() + differing("flat", *flats.values(), 0.0)


def gradients_in_a_list(rank: int) -> list[str]:
    """Which is made once and zeroed ever after."""
    twins = Twins(Layers, adam)
    lists: dict[int, list[Any]] = {}
    for step, (x, y), model, optimizer, _ in steps_of(rank, twins):
        if step:
            torch._foreach_zero_(lists[id(model)])
        functional.cross_entropy(model(x), y).backward()
        if not step:
            lists[id(model)] = [p.grad for p in model.parameters()]
        optimizer.step()
    return twins.differences()


def ordinary_loops_hold_none(rank: int) -> list[str]:
    twins = Twins(Layers, adam)
    found = loop(rank, twins)
    for _step, (x, y), model, optimizer, _ in steps_of(rank, twins):  # zeroed in place
        optimizer.zero_grad(set_to_none=False)
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    held = [HELD] if HELD in twins.ours.hocket.explain() else []
    return found + twins.differences() + held


def parameters_in_a_kept_state(rank: int) -> list[str]:
    """Which is asked for once, and saved after each step."""
    twins = Twins(Layers, adam)
    kept = {id(model): plain(model).state_dict() for model, _, _ in twins.each()}
    saved: dict[int, list[Any]] = {key: [] for key in kept}

    def save(_: int, model: nn.Module, __: Any) -> None:
        saved[id(model)].append({name: value.clone() for name, value in kept[id(model)].items()})

    found = loop(rank, twins, after=save)
    told = [] if HELD in twins.ours.hocket.explain() else ["nothing is said of it"]
    return found + differing("saved", *saved.values(), 0.0) + told


def a_pass_without_sync_in_between(rank: int) -> list[str]:
    """As penalties of perturbed inputs have it: of that pass only the input's gradient is wanted."""
    twins = Twins(Layers, adam)
    for _step, (x, y), model, optimizer, no_sync in steps_of(rank, twins):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        with no_sync():
            moved = torch.zeros_like(x, requires_grad=True)
            (slope,) = torch.autograd.grad(model(x + moved).square().sum(), moved)
        (loss + (slope.sign() * x).mean()).backward()
        optimizer.step()
    return twins.differences()


class Counting(Layers):
    """With a buffer that each forward pass moves, by what differs from rank to rank."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("strided", torch.arange(8.0)[::2])
        self.register_buffer("conjugate", torch.ones(2, dtype=torch.complex64).conj())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(x.detach().abs().mean())
        return super().forward(x)


def buffers_beside_a_pass_without_sync(rank: int) -> list[str]:
    twins = Twins(Counting, adam)
    for _step, (x, y), model, optimizer, no_sync in steps_of(rank, twins):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        with no_sync():
            other = model(-x).square().mean()
        (loss + other).backward()
        optimizer.step()
        plain(model).conjugate.mul_(1.5)
    return twins.differences()


def a_pass_without_sync_goes_back_later(rank: int) -> list[str]:
    """Its gradients are this rank's own, and travel with the next ones."""
    twins = Twins(Layers, adam)
    for step, (x, y), model, optimizer, no_sync in steps_of(rank, twins):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        with no_sync():
            other = model(-x).square().mean()
        loss.backward()
        other.backward()
        if step % 2:
            functional.cross_entropy(model(2 * x), y).backward()
        optimizer.step()
    return twins.differences()


class Choosy(Layers):
    """Refuses what is too large."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = super().forward(x)
        if x.abs().max() > 50:
            raise ValueError("too large")
        return found


def a_pass_that_raised(rank: int) -> list[str]:
    twins = Twins(Choosy, adam)
    for _step, (x, y), model, optimizer, no_sync in steps_of(rank, twins):
        optimizer.zero_grad()
        with contextlib.suppress(ValueError):
            model(100 * x)
        with no_sync():
            functional.cross_entropy(model(-x), y).backward()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return twins.differences()


class Impatient(Statistics):
    """Is interrupted in what is too large."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = super().forward(x)
        if x.abs().max() > 50:
            raise KeyboardInterrupt
        return found


def a_pass_that_was_interrupted(rank: int) -> list[str]:
    """While the runtime learns the model, and later; training goes on."""
    twins = Twins(Impatient, adam)
    for step, (x, y), model, optimizer, _ in steps_of(rank, twins):
        optimizer.zero_grad()
        if step in (1, 5):
            with contextlib.suppress(KeyboardInterrupt):
                model(100 * x)
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return twins.differences()


def hooks_of_users_on_compiled_steps(rank: int) -> list[str]:
    twins = Twins(Layers, adam, compile=True)

    def clamp(p: torch.Tensor) -> None:
        assert p.grad is not None
        p.grad.clamp_(-0.01, 0.01)

    for model in (twins.ddp, twins.ours):
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(clamp)
    loop(rank, twins)
    return twins.differences(1e-6)


def gradients_kept_over_inference_mode(rank: int) -> list[str]:
    twins = Twins(Layers, adam)
    for step, (x, y), model, optimizer, _ in steps_of(rank, twins):
        optimizer.zero_grad(set_to_none=step % 3 == 0)
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        with torch.inference_mode():
            model(x)
    return twins.differences()


def buffers_written_by_their_data(rank: int) -> list[str]:
    def move(_: int, model: nn.Module, __: Any) -> None:
        plain(model).centre.data.add_(0.01 * (rank + 1))

    return loop(rank, Twins(Statistics, adam), after=move)


def buffers_that_change_shape(rank: int) -> list[str]:
    twins = Twins(Statistics, adam)

    def replace(step: int, model: nn.Module, _: Any) -> None:
        if step == 4:
            plain(model).centre = torch.full((1,), 0.5)
        if step == 6:
            plain(model).norm.num_batches_tracked = None

    loop(rank, twins, after=replace)
    (theirs, _, _), (ours, _, _) = twins.each()
    return differing("", dict(plain(theirs).named_parameters()), dict(ours.named_parameters()), 0.0)


def a_model_of_another_type(_: int) -> list[str]:
    twins = Twins(Layers, adam)
    model, optimizer = twins.ours, twins.optimizers[1]
    model.double()
    x, y = batch(0, 0)
    functional.cross_entropy(model(x.double()), y).backward()
    try:
        optimizer.step()
    except HocketError as error:
        return [] if "is torch.float64 and was torch.float32 when" in str(error) else [str(error)]
    return ["it stepped"]


CASES = (
    gradients_in_one_tensor, gradients_in_a_list, parameters_in_a_kept_state, ordinary_loops_hold_none,
    a_pass_without_sync_in_between, buffers_beside_a_pass_without_sync, a_pass_without_sync_goes_back_later,
    a_pass_that_raised, a_pass_that_was_interrupted, hooks_of_users_on_compiled_steps,
    gradients_kept_over_inference_mode, buffers_written_by_their_data, buffers_that_change_shape,
    a_model_of_another_type,
)  # fmt: skip


def all_of_them(rank: int, _: int) -> dict[str, list[str]]:
    return {case.__name__: case(rank) for case in CASES}
