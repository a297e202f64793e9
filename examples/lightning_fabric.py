"""The convolutional network of cnn.py in a loop of Lightning Fabric, with the norm of its gradients clipped.

    torchrun --nproc-per-node 2 examples/lightning_fabric.py

What makes it Hocket's is Fabric's ``strategy``; ``--ddp`` is Fabric's own.
"""

from __future__ import annotations

import argparse
import os
import time

import torch
from cnn import batches, cnn, plan_in_force, synthetic_images
from lightning.fabric import Fabric
from torch.nn.functional import cross_entropy

from hocket.integrations.lightning import HocketFabricStrategy


def main() -> None:
    """Train for the steps that are asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=32, help="of each process")
    parser.add_argument("--ddp", action="store_true", help="DistributedDataParallel, to compare with")
    args = parser.parse_args()

    strategy = "ddp" if args.ddp else HocketFabricStrategy()
    processes, nodes = (
        int(os.environ.get(f"{of}_WORLD_SIZE", "1")) for of in ("LOCAL", "GROUP")
    )  # torchrun's
    fabric = Fabric(accelerator="cpu", devices=processes, num_nodes=nodes, strategy=strategy)
    fabric.launch()

    torch.manual_seed(0)
    net = cnn()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    model, optimizer = fabric.setup(net, optimizer)

    data = batches(synthetic_images(512), args.batch_size)
    steps_per_line, begun = max(1, args.steps // 10), time.perf_counter()
    for step in range(1, args.steps + 1):
        images, labels = next(data)
        loss = cross_entropy(model(images), labels)
        optimizer.zero_grad()
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=10.0)
        optimizer.step()
        if fabric.global_rank == 0 and step % steps_per_line == 0:
            now = time.perf_counter()
            rate = steps_per_line * args.batch_size * fabric.world_size / (now - begun)
            print(
                f"step {step}  loss {loss.item():.6f}  {rate:.1f} examples/s{plan_in_force(net)}", flush=True
            )
            begun = now

    if not args.ddp:
        net.hocket.flush()  # the last step's transfers may still be on their way
        fabric.print(net.hocket.explain())


if __name__ == "__main__":
    main()
