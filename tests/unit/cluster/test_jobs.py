"""``hocket.jobs/1``: what is written reads back, and what is wrong is said in one line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hocket.cluster.jobs import Job, JobSet
from hocket.cluster.jobs_file import read_jobs, write_jobs
from hocket.errors import FormatError

ROW = {
    **{"id": "j0", "model": "resnet50", "gpus": 4, "iterations": 1200, "arrival_s": 3.0},
    **{"forward_s": 0.025, "backward_s": 0.0374, "size_bytes": 99200000, "memory_bytes": 3213000000},
}


def write(path: Path, *rows: dict[str, Any], **changes: Any) -> Path:
    path.write_text(json.dumps({"format": "hocket.jobs/1", "jobs": rows, **changes}))
    return path


def test_the_documented_file_is_read(tmp_path: Path) -> None:
    jobs = read_jobs(write(tmp_path / "jobs.json", ROW, ROW | {"id": "j1", "note": "unknown keys pass"}))
    assert [job.id for job in jobs.jobs] == ["j0", "j1"]
    assert msgspec.to_builtins(jobs.jobs[0]) == ROW


@pytest.mark.parametrize("ending", ["json", "json.zst", "json.gz"])
def test_what_is_written_reads_back(tmp_path: Path, ending: str) -> None:
    jobs = JobSet(jobs=(Job(**ROW), Job(**ROW | {"id": "é", "iterations": 1, "startup_s": 2.5})))
    write_jobs(jobs, tmp_path / f"jobs.{ending}")
    assert read_jobs(tmp_path / f"jobs.{ending}") == jobs


MALFORMED = [
    ({"id": ""}, "jobs[1].id: is empty"),
    ({"id": "j0"}, "jobs[1].id: 'j0' is a duplicate of jobs[0].id; ids are unique"),
    ({"id": 5}, "jobs[1].id: expected `str`"),
    ({"gpus": 0}, "jobs[1].gpus: 0 is not a whole number from 1 to 1000000 (job 'j1')"),
    ({"gpus": 2.5}, "jobs[1].gpus: expected `int`"),
    ({"gpus": True}, "jobs[1].gpus: expected `int`"),
    ({"iterations": -1}, "jobs[1].iterations: -1 is not a whole number from 1"),
    ({"arrival_s": -0.5}, "jobs[1].arrival_s: -0.5 is not a number of seconds between 0 and 1e9 (job 'j1')"),
    ({"arrival_s": 2e9}, "jobs[1].arrival_s: 2000000000.0 is not a number of seconds"),
    ({"startup_s": -1}, "jobs[1].startup_s: -1.0 is not a number of seconds between 0 and 1e9"),
    ({"forward_s": math.nan}, "jobs[1].forward_s: nan is not a finite number"),
    ({"forward_s": "1"}, "jobs[1].forward_s: expected `float`"),
    ({"forward_s": 0, "backward_s": 0}, "jobs[1].backward_s: is 0 and so is forward_s"),
    ({"size_bytes": -1}, "jobs[1].size_bytes: -1.0 is not a number of bytes between 0 and 2^53"),
    ({"memory_bytes": 1e300}, "jobs[1].memory_bytes: 1e+300 is not a number of bytes"),
]


@pytest.mark.parametrize(("changes", "message"), MALFORMED, ids=[message for _, message in MALFORMED])
def test_a_malformed_job_is_refused_in_one_line(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = write(tmp_path / "jobs.json", ROW, ROW | {"id": "j1"} | changes)
    with pytest.raises(FormatError) as refused:
        read_jobs(path)
    assert str(refused.value).startswith(f"{path}: {message}")
    assert "\n" not in str(refused.value)


def test_a_malformed_file_is_refused_in_one_line(tmp_path: Path) -> None:
    for document, message in (
        ({"format": "hocket.jobs/2", "jobs": [ROW]}, "format: 'hocket.jobs/2' is not 'hocket.jobs/1'"),
        ({"jobs": [ROW]}, "object missing required field `format`"),
        ({"format": "hocket.jobs/1", "jobs": []}, "jobs: is empty"),
        ({"format": "hocket.jobs/1", "jobs": {"id": 1}}, "jobs: expected `array`"),
        ({"format": "hocket.jobs/1"}, "object missing required field `jobs`"),
        ([ROW], "expected `object`"),
    ):
        path = tmp_path / "jobs.json"
        path.write_text(json.dumps(document))
        with pytest.raises(FormatError) as refused:
            read_jobs(path)
        assert message in str(refused.value)
    missing = {key: value for key, value in ROW.items() if key != "backward_s"}
    with pytest.raises(FormatError, match="missing required field `backward_s`"):
        read_jobs(write(tmp_path / "jobs.json", missing))
    (tmp_path / "jobs.json.gz").write_bytes(b"no gzip")
    with pytest.raises(FormatError, match="is not a gzip file"):
        read_jobs(tmp_path / "jobs.json.gz")


def test_job_sets_made_in_python_obey_the_same_rules() -> None:
    with pytest.raises(FormatError, match=r"job set: jobs\[0\].gpus: 0 is not"):
        JobSet(jobs=(Job(**ROW | {"gpus": 0}),))
