"""Slurm's accounting."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.errors import FormatError, UnknownNameError
from tests.unit.cluster.traces.small_traces import PARTS, SLURM, imported, says


def test_slurm_counts_jobs_and_says_what_it_left_out(trace: Path) -> None:
    trace.write_text(SLURM)
    found = imported("slurm", trace)
    assert [(job.id, job.gpus, job.arrival_s) for job in found.jobs.jobs] == [
        ("11_3", 1, 0.0),
        ("12", 2, 3610.0),
        ("15", 5, 7200.0),
        ("16", 1, 3 * 3600.0),
    ]
    assert {job.user for job in found.jobs.jobs} == {"u"}
    assert [job.speeds for job in found.jobs.jobs] == [{"v100": 1.0}, {"a100": 1.0}, {"a100": 1.0}, {}]
    for job, seconds in zip(found.jobs.jobs, (60, 600, 50, 700), strict=True):
        assert job.iterations == round(seconds / PARTS[job.model])
    said = "\n".join(found.notes)
    for line in (
        "GPUs are gres/gpu of AllocTRES;",
        "1 job with several records taken for requeued",
        "1 job heterogeneous",
        "1 job left out: no GPU",
        "2 jobs left out: never began",
        "1 job left out: not over",
        "--exclusive",
        "at speed 1, where a cluster has types: a100, v100",
        "a job belongs to its User",
        "by state: 2 COMPLETED, 1 CANCELLED, 1 FAILED; all are kept",
    ):
        assert line in said


def test_slurm_reads_what_a_slurm_printed() -> None:
    """Slurm 22.05.8, two nodes of two GPUs: an array, a heterogeneous job, one that failed at once."""
    found = imported("slurm", Path(__file__).with_name("sacct_22_05.txt"))
    assert {job.id: (job.gpus, job.arrival_s) for job in found.jobs.jobs} == {
        **{"1": (1, 0.0), "2": (4, 0.0), "4": (1, 0.0)},
        **{f"3_{task}": (1, 0.0) for task in range(4)},
        **{"8": (1, 6.0), "9": (2, 6.0)},
    }
    assert [note for note in found.notes if "left out: " in note] == [
        "1 job left out: never began",  # it failed within its first second
        "1 job left out: no GPU",
    ]


def test_slurm_takes_other_columns_for_gpus_and_time(trace: Path) -> None:
    head, lines = "JobID|State|Submit|ReqTRES", "12|TIMEOUT|2026-01-31T10:00:10|cpu=8,gres/gpu=4"
    for columns, cells, seconds in (
        ("Elapsed", "1-02:03:04", 93784),
        ("Elapsed", "02:05", 125),
        ("Start|End", "2026-01-31T23:59:59|2026-02-01T00:01:59", 120),
    ):
        trace.write_text(f"{head}|{columns}\n{lines}|{cells}\n")
        found = imported("slurm", trace)
        (job,) = found.jobs.jobs
        assert (job.gpus, job.iterations) == (4, round(seconds / PARTS[job.model]))
        assert any("ReqTRES, as many as were asked for" in note for note in found.notes)


@st.composite
def sacct_files(draw: st.DrawFn) -> tuple[str, dict[str, tuple[int, int, int]]]:
    """A file in sacct's documented format, and of each job in it that counts (GPUs, submission, seconds)."""
    columns = draw(st.permutations(["JobID", "State", "Submit", "Elapsed", "AllocTRES", "JobName"]))
    expected, rows = {}, []
    for number in range(1, draw(st.integers(1, 8)) + 1):
        name = draw(st.sampled_from(["{}", "{}_7", "{}+0"])).format(number)
        state = draw(st.sampled_from(["COMPLETED", "FAILED", "CANCELLED by 7", "TIMEOUT", "OUT_OF_MEMORY"]))
        seconds, submit = draw(st.integers(0, 200_000)), draw(st.integers(0, 86_399))
        gpus, kind = draw(st.integers(0, 16)), draw(st.sampled_from(["", ":a100", ":h100_1g.10gb"]))
        resources = ["cpu=4", "mem=4000M", "node=1", *([f"gres/gpu{kind}={gpus}"] if gpus else [])]
        if gpus and kind and draw(st.booleans()):
            resources.append(f"gres/gpu={gpus}")
        hours, rest = divmod(seconds, 3600)
        cells = {
            "JobID": name,
            "State": state,
            "Submit": f"2026-01-31T{submit // 3600:02}:{submit // 60 % 60:02}:{submit % 60:02}",
            "Elapsed": f"{f'{hours // 24}-' * (hours >= 24)}{hours % 24:02}:{rest // 60:02}:{rest % 60:02}",
            "AllocTRES": ",".join(draw(st.permutations(resources))),
            "JobName": draw(st.sampled_from(['"', "train", "a,b"])),
        }
        rows += [cells, *({**cells, "JobID": f"{name}.{step}"} for step in ("batch", "extern", "0"))]
        if gpus and seconds:
            expected[name.partition("+")[0]] = (gpus, submit, seconds)
    lines = ["|".join(row[column] for column in columns) for row in rows]
    return "\n".join(["|".join(columns), *lines]) + "\n", expected


