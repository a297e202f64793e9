"""All that a user of DDP has, in one go: processes take longer to start than these cases take to run."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.multiprocess import training_cases as cases
from tests.multiprocess.setups import STEPS, sgd, trainable
from tests.multiprocess.twins import Twins

CASES = (
    cases.unlike_at_the_start,
    cases.accumulation,
    cases.accumulation_without_no_sync,
    cases.clipping_by_norm,
    cases.clipping_by_torch,
    cases.clipping_by_value,
    cases.scaler_and_autocast,
    cases.parameter_groups,
    cases.several_optimizers,
    cases.unused_parameters,
    cases.shared_frozen_functional,
    cases.batch_norm_statistics,
    cases.evaluation_on_one_rank,
    cases.state_at_any_moment,
    cases.copies,
    cases.averaged_parameters,
    cases.step_hooks,
    cases.closures,
    cases.zeroed_gradients,
    cases.gradients_that_are_read,
    cases.auto,
    cases.detached,
)


class Checkpointed(nn.Module):
    """Recomputes its parts in the backward pass; ``shared``: one part twice."""

    def __init__(self, reentrant: bool, shared: bool) -> None:
        super().__init__()
        self.reentrant, self.shared = reentrant, shared
        self.enter = nn.Linear(6, 6)
        self.one = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU())
        self.two = nn.Sequential(nn.Linear(6, 6), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.enter(x)
        x = checkpoint(self.one, x, use_reentrant=self.reentrant)
        x = checkpoint(self.two, x, use_reentrant=self.reentrant)
        return checkpoint(self.two, x, use_reentrant=self.reentrant) if self.shared else x


def checkpointing(rank: int, reentrant: bool, shared: bool) -> list[str]:
    # DDP itself refuses shared parameters in reentrant checkpoints; both gradients sum up all the same.
    def make() -> nn.Module:
        return Checkpointed(reentrant, shared)

    twins = Twins(make, sgd)
    reference = copy.deepcopy(twins.ours)
    ours = [(twins.ours, twins.optimizers[1])]
    both = ours if reentrant and shared else [(twins.ddp, twins.optimizers[0]), *ours]
    optimizer = sgd(reference)
    for step in range(STEPS):
        x = torch.randn(4, 6, generator=torch.Generator().manual_seed(100 * rank + step))
        for model, o in both:
            o.zero_grad()
            model(x).square().sum().backward()
            o.step()
        if reentrant and shared:
            optimizer.zero_grad()
            reference(x).square().sum().backward()
            for p in trainable(reference):
                p.grad.div_(dist.get_world_size())
                dist.all_reduce(p.grad)
            optimizer.step()
    if reentrant and shared:
        pairs = zip(reference.named_parameters(), twins.ours.parameters(), strict=True)
        return [name for (name, a), b in pairs if not torch.equal(a, b)]
    return twins.differences()


def parity(rank: int, world: int, *, without: Sequence[str] = ()) -> dict[str, list[str]]:
    """What differs in each case but those ``without``."""
    found: dict[str, Callable[[], list[str]]] = {
        case.__name__: (lambda case=case: case(rank)) for case in CASES if case.__name__ not in without
    }
    for reentrant in (False, True):
        for shared in (False, True):
            name = f"checkpointing reentrant={reentrant} shared={shared}"
            found[name] = lambda r=reentrant, s=shared: checkpointing(rank, r, s)
    return {name: case() for name, case in found.items()}
