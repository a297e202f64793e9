"""The convolutional network of cnn.py in a loop of Hugging Face Accelerate, with gradient accumulation.

    torchrun --nproc-per-node 2 examples/accelerate_cnn.py

What makes it Hocket's is the line with ``use_hocket``; ``--ddp`` leaves it out.
"""

from __future__ import annotations

import argparse
import itertools
import time

import torch
from accelerate import Accelerator
from cnn import cnn, plan_in_force, synthetic_images
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from hocket.integrations.accelerate import use_hocket


def main() -> None:
    """Train for the steps that are asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=32, help="of each process, each time")
    parser.add_argument("--accumulate", type=int, default=2, help="batches whose gradients make one step")
    parser.add_argument("--ddp", action="store_true", help="DistributedDataParallel, to compare with")
    args = parser.parse_args()

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=args.accumulate)
    if not args.ddp:
        use_hocket(accelerator)

    torch.manual_seed(0)
    model = cnn()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = DataLoader(synthetic_images(512), args.batch_size, drop_last=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    data = itertools.chain.from_iterable(itertools.repeat(loader))
    steps_per_line, begun = max(1, args.steps // 10), time.perf_counter()
    for step in range(1, args.steps + 1):
        for images, labels in itertools.islice(data, args.accumulate):
            with accelerator.accumulate(model):
                loss = cross_entropy(model(images), labels)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        if step % steps_per_line == 0:
            now = time.perf_counter()
            count = steps_per_line * args.accumulate * args.batch_size * accelerator.num_processes
            rate = count / (now - begun)
            accelerator.print(
                f"step {step}  loss {loss.item():.6f}  {rate:.1f} examples/s{plan_in_force(model)}"
            )
            begun = now

    if hasattr(model, "hocket"):
        model.hocket.flush()  # the last step's transfers may still be on their way
        accelerator.print(model.hocket.explain())
    accelerator.end_training()


if __name__ == "__main__":
    main()
