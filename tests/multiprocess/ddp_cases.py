"""Behaviours that DistributedDataParallel's own tests name and no other case shows: the same results."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence

from tests.multiprocess.setups import sgd
from tests.multiprocess.twins import Twins, differing

STEPS = 8
Loss = Callable[[nn.Module, int], torch.Tensor]


def drawn(rank: int, step: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1000 * rank + step))


def trained(
    rank: int,
    make: Callable[[], nn.Module],
    loss_of: Callable[[nn.Module, int], torch.Tensor],
    **options: Any,
) -> list[str]:
    """The usual loop; gradients are compared in every third step, and everything in the end."""
    twins = Twins(make, options.pop("optimize", sgd), **options)
    found = []
    for step in range(STEPS):
        gradients: list[list[torch.Tensor | None]] = []
        for model, optimizer, _ in twins.each():
            torch.manual_seed(100 * rank + step)  # dropout is each rank's own
            optimizer.zero_grad()
            loss_of(model, step).backward()
            if step % 3 == 2:
                gradients.append([None if p.grad is None else p.grad.clone() for p in model.parameters()])
            optimizer.step()
        if gradients:
            found += differing(f"gradients of step {step}", *gradients)
    return found + twins.differences()


class Layers(nn.Module):
    """Three layers, of which ``used`` says which run."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, used: str = "all") -> torch.Tensor:
        x = self.first(x).relu()
        if used == "all":
            x = self.second(x)
        return x if used == "first" else self.third(x)


@dataclass
class Output:
    """What a model returns beside tuples and dicts."""

    logits: torch.Tensor
    hidden: torch.Tensor


class Nested(Layers):
    """Returns tensors in containers in containers."""

    def forward(self, x: torch.Tensor, used: str = "all") -> Any:
        hidden = self.first(x).relu()
        y = self.third(self.second(hidden))
        return {
            "parts": (y, [hidden, {"mean": y.mean()}]),
            "none": None,
            "made": Output(y, hidden),
            "text": "x",
        }


def outputs_in_containers(rank: int) -> list[str]:
    def loss(model: nn.Module, step: int) -> torch.Tensor:
        out = model(drawn(rank, step, 4, 8))
        return out["parts"][0].square().mean() + out["parts"][1][1]["mean"] + out["made"].hidden.mean()

    return trained(rank, Nested, loss)


class TwoHeads(Layers):
    """Two outputs of parameters of their own."""

    def forward(self, x: torch.Tensor, used: str = "all") -> Any:
        hidden = self.first(x).relu()
        return self.second(hidden), self.third(hidden)


def outputs_without_a_loss(rank: int) -> list[str]:
    """One output takes no part in some steps, on one rank only in others."""

    def loss(model: nn.Module, step: int) -> torch.Tensor:
        one, two = model(drawn(rank, step, 4, 8))
        drop = step % 4 == 1 or (step % 4 == 3 and rank == 1)
        return one.square().mean() + (0 if drop else two.square().mean())

    return trained(rank, TwoHeads, loss, unused=True)


class Keywords(Layers):
    """Takes inputs in every form."""

    def forward(
        self, x: Any, used: Any = None, *more: Any, scale: float = 1.0, **named: torch.Tensor
    ) -> torch.Tensor:
        pair, mapped = x
        y = self.first(pair) + self.second(mapped["x"]) * scale
        return self.third(y + sum(more) + sum(named.values()))


def inputs_in_every_form(rank: int) -> list[str]:
    def loss(model: nn.Module, step: int) -> torch.Tensor:
        x = drawn(rank, step, 4, 8)
        return model((x, {"x": x}), None, x, 2, scale=0.5, also=x).square().mean()

    return trained(rank, Keywords, loss)


class Alone(Layers):
    """Takes no input."""

    def forward(self) -> torch.Tensor:  # type: ignore[override]
        return self.third(self.second(self.first.weight).relu())


