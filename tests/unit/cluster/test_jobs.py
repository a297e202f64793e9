"""``hocket.jobs/1``: what is written reads back, and what is wrong is said in one line."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.cluster.jobs import Batch, Job, JobSet
from hocket.cluster.jobs_file import read_jobs, write_jobs
from hocket.cluster.live.runnable_jobs import read_live_jobs
from hocket.errors import FormatError, HocketError, UnknownNameError

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


def test_a_misspelt_field_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "jobs.json", ROW, ROW | {"id": "j1", "priorty": 5})
    with pytest.raises(
        UnknownNameError, match=r"jobs\[1\]: field 'priorty' is unknown; did you mean 'priority'"
    ):
        read_jobs(file)
    with pytest.raises(UnknownNameError, match=r"field 'gpu_min' is unknown; did you mean 'gpus_min'"):
        read_jobs(write(tmp_path / "jobs.json", ROW | {"gpu_min": 2}))


@pytest.mark.parametrize("ending", ["json", "json.zst", "json.gz", "csv", "CSV.gz"])
def test_what_is_written_reads_back(tmp_path: Path, ending: str) -> None:
    jobs = JobSet(
        jobs=(
            Job(**ROW),
            Job(**ROW | {"id": "é", "iterations": 1, "startup_s": 2.5, "user": "ö", "priority": -2}),
            Job(**ROW | {"id": "j2", "gpus_min": 2}),
        )
    )
    write_jobs(jobs, tmp_path / f"jobs.{ending}")
    assert read_jobs(tmp_path / f"jobs.{ending}") == jobs


MALFORMED = [
    ({"id": ""}, "jobs[1].id: is empty"),
    ({"id": "j0"}, "jobs[1].id: 'j0' is a duplicate of jobs[0].id; ids are unique"),
    ({"id": 5}, "jobs[1].id: expected `str`"),
    ({"gpus": 0}, "jobs[1].gpus: 0 is not a whole number from 1 to 1000000 (job 'j1')"),
    ({"gpus": 2.5}, "jobs[1].gpus: expected `int`"),
    ({"gpus": True}, "jobs[1].gpus: expected `int`"),
    (
        {"gpus_min": 0},
        "jobs[1].gpus_min: 0 is not a whole number from 1 to gpus, the most it has, which are 4",
    ),
    (
        {"gpus_min": 5},
        "jobs[1].gpus_min: 5 is not a whole number from 1 to gpus, the most it has, which are 4; lower it, "
        "or raise gpus (job 'j1')",
    ),
    ({"gpus_min": 1.5}, "jobs[1].gpus_min: expected `int | null`"),
    ({"gpus_max": 8}, "jobs[1].gpus_max: is called gpus; name it so"),
    ({"min_gpus": 2}, "jobs[1].min_gpus: is called gpus_min; name it so"),
    ({"iterations": -1}, "jobs[1].iterations: -1 is not a whole number from 1"),
    ({"arrival_s": -0.5}, "jobs[1].arrival_s: -0.5 is not a number of seconds between 0 and 1e9 (job 'j1')"),
    ({"arrival_s": 2e9}, "jobs[1].arrival_s: 2000000000.0 is not a number of seconds"),
    ({"startup_s": -1}, "jobs[1].startup_s: -1.0 is not a number of seconds between 0 and 1e9"),
    ({"forward_s": math.nan}, "jobs[1].forward_s: nan is not a finite number"),
    ({"forward_s": "1"}, "jobs[1].forward_s: expected `float`"),
    ({"forward_s": 0, "backward_s": 0}, "jobs[1].backward_s: is 0 and so is forward_s"),
    ({"size_bytes": -1}, "jobs[1].size_bytes: -1.0 is not a number of bytes between 0 and 2^53"),
    ({"memory_bytes": 1e300}, "jobs[1].memory_bytes: 1e+300 is not a number of bytes"),
    ({"user": "a,b"}, "jobs[1].user: 'a,b' is no name of a user: give up to 100 characters that print"),
    ({"user": "*"}, "jobs[1].user: '*' is no name of a user"),
    ({"user": 3}, "jobs[1].user: expected `str`"),
    ({"priority": 1.5}, "jobs[1].priority: expected `int`"),
    ({"priority": 10**10}, "jobs[1].priority: 10000000000 is not a whole number between -1e9 and 1e9"),
    (
        {"speeds": {"A100": 1.0}},
        "jobs[1].speeds.A100: a type is named by small letters, digits",
    ),
    ({"speeds": {"a100": 0}}, "jobs[1].speeds.a100: 0.0 is not a number of times between 1e-06 and 1e6"),
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


texts = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=8)
seconds = st.floats(1e-9, 1e6)


@st.composite
def any_jobs(draw: st.DrawFn) -> JobSet:
    """A job set of every field that a job may have."""
    jobs = []
    for name in draw(st.lists(texts, min_size=1, max_size=4, unique=True)):
        forward_s, backward_s = draw(seconds), draw(seconds)
        sizes = draw(st.lists(st.floats(0, 1e9), max_size=3))
        batches = tuple(Batch(size_bytes=size, ready_s=backward_s, due_s=0.0) for size in sizes)
        row = {
            **{"id": name, "model": draw(texts), "gpus": draw(st.integers(1, 64))},
            **{"iterations": draw(st.integers(1, 10**12)), "arrival_s": draw(st.floats(0, 1e9))},
            **{"forward_s": forward_s, "backward_s": backward_s, "batches": batches},
            "size_bytes": sum(sizes) if sizes else draw(st.floats(0, 2.0**53)),
            **{"memory_bytes": draw(st.floats(0, 2.0**53)), "startup_s": draw(st.sampled_from([0.0, 2.5]))},
            "user": draw(st.sampled_from(["", "alice", "ö"])),
            "priority": draw(st.integers(-(10**9), 10**9)),
            "gpus_min": draw(st.sampled_from([None, 1])),
            "speeds": draw(st.dictionaries(st.sampled_from(["a100", "v100-32gb"]), st.floats(1e-6, 1e6))),
        }
        jobs.append(Job(**row))
    return JobSet(jobs=tuple(jobs))


@settings(max_examples=100)
@given(any_jobs())
def test_csv_holds_every_job(jobs: JobSet) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_jobs(jobs, f"{folder}/jobs.csv")
        assert read_jobs(f"{folder}/jobs.csv") == jobs


CSV = "id,model,gpus,iterations,arrival_s,forward_s,backward_s,size_bytes,memory_bytes\n"
CSV_ROW = "j0,resnet50,4,1200,3.0,0.025,0.0374,99200000,3213000000\n"


def test_csv_as_other_programs_write_it(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    write_jobs(JobSet(jobs=(Job(**ROW),)), tmp_path / "jobs.json")
    expected = read_jobs(tmp_path / "jobs.json")
    for text in (
        CSV + CSV_ROW,
        "\ufeff" + (CSV + "\n" + CSV_ROW).replace("\n", "\r\n"),
        (CSV + CSV_ROW).replace(",4,", ",4.0,").replace("99200000", "9.92e7"),
        CSV.replace("bytes\n", "bytes,batches,startup_s\n") + CSV_ROW.replace("\n", ",,\n"),
        CSV.replace(",", ", ") + CSV_ROW.replace("resnet50", '"resnet50"'),
    ):
        path.write_bytes(text.encode())
        assert read_jobs(path) == expected
    batches = '"[{""size_bytes"": 99200000, ""ready_s"": 0.05, ""due_s"": 0}]"'
    path.write_text(CSV.replace("\n", ",batches\n") + CSV_ROW.replace("\n", f",{batches}\n"))
    assert read_jobs(path).jobs[0].batches == (Batch(size_bytes=99200000, ready_s=0.05, due_s=0),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "jobs: is empty"),
        (CSV, "jobs: is empty"),
        (
            CSV.replace("iterations", "iteratoins"),
            "line 1: column 'iteratoins' is unknown; did you mean 'iter",
        ),
        (CSV.replace("model", "id"), "line 1: 'id' is a duplicate"),
        (CSV.replace("id,", "") + CSV_ROW.replace("j0,", ""), "line 2: object missing required field `id`"),
        (CSV + CSV_ROW.replace(",4,", ",four,"), "line 2, gpus: 'four' is not a number"),
        (CSV + CSV_ROW.replace(",4,", ",4.5,"), "line 2: gpus: expected `int`, got `float`"),
        (CSV + CSV_ROW.replace(",4,", ",,"), "line 2: object missing required field `gpus`"),
        (CSV + CSV_ROW.replace(",4,", ",0,"), "jobs[0].gpus: 0 is not a whole number from 1"),
        (CSV + CSV_ROW.replace(",4,", ","), "line 2: has 8 cells where 9 columns are named"),
        (CSV + CSV_ROW.replace("j0", '"j0'), "is not CSV: "),
        (CSV + CSV_ROW + CSV_ROW, "jobs[1].id: 'j0' is a duplicate"),
    ],
)
def test_malformed_csv_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "jobs.csv").write_text(text)
    with pytest.raises(HocketError) as refused:
        read_jobs(tmp_path / "jobs.csv")
    assert message in str(refused.value)
    assert str(refused.value).startswith(str(tmp_path))
    assert "\n" not in str(refused.value)


def test_csv_says_what_it_cannot_hold_and_where_it_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(HocketError, match="a job's model is empty, and an empty cell of CSV says nothing"):
        write_jobs(JobSet(jobs=(Job(**ROW | {"model": ""}),)), tmp_path / "jobs.csv")
    write_jobs(JobSet(jobs=(Job(**ROW),)), tmp_path / "jobs.csv")
    with pytest.raises(FormatError, match=r"is CSV, and jobs that run are JSON; 'hocket cluster import jobs"):
        read_live_jobs(tmp_path / "jobs.csv")
