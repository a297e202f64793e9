"""ResNet-18 on small images, with checkpoints from which an interrupted training goes on.

    torchrun --nproc-per-node 2 examples/resnet18_cifar.py
    hocket train --nproc-per-node 2 --max-restarts 3 examples/resnet18_cifar.py --checkpoint r.pt --fail-at 25

When a process fails all start anew, and go on from the last checkpoint as if nothing had happened: a step's
batch depends on its number alone. ``--fail-at`` kills one, to see that. With torchrun itself, restarts need
TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1: else the new processes may look for the old ones.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, relu
from torch.nn.parallel import DistributedDataParallel

import hocket

CLASSES = 10


def convolution(channels: int, out_channels: int, size: int, stride: int = 1) -> nn.Sequential:
    """A normalized convolution."""
    conv = nn.Conv2d(channels, out_channels, size, stride, padding=size // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out_channels))


class Block(nn.Module):
    """Two convolutions, added to what goes in (He et al., 2016)."""

    def __init__(self, channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.first = convolution(channels, out_channels, 3, stride)
        self.second = convolution(out_channels, out_channels, 3)
        self.shortcut = nn.Identity() if stride == 1 else convolution(channels, out_channels, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Maps (N, channels, H, W) to (N, out_channels, H / stride, W / stride)."""
        return relu(self.second(relu(self.first(x))) + self.shortcut(x))


def resnet18() -> nn.Module:
    """For 3 x 32 x 32 pixels: nothing is pooled before the blocks."""
    blocks = [Block(64, 64, 1), Block(64, 64, 1)]
    for channels in (64, 128, 256):
        blocks += [Block(channels, 2 * channels, 2), Block(2 * channels, 2 * channels, 1)]
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, CLASSES))
    return nn.Sequential(convolution(3, 64, 3), nn.ReLU(), *blocks, *head)


def batch_of(step: int, batch_size: int) -> tuple[Tensor, Tensor]:
    """This process's images (batch_size, 3, 32, 32) of a step, patterns under noise, and what they show."""
    patterns = torch.randn(CLASSES, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    mine = torch.Generator().manual_seed(step * dist.get_world_size() + dist.get_rank())
    labels = torch.randint(CLASSES, (batch_size,), generator=mine)
    return patterns[labels] + torch.randn(batch_size, 3, 32, 32, generator=mine), labels


def plan_in_force(model: nn.Module) -> str:
    """The plan that trains, and whether it stays: the first steps try others beside DDP's."""
    if not hasattr(model, "hocket"):
        return ""
    return f"  plan {model.hocket.plan.policy} {'stays' if model.hocket.settled else 'is being tried'}"


def main() -> None:
    """Train up to the last step, from the checkpoint on if there is one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=16, help="of each process")
    parser.add_argument("--ddp", action="store_true", help="DistributedDataParallel, to compare with")
    parser.add_argument("--checkpoint", type=Path, metavar="PATH", help="resume from here")
    parser.add_argument("--checkpoint-every", type=int, metavar="STEPS", default=10)
    parser.add_argument("--fail-at", type=int, metavar="STEP", help="kill the second process there, once")
    args = parser.parse_args()
    if args.fail_at and not args.checkpoint:
        parser.error("--fail-at needs a --checkpoint to go on from")

    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:  # plain python: a world of one
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    rank = dist.get_rank()

    torch.manual_seed(0)
    net = resnet18()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.steps)
    trained, done = {"model": net, "optimizer": optimizer, "scheduler": scheduler}, 0
    if args.checkpoint and args.checkpoint.exists():
        saved = torch.load(args.checkpoint, weights_only=True)
        done = saved["step"]
        for name, part in trained.items():
            part.load_state_dict(saved[name])
    model = DistributedDataParallel(net) if args.ddp else hocket.distribute(net, optimizer)[0]

    marker = args.checkpoint and args.checkpoint.with_suffix(".failed")
    begun = time.perf_counter()
    for step in range(done + 1, args.steps + 1):
        if step == args.fail_at and rank == 1 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        images, labels = batch_of(step, args.batch_size)
        loss = cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if rank == 0 and step % max(1, args.steps // 10) == 0:
            rate = (step - done) * args.batch_size * dist.get_world_size() / (time.perf_counter() - begun)
            print(
                f"step {step}  loss {loss.item():.6f}  {rate:.1f} examples/s{plan_in_force(net)}", flush=True
            )
        if rank == 0 and args.checkpoint and step % args.checkpoint_every == 0:
            state = {name: part.state_dict() for name, part in trained.items()}
            unfinished = args.checkpoint.with_suffix(".tmp")
            torch.save({"step": step, **state}, unfinished)
            os.replace(unfinished, args.checkpoint)  # whole or not at all, whenever a process is killed

    if not args.ddp:
        net.hocket.flush()  # the last step's transfers may still be on their way
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