def no_input(rank: int) -> list[str]:
    return trained(rank, Alone, lambda model, step: (model() * (1 + rank + step)).mean(), unused=True)


def passes_before_one_backward_pass(rank: int) -> list[str]:
    def loss(model: nn.Module, step: int) -> torch.Tensor:
        return model(drawn(rank, step, 4, 8)).mean() - model(drawn(rank, step + 50, 4, 8)).square().mean()

    return trained(rank, Layers, loss)


def gradient_penalty(rank: int) -> list[str]:
    """A loss of the gradient by the input, which is differentiated again."""

    def loss(model: nn.Module, step: int) -> torch.Tensor:
        x = drawn(rank, step, 4, 8).requires_grad_()
        y = model(x).square().sum()
        (slope,) = torch.autograd.grad(y, x, create_graph=True)
        return y + slope.norm(dim=1).sub(1).square().mean()

    return trained(rank, Layers, loss)


def gradients_by_the_input(rank: int) -> list[str]:
    """As for an adversarial example: gradients by the input alone, then the step."""

    def loss(model: nn.Module, step: int) -> torch.Tensor:
        x = drawn(rank, step, 4, 8).requires_grad_()
        (slope,) = torch.autograd.grad(model(x).sum(), x)
        return model(x.detach() + 0.1 * slope.sign()).square().mean()

    return trained(rank, Layers, loss)


def gradients_without_a_backward_pass(rank: int) -> list[str]:
    """``torch.autograd.grad`` by the parameters stays on its rank, as with DistributedDataParallel."""
    twins = Twins(Layers, sgd)
    found = []
    for step in range(STEPS):
        seen = []
        for model, optimizer, _ in twins.each():
            if step % 2:
                y = model(drawn(rank, step, 4, 8)).square().mean()
                seen.append(list(torch.autograd.grad(y, list(model.parameters()))))
            optimizer.zero_grad()
            model(drawn(rank, step + 50, 4, 8)).square().mean().backward()
            optimizer.step()
        found += differing(f"step {step}", *seen) if seen else []
    return found + twins.differences()


def control_flow_that_changes_with_steps(rank: int) -> list[str]:
    def loss(model: nn.Module, step: int) -> torch.Tensor:
        return model(drawn(rank, step, 4, 8), ("all", "third", "first")[step % 3]).square().mean()

    return trained(rank, Layers, loss, unused=True)


def control_flow_that_differs_between_ranks(rank: int) -> list[str]:
    def loss(model: nn.Module, step: int) -> torch.Tensor:
        return model(drawn(rank, step, 4, 8), ("all", "third", "first")[(step + rank) % 3]).square().mean()

    return trained(rank, Layers, loss, unused=True)


class Twice(Layers):
    """Runs one layer twice."""

    def forward(self, x: torch.Tensor, used: str = "all") -> torch.Tensor:
        return self.third(self.second(self.first(self.first(x)).relu()))


def a_layer_that_runs_twice(rank: int) -> list[str]:
    return trained(rank, Twice, lambda model, step: model(drawn(rank, step, 4, 8)).square().mean())


class Recurrent(nn.Module):
    """An LSTM over packed sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(8, 6, 2, batch_first=True), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(x, torch.tensor([5, 4, 2]), batch_first=True)
        return self.head(self.lstm(packed)[1][0][-1])


def recurrent_layers(rank: int) -> list[str]:
    return trained(rank, Recurrent, lambda model, step: model(drawn(rank, step, 3, 5, 8)).square().mean())


def dropout(rank: int) -> list[str]:
    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 4))

    return trained(rank, make, lambda model, step: model(drawn(rank, step, 4, 8)).square().mean())


class Renormalised(nn.Module):
    """An embedding whose forward pass changes its weight."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(10, 8, max_norm=1.0), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.table(x).mean(1))


