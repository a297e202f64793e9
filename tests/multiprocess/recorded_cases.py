"""What ranks run for test_recorded_jobs.py: small jobs under torch's profiler, each rank's trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule

SIDE, ROWS = 32, 101  # rows that two ranks do not share out evenly


class Block(nn.Module):
    """Two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(SIDE, 4 * SIDE), nn.Linear(4 * SIDE, SIDE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))


class Model(nn.Module):
    """An embedding, four blocks and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(ROWS, SIDE)
        self.layers = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(SIDE, ROWS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def sharded(rank: int, world: int, *, kinds: list[str], folder: str) -> None:
    """Record steps of FSDP2, each of ``kinds`` in a folder: plain, kept, listed (prefetch lists) or bf16."""
    del world
    for kind in kinds:
        _sharded(kind, Path(folder) / kind / f"job.rank{rank}.json")


def _sharded(kind: str, path: Path) -> None:
    model = Model()
    options: dict[str, Any] = {"reshard_after_forward": False} if kind == "kept" else {}
    if kind == "bf16":
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, **options)
    fully_shard(model, **options)
    layers = list(model.layers)
    for k, layer in enumerate(layers if kind == "listed" else ()):
        layer.set_modules_to_forward_prefetch(layers[k + 1 : k + 3])
        layer.set_modules_to_backward_prefetch(layers[max(0, k - 2) : k][::-1])
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randint(0, ROWS, (4, 8))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten()).backward()
        optimizer.step()

    _record(step, path)


def compiled(rank: int, world: int, *, folder: str) -> None:
    """Record steps under DDP, whose backward pass compiled autograd runs."""
    del world
    torch._dynamo.config.optimize_ddp = "python_reducer"  # the one that goes with it
    wrapped = DistributedDataParallel(nn.Sequential(nn.Linear(SIDE, SIDE), nn.ReLU(), nn.Linear(SIDE, SIDE)))
    model = torch.compile(wrapped, backend="aot_eager")
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01)
    x = torch.randn(4, SIDE)

    def step() -> None:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        with torch._dynamo.compiled_autograd._enable(torch.compile(backend="aot_eager")):
            loss.backward()
        optimizer.step()

    _record(step, Path(folder) / f"job.rank{rank}.json")


def _record(step: Any, path: Path) -> None:
    plan = schedule(wait=2, warmup=1, active=2)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, schedule=plan) as profiler:
        for _ in range(5):
            step()
            profiler.step()
    profiler.export_chrome_trace(str(path))