@settings(max_examples=50)
@given(sacct_files())
def test_slurm_reads_what_its_documentation_says(made: tuple[str, dict[str, tuple[int, int, int]]]) -> None:
    text, expected = made
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "sacct.txt"
        trace.write_text(text)
        if not expected:
            with pytest.raises(FormatError, match="holds no job"):
                imported("slurm", trace)
            return
        jobs = imported("slurm", trace).jobs.jobs
    first = min(submit for _, submit, _ in expected.values())
    assert {job.id: (job.gpus, job.arrival_s) for job in jobs} == {
        name: (gpus, submit - first) for name, (gpus, submit, _) in expected.items()
    }
    for job in jobs:
        assert job.iterations == max(1, round(expected[job.id][2] / PARTS[job.model]))


QUEUES = """JobID|User|Account|Partition|QOS|Priority|State|Submit|ElapsedRaw|AllocTRES
1|ann|chem|gpu|high|4000|COMPLETED|2026-01-31T10:00:00|60|gres/gpu=1
2|bob|bio|gpu|normal|70|NODE_FAIL|2026-01-31T10:00:00|60|gres/gpu=8
2|bob|bio|gpu|high|80|COMPLETED|2026-01-31T10:10:00|30|gres/gpu=4
2.batch|||||| COMPLETED|2026-01-31T10:10:00|30|gres/gpu=4
3|bob|chem|small||0|PREEMPTED|2026-01-31T10:20:00|60|gres/gpu=1
4|cat|chem|small|scavenge||COMPLETED|2026-01-31T10:30:00|60|gres/gpu=1
"""


def test_slurm_has_users_accounts_priorities_and_states(trace: Path) -> None:
    trace.write_text(QUEUES)
    found = imported("slurm", trace)
    assert [(job.id, job.user, job.priority, job.gpus) for job in found.jobs.jobs] == [
        ("1", "ann", 4000, 1),
        ("2", "bob", 80, 8),
        ("3", "bob", 0, 1),
        ("4", "cat", 0, 1),
    ]
    for line in (
        "a job belongs to its User; its Account, Partition and QOS are left out (--user Account)",
        "priorities are Slurm's Priority, as last computed, and come before a policy's order",
        "by state: 3 COMPLETED, 1 PREEMPTED; all are kept",
        "1 job with several records taken for requeued, with the time of all runs (--attempts last",
    ):
        assert says(found, line), line
    for column, users in (
        ("account", ["chem", "bio", "chem", "chem"]),
        ("Partition", ["gpu", "gpu", "small", "small"]),
        ("QOS", ["high", "normal", "", "scavenge"]),
    ):
        assert [job.user for job in imported("slurm", trace, user=column).jobs.jobs] == users


def test_slurm_takes_the_last_run_and_what_completed(trace: Path) -> None:
    trace.write_text(QUEUES)
    found = imported("slurm", trace, attempts="last", states="finished")
    requeued = found.jobs.jobs[1]
    assert (requeued.id, requeued.gpus, requeued.arrival_s) == ("2", 4, 0.0)
    assert requeued.iterations == round(30 / PARTS[requeued.model])
    assert says(found, "with the time of the last")
    assert says(found, "1 job left out: ended as PREEMPTED, not as COMPLETED")


def test_slurm_takes_priorities_of_qualities_of_service(trace: Path) -> None:
    trace.write_text(QUEUES)
    found = imported("slurm", trace, qos={"high": 5, "scavenge": 1})
    assert [job.priority for job in found.jobs.jobs] == [5, 5, 0, 1]
    assert says(found, "priorities are by quality of service: high 5, scavenge 1, others 0")
    with pytest.raises(UnknownNameError, match="quality of service 'low'"):
        imported("slurm", trace, qos={"low": 1})
    trace.write_text(SLURM)
    with pytest.raises(FormatError, match="line 1: has no column 'QOS'"):
        imported("slurm", trace, qos={"low": 1})


def test_slurm_has_ranks_where_priorities_are_too_high_for_jobs(trace: Path) -> None:
    """The basic plugin's begin at 2^32 and go down."""
    trace.write_text(QUEUES.replace("|4000|", "|4294901757|").replace("|80|", "|4294901756|"))
    found = imported("slurm", trace)
    assert [job.priority for job in found.jobs.jobs] == [2, 1, 0, 0]
    assert says(found, "priorities are the ranks of Slurm's Priority")


def test_slurm_prints_times_with_zones_or_as_seconds(trace: Path) -> None:
    trace.write_text(QUEUES)
    expected = [job.arrival_s for job in imported("slurm", trace).jobs.jobs]
    zoned = QUEUES.replace(":00|60", ":00+0200|60").replace(":00|30", ":00+02:00|30")
    trace.write_text(zoned)
    assert [job.arrival_s for job in imported("slurm", trace).jobs.jobs] == expected
    trace.write_text(
        zoned.replace("T10:20:00+0200", "T08:20:00Z").replace("2026-01-31T10:30:00+0200", "1769848200")
    )
    assert [job.arrival_s for job in imported("slurm", trace).jobs.jobs] == expected
    trace.write_text(QUEUES.replace("T10:20:00", "T10:20:00+0200"))
    with pytest.raises(
        FormatError, match=r"line 6, Submit: '2026-01-31T10:20:00\+0200' has a zone and '2026"
    ):
        imported("slurm", trace)