def weights_that_a_forward_pass_changes(rank: int) -> list[str]:
    def loss(model: nn.Module, step: int) -> torch.Tensor:
        return model((torch.arange(6).view(2, 3) + step) % 10).square().sum() * (1 + rank)

    return trained(rank, Renormalised, loss)


def parametrised_weights(rank: int) -> list[str]:
    def make() -> nn.Module:
        one, two = (
            parametrizations.weight_norm(nn.Linear(8, 8)),
            parametrizations.spectral_norm(nn.Linear(8, 4)),
        )
        return nn.Sequential(one, nn.ReLU(), two)

    return trained(rank, make, lambda model, step: model(drawn(rank, step, 4, 8)).square().mean())


class Rounded(torch.autograd.Function):
    """A function with a backward pass of its own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.round(decimals=2)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0].clamp(-0.1, 0.1)


def functions_of_their_own(rank: int) -> list[str]:
    return trained(
        rank, Layers, lambda model, step: Rounded.apply(model(drawn(rank, step, 4, 8))).square().mean()
    )


def hooks_on_modules(rank: int) -> list[str]:
    def make() -> nn.Module:
        model = Layers()
        model.first.register_forward_pre_hook(lambda _, args: (args[0] * 2,))
        model.second.register_forward_hook(lambda _, __, out: out + 1)
        model.third.register_full_backward_hook(lambda _, grads, __: (grads[0] * 0.5,))
        model.second.register_full_backward_pre_hook(lambda _, grads: (grads[0] * 3,))
        return model

    return trained(rank, make, lambda model, step: model(drawn(rank, step, 4, 8)).square().mean())


class Containers(nn.Module):
    """Parameters in lists and dicts."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
        self.named = nn.ModuleDict({"head": nn.Linear(8, 4)})
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(8)), nn.Parameter(torch.ones(()))])
        self.shifts = nn.ParameterDict({"one": nn.Parameter(torch.zeros(8))})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer, scale in zip(self.layers, self.scales, strict=True):
            x = (layer(x) * scale + self.shifts["one"]).relu()
        return self.named["head"](x)


def parameters_in_containers(rank: int) -> list[str]:
    return trained(rank, Containers, lambda model, step: model(drawn(rank, step, 4, 8)).square().mean())


def a_part_of_a_larger_model(rank: int) -> list[str]:
    """A backbone is distributed; the head behind it is each rank's own."""
    torch.manual_seed(rank)
    heads = nn.Linear(4, 2), nn.Linear(4, 2)
    heads[1].load_state_dict(heads[0].state_dict())
    head_of: dict[nn.Module, nn.Module] = {}

    def loss(model: nn.Module, step: int) -> torch.Tensor:
        if model not in head_of:
            head_of[model] = heads[len(head_of)]
        return head_of[model](model(drawn(rank, step, 4, 8))).square().mean()

    return trained(rank, Layers, loss) + differing("heads", heads[0].weight.grad, heads[1].weight.grad)


def two_models_of_one_loss(rank: int) -> list[str]:
    """Generator and discriminator, the latter frozen in the former's steps."""
    one, two = Twins(lambda: nn.Linear(8, 8), sgd), Twins(Layers, sgd)
    for step in range(STEPS):
        for (make, makes, _), (judge, judges, _) in zip(one.each(), two.each(), strict=True):
            plain = getattr(judge, "module", judge)
            made = make(drawn(rank, step, 4, 8))
            judges.zero_grad()
            (judge(made.detach()).mean() - judge(drawn(rank, step + 50, 4, 8)).mean()).backward()
            judges.step()
            for p in plain.parameters():
                p.requires_grad_(False)
            makes.zero_grad()
            (-judge(make(drawn(rank, step, 4, 8)))).mean().backward()
            makes.step()
            for p in plain.parameters():
                p.requires_grad_(True)
    return one.differences() + two.differences()


