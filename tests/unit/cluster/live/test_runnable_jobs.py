"""Files of live jobs: what no job has is refused in one line, whatever the file holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from hocket.cluster.live.runnable_jobs import read_live_jobs
from hocket.errors import HocketError

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
