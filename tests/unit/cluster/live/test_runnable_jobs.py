"""Files of live jobs: what no job has is refused in one line, whatever the file holds."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hocket.cluster.cluster import Cluster
from hocket.cluster.gpu_type import GpuType
from hocket.cluster.live.runnable_jobs import (
    Attempt,
    GateAccess,
    KeptWork,
    environments,
    read_live_jobs,
)
from hocket.errors import HocketError
from hocket.launch.traffic import TRAFFIC_VARIABLE, Leader, Traffic
from tests.unit.cluster.live.clusters import live_job

JOB = (
    b'{"id": "a", "model": "m", "gpus": 1, "iterations": 1, "arrival_s": 0, "forward_s": 1, "backward_s": 1,'
    b' "size_bytes": 1, "memory_bytes": 1, "command": ["true"]%b}'
)


def written(folder: Path, more: bytes) -> Path:
    path = folder / "jobs.json"
    path.write_bytes(b'{"format": "hocket.jobs/1", "jobs": [' + JOB % more + b"]}")
    return path


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (b', "restart": 1', r"jobs\[0\]: field 'restart' is unknown; did you mean 'restarts'"),
        (b', "\xe6": 1', "is not JSON: 'utf-8' codec can't decode byte 0xe6"),
        (b', "x": ' + b"[" * 5000 + b"]" * 5000, "nested too deeply"),
    ],
)
def test_a_field_that_no_job_has_is_refused_in_a_line(tmp_path: Path, more: bytes, line: str) -> None:
    with pytest.raises(HocketError, match=line):
        read_live_jobs(written(tmp_path, more))


def test_a_job_without_them_is_read(tmp_path: Path) -> None:
    (job,) = read_live_jobs(written(tmp_path, b""), restarts=2)
    assert (job.id, job.restarts) == ("a", 2)


@pytest.mark.parametrize(("gpu", "speed"), [(0, 1.0), (1, 4.0)])
def test_a_replayed_job_computes_at_the_speed_of_its_gpus(gpu: int, speed: float) -> None:
    types = (GpuType(name="v100", num_gpus=1), GpuType(name="a100", num_gpus=1))
    job = live_job("a", forward_s=0.5, backward_s=1.0, speeds={"v100": 1.0, "a100": 4.0})
    (told,) = environments(
        Attempt(job=job, number=1, attempt=1, gpus=(gpu,)),
        Cluster(num_servers=2, gpus_per_server=1, gpu_types=types),
        leaders=[Leader("127.0.0.1:1", "rank 0 on node0")],
        gate=GateAccess(addresses=["127.0.0.1:2"], token="t", fingerprint="f"),
        devices=[("0",), ("1",)],
        kept_work=KeptWork("/kept", 0),
        chunk_bytes=1,
    )
    traffic = msgspec.json.decode(told[TRAFFIC_VARIABLE], type=Traffic)
    assert (traffic.forward_s, traffic.backward_s) == (0.5 / speed, 1.0 / speed)
