"""A script that workers run for test_serving_processes.py, as a user writes it; its case is an argument."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import hocket
from hocket.errors import HocketError
from tests.multiprocess.setups import Plain, batch

STEPS = 20
WORKER = int(os.environ.get("RANK", "0"))


def plain() -> nn.Module:
    """A model after training with the two-line script, whatever is behind it."""
    torch.distributed.init_process_group("gloo")
    torch.manual_seed(WORKER)
    model = Plain()
    model.layers[1] = nn.Identity()
    torch.manual_seed(0)
    if WORKER == 0:
        model.layers[0].reset_parameters()
        model.layers[4].reset_parameters()
        model.layers[5].reset_parameters()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    model, optimizer = hocket.distribute(model, optimizer)
    for step in range(model.hocket.first_step, STEPS):
        x, y = batch(WORKER, step)
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model


def parity() -> dict[str, object]:
    model = plain()
    values = {name: value.tolist() for name, value in model.state_dict().items()}
    return {"values": values, "explain": model.hocket.explain(), "arguments": sys.argv[2:]}


def paced() -> dict[str, object]:
    """Gradients of one and a rate of one, in steps that take a while: a value counts its updates."""
    model = nn.Sequential(nn.Linear(4, 3, bias=False), nn.Linear(3, 2, bias=False))
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    hocket.distribute(model, optimizer)
    Path(f"first{WORKER}").write_text(str(model.hocket.first_step))
    # On a busy machine one would be over when another begins.
    deadline = time.monotonic() + 80
    while len(list(Path().glob("first?"))) < int(os.environ["WORLD_SIZE"]) and time.monotonic() < deadline:
        time.sleep(0.05)
    for step in range(model.hocket.first_step, 3 * STEPS):
        optimizer.zero_grad()
        model(torch.ones(1, 4))
        sum(p.sum() for p in model.parameters()).backward()
        optimizer.step()
        Path(f"at{WORKER}").write_text(str(step))
        time.sleep(0.01 + 0.01 * WORKER)
    model.hocket.flush()
    return {"values": {name: value.tolist() for name, value in model.state_dict().items()}}


def fails() -> None:
    torch.distributed.init_process_group("gloo")  # nobody uses it, and it keeps nobody from coming again
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    hocket.distribute(model, optimizer)
    Path(f"pid{WORKER}").write_text(str(os.getpid()))
    attempt = int(os.environ["HOCKET_ATTEMPT"])
    deadline = time.monotonic() + 80
    for step in range(100_000):
        optimizer.zero_grad()
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        if WORKER == 1 and attempt == 0 and step == 20:
            if sys.argv[1] == "exits":
                sys.exit(1)
            if sys.argv[1] == "leaves":
                raise SystemExit(3)
            if sys.argv[1] == "hangs":  # within the pass, as in a driver, while other threads go on
                model.register_forward_pre_hook(lambda *_: time.sleep(1000))
                continue
            os.kill(os.getpid(), signal.SIGSTOP if sys.argv[1] == "stops" else signal.SIGKILL)
        if WORKER == 1 and attempt == 1 and step == 20:
            Path("again").write_text("")
            break
        if (WORKER == 0 and step > STEPS and Path("again").exists()) or time.monotonic() > deadline:
            break
    Path(f"steps{WORKER}").write_text(str(step))


def unable() -> None:
    """One worker fails before it joins, and the others' training would last."""
    if os.environ["UNABLE"] == str(WORKER):
        raise ImportError("there is no such module")
    fails()


def main() -> None:
    torch.set_num_threads(1)
    try:
        failing = {**dict.fromkeys(("fails", "exits", "leaves", "stops", "hangs"), fails), "unable": unable}
        result = {"parity": parity, "paced": paced, **failing}[sys.argv[1]]()
    except HocketError as error:
        Path(f"error{WORKER}").write_text(str(error))
        raise
    Path(f"{WORKER}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
