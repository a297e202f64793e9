"""Made-up traces by the public schemas, of any size, by ``python -m`` this module and ``helios 1000 0``.

Users, virtual clusters, widths and states are uniform draws, durations log-uniform from a minute to a day;
every tenth job had an attempt before, where the schema has attempts. They are like no real cluster: they are
for reading and replaying files of known size and content.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

_BEGIN = datetime(2020, 4, 1)
_WIDTHS = (0, 1, 1, 1, 2, 4, 8)
_GAP_S = 240


class _MadeJob(NamedTuple):
    number: int
    user: str
    queue: str
    gpus: int
    state: int  # 0: it succeeded, 1: it failed, 2: it was cancelled
    submitted: datetime
    seconds: int
    again: bool


def _made_jobs(count: int, seed: int) -> Iterator[_MadeJob]:
    rng = random.Random(seed)
    submitted = _BEGIN
    for number in range(count):
        submitted += timedelta(seconds=rng.randrange(2 * _GAP_S))
        yield _MadeJob(
            number=number,
            user=f"u{rng.randrange(12)}",
            queue=f"vc{rng.randrange(3)}",
            gpus=rng.choice(_WIDTHS),
            state=rng.choice((0, 0, 1, 2)),
            submitted=submitted,
            seconds=round(60 * 1440 ** rng.random()),
            again=number % 10 == 0,
        )


def helios(jobs: Iterator[_MadeJob]) -> Iterator[str]:
    """Lines of ``cluster_log.csv``."""
    yield "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"
    for job in jobs:
        state = ("COMPLETED", "FAILED", "CANCELLED")[job.state]
        end = job.submitted + timedelta(seconds=job.seconds)
        times = f"{job.submitted},{job.submitted},{end},{job.seconds},0"
        yield f"{job.number},{job.user},{job.queue},{job.gpus},4,1,{state},{times}"


def philly(jobs: Iterator[_MadeJob]) -> Iterator[str]:
    """Lines of ``cluster_job_log``."""
    sign = "["
    for job in jobs:
        detail = [{"ip": f"m{job.number % 50}", "gpus": [f"gpu{k}" for k in range(job.gpus)]}]
        spans = [(0, 60), (120, job.seconds)] if job.again else [(0, job.seconds)]
        attempts = []
        for begin_s, seconds in spans:
            begin = job.submitted + timedelta(seconds=begin_s)
            end = begin + timedelta(seconds=seconds)
            attempts.append({"start_time": f"{begin}", "end_time": f"{end}", "detail": detail})
        record = {
            **{"status": ("Pass", "Failed", "Killed")[job.state], "vc": job.queue, "user": job.user},
            **{"jobid": f"application_{job.number}", "attempts": attempts},
            "submitted_time": f"{job.submitted}",
        }
        yield sign + json.dumps(record)
        sign = ","
    yield "]"


def slurm(jobs: Iterator[_MadeJob]) -> Iterator[str]:
    """Lines of ``sacct --parsable2``, with two types of GPUs and three qualities of service."""
    yield "JobID|User|Account|QOS|Priority|State|Submit|ElapsedRaw|AllocTRES"
    for job in jobs:
        state = ("COMPLETED", "FAILED", "CANCELLED by 0")[job.state]
        kind = ("a100", "v100")[job.number % 2]
        held = f"cpu=4,gres/gpu:{kind}={job.gpus},gres/gpu={job.gpus},node=1" if job.gpus else "cpu=4,node=1"
        qos = ("low", "normal", "high")[job.number % 3]
        who = f"{job.number}|{job.user}|{job.queue}|{qos}|{job.number % 3}"
        if job.again:
            yield f"{who}|NODE_FAIL|{job.submitted:%Y-%m-%dT%H:%M:%S}|60|{held}"
        yield f"{who}|{state}|{job.submitted:%Y-%m-%dT%H:%M:%S}|{job.seconds}|{held}"


MADE: dict[str, Callable[[Iterator[_MadeJob]], Iterator[str]]] = {
    "helios": helios,
    "philly": philly,
    "slurm": slurm,
}


def made_trace(kind: str, count: int, seed: int) -> Iterator[str]:
    """The lines of a trace of that kind and so many jobs."""
    return MADE[kind](_made_jobs(count, seed))


if __name__ == "__main__":
    for line in made_trace(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])):
        print(line)
