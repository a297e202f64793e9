"""Many runs of one case, each on two ranks forked from one process: torch takes longer to import than a case.

``python -m tests.delayed.rehearsal MODULE:FUNCTION RUNS FILE``: RUNS are keywords in JSON, a list of them;
FILE gets what the ranks of each returned, "no answer" where one failed, or "too late" where one hung.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hocket.ports import free_port

ROOT = Path(__file__).parents[2]
_WORLD = 2
_LIMIT_S = 480.0
NO_ANSWER, TOO_LATE = "no answer", "too late"


def rehearse(case: str, runs: Sequence[Mapping[str, Any]], timeout_s: float) -> list[Any]:
    """What the ranks of each of ``runs`` returned."""
    with tempfile.TemporaryDirectory() as folder:
        answers = Path(folder) / "answers.json"
        command = [sys.executable, "-m", "tests.delayed.rehearsal", case, json.dumps(runs), str(answers)]
        subprocess.run(command, cwd=ROOT, check=True, timeout=timeout_s)
        return list(json.loads(answers.read_text()))


def _run(case: str, options: Mapping[str, Any], folder: Path) -> Any:
    os.environ["MASTER_PORT"] = str(free_port("127.0.0.1"))
    ranks = []
    for rank in range(_WORLD):
        if (child := os.fork()) == 0:
            _be(rank, case, dict(options), folder / f"{rank}.json")
        ranks.append(child)
    end_s = time.monotonic() + _LIMIT_S
    while ranks and time.monotonic() < end_s:
        ranks = [child for child in ranks if os.waitpid(child, os.WNOHANG) == (0, 0)]
        time.sleep(0.05)
    for child in ranks:
        os.kill(child, 9)
        os.waitpid(child, 0)
    if ranks:
        return TOO_LATE
    answers = [folder / f"{rank}.json" for rank in range(_WORLD)]
    if not all(answer.exists() for answer in answers):
        return NO_ANSWER
    return [json.loads(answer.read_text()) for answer in answers]


def _be(rank: int, case: str, options: dict[str, Any], answer: Path) -> None:
    from tests.multiprocess.launch import call

    status = 1
    try:
        os.environ["RANK"] = str(rank)
        answer.write_text(json.dumps(call(case, options)))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _main(arguments: Sequence[str]) -> None:
    # Torch has as many threads as this says in each of ours, and sums are rounded as they are shared.
    os.environ |= {"OMP_NUM_THREADS": "1"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": str(_WORLD), "GLOO_SOCKET_IFNAME": "lo"}
    for name in ("torch", "torch.distributed", "torch.nn.parallel", "torch._dynamo", "torch.optim.optimizer"):
        importlib.import_module(name)
    case, runs, file = arguments
    found = []
    for options in json.loads(runs):
        with tempfile.TemporaryDirectory() as folder:
            found.append(_run(case, options, Path(folder)))
        print(options, json.dumps(found[-1])[:400], flush=True)
    Path(file).write_text(json.dumps(found))


if __name__ == "__main__":
    _main(sys.argv[1:])
