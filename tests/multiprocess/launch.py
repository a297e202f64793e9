"""Real ranks for tests: functions of a module of ours, run by one process a rank over gloo on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from hocket.ports import free_port
from tests.multiprocess.forked import ForkedRank

ROOT = Path(__file__).parents[2]


def command(case: str, folder: Path, arguments: Mapping[str, Any]) -> list[str]:
    """What a rank runs; what ``case`` returns is in ``folder`` then, as ``RANK.json``."""
    return [sys.executable, "-m", "tests.multiprocess.launch", case, str(folder), json.dumps(arguments)]


def _environments(world: int) -> list[dict[str, str]]:
    """The variables of each rank, which meet at a free port."""
    # A user's choices of plans stay out of it, also where no test's settings started this process.
    shared = {"HOCKET_CACHE": "off", **os.environ} | {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port("127.0.0.1")),
        "WORLD_SIZE": str(world),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "PYTHONFAULTHANDLER": "1",
    }
    return [shared | {"RANK": str(rank)} for rank in range(world)]


class NotOverError(AssertionError):
    """Ranks that had not ended in time."""


class Ranks:
    """Processes that run ``case`` ("module:function"), called with rank, world and ``arguments``.

    They are programs of their own, or else ``forked``: sooner there, but with nothing to do as they end.
    """

    def __init__(
        self, case: str, world: int, arguments: Mapping[str, Any], folder: Path, *, forked: bool = False
    ) -> None:
        self._folder = folder
        self.processes: list[subprocess.Popen[bytes] | ForkedRank] = []
        for rank, environment in enumerate(_environments(world)):
            output = folder / f"{rank}.out"
            if forked:
                given = case, str(folder), json.dumps(arguments)
                self.processes.append(ForkedRank(_write_result, given, environment, output))
                continue
            argv = command(case, folder, arguments)
            out, both = output.open("wb"), subprocess.STDOUT
            self.processes.append(subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=out, stderr=both))

    def wait(self, timeout_s: float) -> list[int]:
        """The exit statuses; every process has ended when this returns or raises."""
        deadline = time.monotonic() + timeout_s
        try:
            return [process.wait(max(0.1, deadline - time.monotonic())) for process in self.processes]
        except subprocess.TimeoutExpired:
            for process in self.processes:
                process.send_signal(signal.SIGABRT)  # it prints where each of its threads is
                process.wait(10)
            raise
        finally:
            self.end()

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait(10)

    def result(self, rank: int) -> Any:
        return json.loads((self._folder / f"{rank}.json").read_text())

    def output(self, rank: int) -> str:
        return (self._folder / f"{rank}.out").read_text(errors="replace")


def run(
    case: str, world: int = 2, timeout_s: float = 240, *, forked: bool = True, **arguments: Any
) -> list[Any]:
    """What ``case`` returned on each rank; fails with the output of every rank that failed."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = Ranks(case, world, arguments, Path(folder), forked=forked)
        try:
            statuses = ranks.wait(timeout_s)
        except subprocess.TimeoutExpired:
            said = "\n".join(f"rank {rank}:\n{ranks.output(rank)}" for rank in range(world))
            raise NotOverError(f"not over after {timeout_s} s\n{said}") from None
        failed = [f"rank {k} ended with {s}:\n{ranks.output(k)}" for k, s in enumerate(statuses) if s]
        assert not failed, "\n".join(failed)
        return [ranks.result(rank) for rank in range(world)]


def _device(seed: int | None, **options: Any) -> AbstractContextManager[object]:
    """The delayed device in force for ``seed``; for None processors are."""
    if seed is None:
        return contextlib.nullcontext()
    from tests.delayed.install import delayed

    return delayed(seed, **options)


def call(case: str, options: dict[str, Any]) -> Any:
    """What ``case`` returns on this rank.

    ``options`` are its keywords, but for ``mutation`` and ``delayed``: seeds to run it on the delayed device
    with, until it returns something. ``sums_up``: that device has collectives of its own; ``item_s``: what
    each piece of its work takes. ``backend``: of the process group; ``device``: the GPU that models are on.
    """
    import importlib

    import torch
    import torch.distributed as dist

    from tests.delayed.mutations import mutate
    from tests.gpu import placement

    if mutation := options.pop("mutation", None):
        mutate(mutation)
    torch.set_num_threads(1)
    if device := options.pop("device", ""):
        placement.DEVICES.append(torch.device(device))
        torch.cuda.set_device(device)
        torch.use_deterministic_algorithms(True, warn_only=True)
    dist.init_process_group(options.pop("backend", "gloo"))
    module, function = case.split(":")
    run_case = getattr(importlib.import_module(module), function)
    of_device = {name: options.pop(name) for name in ("sums_up", "item_s") if name in options}
    for seed in options.pop("delayed", [None]):
        with _device(seed, **of_device):
            result = run_case(dist.get_rank(), dist.get_world_size(), **options)
        if result:
            break
    if dist.is_initialized():
        dist.destroy_process_group()
    return result


def _write_result(case: str, folder: str, given: str) -> None:
    rank = os.environ["RANK"]
    (Path(folder) / f"{rank}.json").write_text(json.dumps(call(case, json.loads(given))))


if __name__ == "__main__":
    _write_result(*sys.argv[1:])
