"""What a rank of a managed job runs: a few steps of training, the ordinary loop."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist

import hocket


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer = hocket.distribute(model, optimizer, plan="ddp")
    batch, wanted = torch.randn(8, 64), torch.randn(8, 10)
    for _ in range(int(sys.argv[1])):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(batch), wanted).backward()
        optimizer.step()
    model.hocket.flush()
    print(f"weights {float(sum(p.sum() for p in model.parameters())):.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
