"""Jobs of a soak: a day of them, most of them programs of a shell that keep record of the GPUs they hold."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from pathlib import Path

from hocket.cluster.live.runnable_jobs import LiveJob
from tests.lab.soak.cluster import TYPES

HALF_BYTES = 8e9
"""The memory of half a GPU: a job has a half of each of its GPUs, or all of it."""

_PER_S = 0.8  # jobs, on an average of the day
_LONGEST_S = 15.0
# Each half of a GPU is a file that is locked by whoever holds it: the kernel lets go of it when the last
# process of the rank has ended, however it has, and says "double" of a GPU that another job still holds.
_RANK = """
folder=$1 job=$2 halves=$3 seconds=$4 end=$5
gpu=$(echo "$CUDA_VISIBLE_DEVICES" | cut -d, -f$((LOCAL_RANK + 1)))
say() { echo "$1 $HOCKET_GATE_ATTEMPT $RANK $gpu $(date +%s.%N)" >> "$folder/said/$job"; }
exec 8> "$folder/gpus/$gpu-0" 9> "$folder/gpus/$gpu-1"
case $halves in
2) flock -n 8 && flock -n 9 || say double ;;
1) flock -n 8 || flock -n 9 || say double ;;
esac
say begin
case $end in
stubborn) trap '' TERM ;;
leaves) setsid sleep 1000 & ;;
saves) trap 'sleep 0.3; exit 0' TERM ;;
esac
sleep "$seconds"
say done
[ "$end" != fails ] || exit 3
"""
_ENDS = {
    "ends": 0.53,
    "saves": 0.15,
    "stubborn": 0.06,
    "leaves": 0.06,
    "fails": 0.05,
    "wrong": 0.02,
    "replayed": 0.12,
}
# The speeds of a job on the types of GPUs that it accepts; none: it accepts all.
_SPEEDS: dict[tuple[tuple[str, float], ...], float] = {
    (): 0.5, ((TYPES[0], 1.0), (TYPES[1], 0.5)): 0.3, ((TYPES[0], 1.0),): 0.1, ((TYPES[1], 1.0),): 0.1,
}  # fmt: skip
_RANGED = 0.4  # of the jobs on several GPUs may have fewer
_PREEMPTIBLE = 0.6
_CHECKPOINT_S = 0.1
_LONG, _LONG_S = 0.08, 30.0  # of the programs take up to so long, and leave their GPUs to others
_LARGE = 0.01  # of the jobs are larger than the cluster
_CANCELLED = 0.06
_WIDTHS = {1: 0.6, 2: 0.25, 4: 0.1, 8: 0.05}


@dataclass(frozen=True, kw_only=True)
class Work:
    """A job of the day: when it is submitted, and when it is cancelled, if it is, in seconds from the start.

    ``end``: the way of its end; "large" where it is to be refused.
    """

    job: LiveJob
    end: str
    submit_s: float
    cancel_s: float | None


def day_of_jobs(folder: Path, length_s: float, num_gpus: int, draw: random.Random) -> list[Work]:
    """The jobs of a day of ``length_s``, most of them by day and few by night, as they arrive."""
    (folder / "said").mkdir()
    (folder / "gpus").mkdir()
    found = []
    for number in range(max(1, round(_PER_S * length_s))):
        share = draw.random()
        while draw.random() > 0.55 - 0.45 * math.cos(2 * math.pi * share):
            share = draw.random()
        found.append(_work(folder, number, share * length_s, num_gpus, draw))
    return sorted(found, key=lambda work: work.submit_s)


def rank_command(folder: Path, job: str, halves: int, seconds: float, end: str) -> tuple[str, ...]:
    """The program of each rank of a job, on so many halves of a GPU for so many seconds."""
    return ("sh", "-c", _RANK, "soak", str(folder), job, str(halves), f"{seconds:.2f}", end)


def _work(folder: Path, number: int, submit_s: float, num_gpus: int, draw: random.Random) -> Work:
    (end,) = draw.choices(list(_ENDS), list(_ENDS.values()))
    (gpus,) = draw.choices(list(_WIDTHS), list(_WIDTHS.values()))
    halves = draw.choice((1, 2))
    seconds = min(_LONGEST_S, draw.lognormvariate(math.log(3.0), 0.8))
    preemptible = draw.random() < _PREEMPTIBLE
    if end != "replayed" and draw.random() < _LONG:
        seconds, preemptible = draw.uniform(_LONGEST_S, _LONG_S), True
    (speeds,) = draw.choices(list(_SPEEDS), list(_SPEEDS.values()))
    fewest = draw.randint((gpus + 1) // 2, gpus) if draw.random() < _RANGED else gpus
    if draw.random() < _LARGE:
        end, gpus, fewest = "large", num_gpus + 1, num_gpus + 1
    name = f"{end}-{number}"
    rank = rank_command(folder, name, halves, seconds, end)
    command = {"wrong": ("nosuch", "train.py"), "replayed": None}.get(end, rank)
    job = LiveJob(
        id=name,
        model="m",
        gpus=gpus,
        gpus_min=fewest if fewest < gpus else None,
        speeds=dict(speeds),
        checkpoint_s=_CHECKPOINT_S if preemptible else None,
        iterations=max(2, round(seconds / 0.1)),
        arrival_s=0.0,
        forward_s=0.03,
        backward_s=0.05,
        size_bytes=2e5,
        memory_bytes=halves * HALF_BYTES,
        command=command,
    )
    cancelled = end != "large" and draw.random() < _CANCELLED
    return Work(
        job=job,
        end=end,
        submit_s=submit_s,
        cancel_s=submit_s + draw.uniform(0.0, 12.0) if cancelled else None,
    )
