"""A worker's script for test_kills.py: says each step that it takes, until there is a file ``enough``."""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
from torch import nn

import hocket

_LIMIT_S = 80.0


def main() -> None:
    torch.set_num_threads(1)
    worker, attempt = os.environ["RANK"], os.environ["HOCKET_ATTEMPT"]
    model = nn.Sequential(nn.Linear(4, 3, bias=False), nn.Linear(3, 2, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hocket.distribute(model, optimizer)
    deadline_s, step = time.monotonic() + _LIMIT_S, 0
    while not Path("enough").exists():
        optimizer.zero_grad()
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        step += 1
        said = f"worker {worker} attempt {attempt} process {os.getpid()} step {step}\n"
        os.write(1, said.encode())  # whole: both workers write here
        assert time.monotonic() < deadline_s, "nobody said that it is enough"
        time.sleep(0.02)


if __name__ == "__main__":
    main()
