"""Alibaba's traces of 2020 and 2023."""

from __future__ import annotations

from pathlib import Path

import pytest

from hocket.errors import FormatError, UnknownNameError
from tests.unit.cluster.traces.small_traces import ALIBABA, PARTS, PODS, imported, says


@pytest.mark.parametrize("header", [True, False])
def test_alibaba_adds_up_the_tasks_of_a_job(trace: Path, header: bool) -> None:
    trace.write_text(ALIBABA if header else ALIBABA.split("\n", 1)[1])
    found = imported("alibaba", trace)
    first, second = found.jobs.jobs
    assert (first.id, first.gpus, first.arrival_s, first.memory_bytes) == ("j2", 1, 0.0, 4e9)
    assert (first.speeds, second.speeds) == ({"misc": 1.0}, {"t4": 1.0})
    # Three instances with half a GPU and one with two.
    assert (second.id, second.gpus, second.arrival_s, second.memory_bytes) == ("j1", 5, 505.0, 16e9)
    assert first.iterations == round(200 / PARTS[first.model])
    assert second.iterations == round(995 / PARTS[second.model])
    assert says(found, "2 jobs left out: no task with a GPU that has begun and is over")
    assert says(found, "by state: 1 Terminated, 1 Failed; all are kept")


def test_alibaba_needs_the_columns_that_it_reads(trace: Path) -> None:
    named = "job_name,inst_num,status,start_time,end_time,plan_gpu"
    trace.write_text(f"{named}\nj1,2.0,Terminated,10,30,50.0\n")
    (job,) = imported("alibaba", trace).jobs.jobs
    assert (job.id, job.gpus, job.memory_bytes, job.speeds) == ("j1", 2, 8e9, {})
    trace.write_text("job_name,inst_num,status,start_time,end_time\nj1,2.0,Terminated,10,30\n")
    with pytest.raises(FormatError, match="has no column 'plan_gpu'; needed are job_name, inst_num"):
        imported("alibaba", trace)


@pytest.mark.parametrize("header", [True, False])
def test_alibabas_job_table_says_whose_jobs_are_and_when_they_came(trace: Path, header: bool) -> None:
    trace.write_text(ALIBABA)
    table = trace.with_name("jobs")
    named = "job_name,inst_id,user,status,start_time,end_time\n" if header else ""
    table.write_text(named + "j2,i2,u 2,Failed,400.0,700.0\nj9,i9,u9,Running,1.0,\n")
    found = imported("alibaba", trace, job_table=table)
    first, second = found.jobs.jobs
    assert (first.id, first.user, first.arrival_s) == ("j2", "u_2", 0.0)
    assert (second.id, second.user, second.arrival_s) == ("j1", "", 605.0)
    assert says(found, "as the job table says; 1 job not in it: with the first task, of no user")
    table.write_text("j1,i1,u1,Terminated,1001.0,2000.0\nj2,i2,u2,Failed,0.0,700.0\n")
    found = imported("alibaba", trace, job_table=table, states="finished")
    assert [(job.id, job.user) for job in found.jobs.jobs] == [("j1", "u1")]
    assert says(found, "1 job left out: ended as Failed, not as Terminated")
    table.write_text("j1,u1\n")
    with pytest.raises(
        FormatError, match=r"jobs: line 1: has 2 cells where 6 columns are expected: job_name"
    ):
        imported("alibaba", trace, job_table=table)


def test_alibabas_tasks_of_jobs_that_came_later_than_they_began(trace: Path) -> None:
    """A submission behind the launch is not one: the job arrives with its launch."""
    trace.write_text(ALIBABA)
    table = trace.with_name("jobs")
    table.write_text("j1,i1,u1,Terminated,1500.0,2000.0\nj2,i2,u2,Failed,,700.0\n")
    found = imported("alibaba", trace, job_table=table)
    assert [(job.id, job.arrival_s) for job in found.jobs.jobs] == [("j2", 0.0), ("j1", 505.0)]


def test_alibabas_pods_have_types_parts_and_priorities(trace: Path) -> None:
    trace.write_text(PODS)
    found = imported("alibaba-2023", trace)
    whole, several, part = found.jobs.jobs
    assert (whole.id, whole.gpus, whole.arrival_s, whole.memory_bytes) == ("p0", 8, 0.0, 16e9)
    assert (whole.speeds, whole.priority, whole.user) == ({"t4": 1.0}, 0, "")
    assert (several.id, several.arrival_s, several.priority) == ("p3", 500.0, 1)
    assert several.speeds == {"v100m16": 1.0, "v100m32": 1.0}
    assert (part.id, part.gpus, part.speeds, part.priority) == ("p1", 1, {}, 2)
    assert part.memory_bytes == pytest.approx(0.46 * 16e9)
    for job, seconds in ((whole, 600), (several, 100), (part, 6500)):
        assert job.iterations == round(seconds / PARTS[job.model])
    for line in (
        "priorities are by quality of service: BE 0, Burstable 1, Guaranteed 2, LS 2, others 0",
        "jobs have no user",
        "t4, v100m16, v100m32",
        "by state: 1 Running, 1 Succeeded, 1 Failed; all are kept",
        "1 job left out: never began",
        "1 job left out: no GPU",
        "1 job left out: over at once",
    ):
        assert says(found, line), line


def test_alibabas_pods_take_other_priorities(trace: Path) -> None:
    trace.write_text(PODS)
    found = imported("alibaba-2023", trace, qos={"BE": 7}, states="finished")
    assert [(job.id, job.priority) for job in found.jobs.jobs] == [("p0", 7)]
    with pytest.raises(UnknownNameError, match="quality of service 'low'"):
        imported("alibaba-2023", trace, qos={"low": 1})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "p1,6000,12288,1,460",
            "p1,6000,12288,1,1460",
            "line 2, gpu_milli: 1460 of 1 GPUs is no part of one",
        ),
        ("p3,4000,4096,2,1000", "p3,4000,4096,2,500", "line 5, gpu_milli: 500 of 2 GPUs is no part of one"),
        ("p3,4000,4096,2,1000", "p3,4000,4096,2.5,1000", "line 5, num_gpu: '2.5' is not a whole number"),
        (",T4,", ",T4|G(1),", "line 3, gpu_spec: 'g(1)': a type is named by small letters"),
        ("p3,", "p1,", "line 5, name: 'p1' is a duplicate, of line 2; ids are unique"),
        ("p3,", ",", "line 5, name: is empty; name the job"),
        ("9000,2500", "9000,soon", "line 2, scheduled_time: 'soon' is not a number"),
        ("qos", "class", "line 1: has no column 'qos'"),
    ],
)
def test_alibabas_pods_are_refused_in_one_line(old: str, new: str, message: str, trace: Path) -> None:
    trace.write_text(PODS.replace(old, new))
    with pytest.raises(FormatError) as refused:
        imported("alibaba-2023", trace)
    assert message in str(refused.value)
