"""Models that ranks shard in tests, plans for them, and their twins under torch's own ``fully_shard``."""

from __future__ import annotations

import contextlib
import functools
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import hocket
from hocket.graph import Plan
from hocket.models.gpt import GPT2
from hocket.models.layers import GlobalAveragePool
from hocket.models.resnet18 import BasicBlock
from hocket.runtime.sharding.module_tree import blocks_of
from hocket.runtime.sharding.module_units import modules_of_units
from hocket.runtime.sharding.torch_default import default_plan
from tests.gpu.placement import device

Batch = tuple[torch.Tensor, torch.Tensor]


def gpt() -> nn.Module:
    """Four blocks, and an embedding that the root reads again at the end."""
    return GPT2(vocabulary=61, context=16, width=32, num_heads=2, num_layers=4)


def recomputing_gpt() -> nn.Module:
    """The same with activation checkpoints: each block is computed again in the backward pass."""
    model = gpt()
    for block in blocks_of(model):
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)  # type: ignore[method-assign]
    return model


def resnet() -> nn.Module:
    """ResNet-18's blocks, narrower and fewer, with BatchNorm."""
    return nn.Sequential(
        OrderedDict(
            root=nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()),
            stage_1=nn.Sequential(BasicBlock(8, 8, 1), BasicBlock(8, 8, 1)),
            stage_2=nn.Sequential(BasicBlock(8, 16, 2), BasicBlock(16, 16, 1)),
            pool=GlobalAveragePool(),
            logits=nn.Linear(16, 7),
        )
    )


MODELS: dict[str, Callable[[], nn.Module]] = {
    "gpt": gpt, "gpt, recomputing": recomputing_gpt, "resnet": resnet,
}  # fmt: skip


def made(kind: str) -> nn.Module:
    """A model of a kind, the same each time, where batches are."""
    torch.manual_seed(0)
    return MODELS[kind]().to(device())


def batch_of(kind: str, rank: int, step: int) -> Batch:
    """A batch of its own for every rank and step, where models are."""
    generator = torch.Generator().manual_seed(1000 * rank + step)
    if kind.startswith("gpt"):
        text = torch.randint(61, (2, 17), generator=generator)
        x, wanted = text[:, :-1], text[:, 1:].flatten()
    else:
        x, wanted = (
            torch.randn(4, 3, 16, 16, generator=generator),
            torch.randint(7, (4,), generator=generator),
        )
    return x.to(device()), wanted.to(device())


def loss_of(outputs: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(outputs.flatten(0, -2), wanted)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-2)


def batched(model: nn.Module) -> Plan:
    """Blocks in pairs, gathered two ahead, some of them kept after their forward pass."""
    plan = default_plan(model, 1)
    root, *blocks = plan.units
    pairs = [blocks[k] + blocks[k + 1] for k in range(0, len(blocks), 2)]
    units = (root, *pairs)
    last = len(units)
    return msgspec.structs.replace(
        plan,
        policy="batched",
        workers=None,
        units=units,
        forward_prefetch=tuple(tuple(range(k + 1, min(k + 3, last))) for k in range(last)),
        backward_prefetch=tuple(tuple(range(k - 1, max(k - 3, -1), -1)) for k in range(last)),
        reshard_after_forward=tuple(k % 2 == 1 for k in range(last)),
    )


def unhurried(model: nn.Module) -> Plan:
    """A unit a block, of which nothing is gathered before it is needed."""
    plan = default_plan(model, 1)
    none: tuple[tuple[int, ...], ...] = ((),) * len(plan.units)
    return msgspec.structs.replace(plan, policy="unhurried", forward_prefetch=none, backward_prefetch=none)


def default(model: nn.Module) -> Plan:
    return default_plan(model, 1)


PLANS: dict[str, Callable[[nn.Module], Plan]] = {
    "default": default, "batched": batched, "unhurried": unhurried,
}  # fmt: skip


class Pair:
    """``torchs`` under plain FSDP2, a unit a block, and ``ours`` by a plan; both begin alike.

    With ``same_units`` plain FSDP2 has the plan's: gloo adds up numbers of more than two ranks in an order
    that depends on where in the unit they are, so that units decide about last bits, of torch's own, too.
    """

    def __init__(
        self,
        kind: str,
        plan: str,
        *,
        compiled: bool = False,
        same_units: bool = False,
        mp_policy: MixedPrecisionPolicy | None = None,
    ) -> None:
        types = mp_policy or MixedPrecisionPolicy()
        self.kind = kind
        torchs = made(kind)
        if same_units:
            for unit in modules_of_units(torchs, PLANS[plan](torchs).units):
                fully_shard(list(unit.modules) if len(unit.modules) > 1 else unit.modules[0], mp_policy=types)
        else:
            for block in blocks_of(torchs):
                fully_shard(block, mp_policy=types)
            fully_shard(torchs, mp_policy=types)
        ours = made(kind)
        optimizer = adamw(torchs.parameters())
        given = PLANS[plan](ours) if plan in PLANS else plan
        ours, optimizer_of_ours = hocket.shard(ours, adamw, plan=given, mp_policy=mp_policy)
        self.optimizers = optimizer, optimizer_of_ours
        self.plain = torchs, ours
        self.models: Any = self.plain
        if compiled:
            # Blocks of several sizes are one function to Dynamo, which takes sizes for symbols from the
            # second on, and Inductor fails on those of the ResNet, of torch's own sharding alone, too.
            self.models = [torch.compile(model, dynamic=False) for model in self.plain]

    @property
    def ours(self) -> Any:
        return self.plain[1]

    def each(self) -> Iterator[tuple[Any, torch.optim.Optimizer]]:
        yield from zip(self.models, self.optimizers, strict=True)

    def train(self, rank: int, steps: int, *, clipped: bool = False, first: int = 0) -> None:
        """The usual loop on both."""
        for step in range(first, first + steps):
            x, wanted = batch_of(self.kind, rank, step)
            for model, optimizer in self.each():
                optimizer.zero_grad()
                loss_of(model(x), wanted).backward()
                if clipped:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                optimizer.step()

    def differences(self) -> list[str]:
        """The names of parameters and buffers that are not the same bit by bit."""
        theirs, ours = (whole_state(model) for model in self.plain)
        assert theirs.keys() == ours.keys()
        return [name for name in theirs if not torch.equal(theirs[name], ours[name])]


def whole_state(model: nn.Module) -> dict[str, torch.Tensor]:
    """Whole parameters, and this rank's buffers."""
    return {name: whole(value) for name, value in model.state_dict().items()}


def whole(value: Any) -> torch.Tensor:
    tensor: torch.Tensor = value.full_tensor() if hasattr(value, "full_tensor") else value
    return tensor.detach().clone()


@contextlib.contextmanager
def refusal(said: list[str]) -> Iterator[None]:
    """Within, a refusal is noted, and nothing else passes."""
    try:
        yield
    except hocket.HocketError as error:
        said.append(str(error))
    else:
        said.append("accepted")
