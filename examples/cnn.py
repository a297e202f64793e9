"""A convolutional network on several processes, over a network that is too slow for it.

    torchrun --nproc-per-node 2 examples/cnn.py
    hocket train --nproc-per-node 2 --timeline cnn.json examples/cnn.py

Nearly all of its parameters are in one fully connected layer, whose gradient is ready early in the backward
pass and needed late in the next forward pass: time enough to send it in, if nobody waits for it before. Two
things make a script distributed: every process draws batches of its own, and it calls ``hocket.distribute``.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

import hocket

CLASSES = 1000


def cnn() -> nn.Module:
    """Three convolutions, each normalized and pooled, and two fully connected layers: 38 MB of parameters."""
    layers: list[nn.Module] = []
    for channels, out_channels in itertools.pairwise((3, 32, 64, 128)):
        layers.append(nn.Conv2d(channels, out_channels, 3, padding=1))
        layers += [nn.BatchNorm2d(out_channels), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(8192, 1024), nn.ReLU(), nn.Linear(1024, CLASSES))


def synthetic_images(count: int) -> TensorDataset:
    """Noise with labels to memorize: images (count, 3, 64, 64), the same in every process."""
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(count, 3, 64, 64, generator=generator)
    return TensorDataset(images, torch.randint(CLASSES, (count,), generator=generator))


def batches(dataset: Dataset, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches without end, from this process's share of the data, which is another one each epoch."""
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size, sampler=sampler, drop_last=True)
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        yield from loader


def plan_in_force(model: nn.Module) -> str:
    """The plan that trains, and whether it stays: the first steps try others beside DDP's."""
    if not hasattr(model, "hocket"):
        return ""
    return f"  plan {model.hocket.plan.policy} {'stays' if model.hocket.settled else 'is being tried'}"


def main() -> None:
    """Train for the steps that are asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=32, help="of each process")
    parser.add_argument("--ddp", action="store_true", help="DistributedDataParallel, to compare with")
    args = parser.parse_args()

    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:  # plain python: a world of one
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

    torch.manual_seed(0)
    model = cnn()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=args.steps)
    if args.ddp:
        model = DistributedDataParallel(model)
    else:
        model, optimizer = hocket.distribute(model, optimizer)

    data = batches(synthetic_images(512), args.batch_size)
    steps_per_line, begun = max(1, args.steps // 10), time.perf_counter()
    for step in range(1, args.steps + 1):
        images, labels = next(data)
        loss = cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if dist.get_rank() == 0 and step % steps_per_line == 0:
            now = time.perf_counter()
            rate = steps_per_line * args.batch_size * dist.get_world_size() / (now - begun)
            print(
                f"step {step}  loss {loss.item():.6f}  {rate:.1f} examples/s{plan_in_force(model)}",
                flush=True,
            )
            begun = now

    if not args.ddp:
        model.hocket.flush()  # the last step's transfers may still be on their way
        if dist.get_rank() == 0:
            print(model.hocket.explain())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