def half_precision(rank: int) -> list[str]:
    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(8, 8).bfloat16(), nn.ReLU(), nn.Linear(8, 4).bfloat16())

    return trained(rank, make, lambda model, step: model(drawn(rank, step, 4, 8).bfloat16()).square().mean())


def double_precision(rank: int) -> list[str]:
    return trained(
        rank,
        lambda: Layers().double(),
        lambda model, step: model(drawn(rank, step, 4, 8).double()).square().mean(),
    )


class Many(nn.Module):
    """Two thousand parameters of a few elements."""

    def __init__(self) -> None:
        super().__init__()
        self.each = nn.ParameterList([nn.Parameter(torch.full((3,), 1 + k / 2000)) for k in range(2000)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([p * x for p in self.each]).sum()


def two_thousand_parameters(rank: int) -> list[str]:
    return trained(rank, Many, lambda model, step: model(drawn(rank, step, 3)), plan="caramel")


def channels_last(rank: int) -> list[str]:
    def make() -> nn.Module:
        layers = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 2, 3))
        return layers.to(memory_format=torch.channels_last)

    def loss(model: nn.Module, step: int) -> torch.Tensor:
        return model(drawn(rank, step, 2, 3, 8, 8).to(memory_format=torch.channels_last)).square().mean()

    return trained(rank, make, loss)


def a_rank_that_is_slow(rank: int) -> list[str]:
    def loss(model: nn.Module, step: int) -> torch.Tensor:
        time.sleep(0.05 * rank * (step % 2))
        return model(drawn(rank, step, 4, 8)).square().mean()

    return trained(rank, Layers, loss)


def batches_of_other_sizes(rank: int) -> list[str]:
    return trained(
        rank, Layers, lambda model, step: model(drawn(rank, step, 1 + (step + rank) % 4, 8)).square().mean()
    )


def evaluation_between_steps(rank: int) -> list[str]:
    """In evaluation mode without gradients, on every rank."""
    seen: list[list[float]] = [[], []]
    twins = Twins(lambda: nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)), sgd)
    for step in range(STEPS):
        for values, (model, optimizer, _) in zip(seen, twins.each(), strict=True):
            model.train()
            optimizer.zero_grad()
            model(drawn(rank, step, 4, 8)).square().mean().backward()
            optimizer.step()
            model.eval()
            with torch.no_grad():
                values.append(model(drawn(0, step, 4, 8)).sum().item())
    return ([] if seen[0] == seen[1] else [f"evaluated {seen}"]) + twins.differences()


def a_loss_within_the_model(rank: int) -> list[str]:
    class Own(Layers):
        """Returns its loss, and logits that are detached."""

        def forward(self, x: torch.Tensor, used: str = "all") -> Any:
            logits = super().forward(x)
            return functional.cross_entropy(logits, torch.arange(4)), logits.detach()

    return trained(rank, Own, lambda model, step: model(drawn(rank, step, 4, 8))[0])


CASES = (
    outputs_in_containers, outputs_without_a_loss, inputs_in_every_form, no_input,
    passes_before_one_backward_pass, gradient_penalty, gradients_by_the_input,
    gradients_without_a_backward_pass, control_flow_that_changes_with_steps,
    control_flow_that_differs_between_ranks, a_layer_that_runs_twice, recurrent_layers, dropout,
    weights_that_a_forward_pass_changes, parametrised_weights, functions_of_their_own, hooks_on_modules,
    parameters_in_containers, a_part_of_a_larger_model, two_models_of_one_loss, half_precision,
    double_precision, two_thousand_parameters, channels_last, a_rank_that_is_slow,
    batches_of_other_sizes, evaluation_between_steps, a_loss_within_the_model,
)  # fmt: skip


def all_of_them(rank: int, world: int, only: list[str] | None = None) -> dict[str, list[str]]:
    """The differences of each case."""
    return {case.__name__: case(rank) for case in CASES if only is None or case.__name__ in only}
