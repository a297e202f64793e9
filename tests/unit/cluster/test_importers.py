"""Published traces as jobs: what of them is read, what is assumed, and one line for what is wrong."""

from __future__ import annotations

import codecs
import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.cluster.workloads import IMPORTERS, import_trace
from hocket.cluster.workloads.trained_models import TABLE_III
from hocket.errors import FormatError, HocketError, UnknownNameError

DATA = Path(__file__).parents[4] / "shared" / "data"

TIRESIAS = """job_id,num_gpu,submit_time,iterations,model_name,duration,interval
b,2,30,100,vgg16,66,10
a,1,5,500,vgg16,118,25
c,1,40,100,vgg16,26,25
d,4,41,100,alexnet,40,1
e,8,42,50,alexnet,30,1
"""
SLURM = """JobID|JobName|User|State|Submit|Start|End|ElapsedRaw|AllocTRES
12|a "x|u|COMPLETED|2026-01-31T10:00:10|2026-01-31T10:00:20|2026-01-31T10:10:20|600|gres/gpu:a100=2,gres/gpu=2
12.batch|batch||COMPLETED|2026-01-31T10:00:20|2026-01-31T10:00:20|2026-01-31T10:10:20|600|cpu=8,gres/gpu=2
12.extern|extern||COMPLETED|2026-01-31T10:00:20|2026-01-31T10:00:20|2026-01-31T10:10:20|600|cpu=8,gres/gpu=2
12.0|python||COMPLETED|2026-01-31T10:00:20|2026-01-31T10:00:20|2026-01-31T10:10:20|600|cpu=8,gres/gpu=2
11_3|array|u|CANCELLED by 1000|2026-01-31T09:00:00|2026-01-31T10:00:00|2026-01-31T10:01:00|60|gres/gpu:v100=1
11_[4-9]|array|u|CANCELLED by 1000|2026-01-31T09:00:00|None|2026-01-31T10:01:00|0|
13|cpu|u|COMPLETED|2026-01-31T09:30:00|2026-01-31T10:00:00|2026-01-31T10:01:00|60|cpu=4,mem=4G,node=1
14|late|u|RUNNING|2026-01-31T09:30:00|2026-01-31T10:00:00|Unknown|600|cpu=4,gres/gpu=1
15+0|het|u|FAILED|2026-01-31T11:00:00|2026-01-31T11:00:00|2026-01-31T11:00:50|50|cpu=4,gres/gpu=1,node=1
15+1|het|u|FAILED|2026-01-31T11:00:00|2026-01-31T11:00:00|2026-01-31T11:00:50|50|cpu=4,gres/gpu:a100=4,node=2
15+2|het|u|FAILED|2026-01-31T11:00:00|2026-01-31T11:00:00|2026-01-31T11:00:50|50|cpu=4,node=1
15+0.batch|batch||FAILED|2026-01-31T11:00:00|2026-01-31T11:00:00|2026-01-31T11:00:50|50|cpu=4,gres/gpu=1
16|again|u|NODE_FAIL|2026-01-31T12:00:00|2026-01-31T12:00:00|2026-01-31T12:10:00|600|cpu=4,gres/gpu=1
16|again|u|COMPLETED|2026-01-31T12:10:00|2026-01-31T12:20:00|2026-01-31T12:21:40|100|cpu=4,gres/gpu=1
17|never|u|CANCELLED by 1000|2026-01-31T12:10:00|Unknown|2026-01-31T12:21:40|0|
"""
GAVEL = (
    'ResNet-50 (batch size 64)\tpython3 main.py -a "x" -b 64\timages\t--num\t1\t2931\t1\t1\t-1.000000\t10\n'
    "LM (batch size 10)\tpython main.py --cuda\tlm\t--steps\t1\t7000\t4\t1\t-1.000000\t2.5\n"
    "A3C\tpython3 main.py\trl\t--max\t0\t88\t1\t1\t-1.000000\t20\n"
)
THROUGHPUTS = {
    "v100": {
        "('ResNet-50 (batch size 64)', 1)": {"null": 4.0, "('A3C', 1)": [1.0, 2.0]},
        "('LM (batch size 10)', 1)": {"null": 80.0},
        "('A3C', 1)": {"null": 8},
    },
    "k80": {"('LM (batch size 10)', 1)": {"null": 24.7}, "('ResNet-50 (batch size 64)', 1)": {"null": 0.0}},
    "v100_unconsolidated": {},
}
PHILLY: list[dict[str, Any]] = [
    {
        "status": "Pass",
        "vc": "ee9e8c",
        "jobid": "application_2",
        "attempts": [
            {
                "start_time": "2017-10-07 01:12:00",
                "end_time": "2017-10-07 01:13:00",
                "detail": [{"ip": "m47", "gpus": ["gpu0", "gpu1"]}],
            },
            {
                "start_time": "2017-10-07 01:20:00",
                "end_time": "2017-10-07 02:20:00",
                "detail": [{"ip": "m4", "gpus": ["gpu0", "gpu1"]}, {"ip": "m5", "gpus": ["gpu7"]}],
            },
            {"start_time": "2017-10-07 03:20:00", "end_time": None, "detail": []},
        ],
        "submitted_time": "2017-10-07 01:11:00",
        "user": "ce2f4c",
    },
    {"status": "Killed", "vc": "v", "jobid": "none", "attempts": [], "submitted_time": "None", "user": "u"},
    {
        "status": "Failed",
        "vc": "v",
        "jobid": "application_1",
        "attempts": [
            {
                "start_time": "2017-10-06 23:59:00",
                "end_time": "2017-10-07 00:00:00",
                "detail": [{"ip": "m1", "gpus": ["gpu0"]}],
            }
        ],
        "submitted_time": "2017-10-06 23:00:00",
        "user": "u",
    },
]
ALIBABA = """job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type
j1,ps,1.0,Terminated,1000.0,2000.0,600.0,29.2,,CPU
j1,worker,3.0,Terminated,1010.0,1900.0,400.0,29.2,50.0,T4
j1,chief,1.0,Terminated,1005.0,2000.0,400.0,29.2,200.0,T4
j2,tensorflow,1.0,Failed,500.0,700.0,600.0,29.2,25.0,MISC
j3,worker,1.0,Running,900.0,,600.0,29.2,100.0,P100
j4,worker,1.0,Terminated,0.0,800.0,600.0,29.2,100.0,P100
"""
HELIOS = """job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
2,u,v,8,64,1,COMPLETED,2020-06-10 00:00:10,2020-06-10 00:00:11,2020-06-10 00:10:11,600,1
1,u,v,1,1,1,FAILED,2020-06-09 23:59:40,2020-06-09 23:59:40,2020-06-10 00:00:40,60,0
3,u,v,0,16,1,COMPLETED,2020-06-10 00:00:12,2020-06-10 00:00:12,2020-06-10 00:10:11,600,0
4,u,v,4,16,1,CANCELLED,2020-06-10 00:00:12,2020-06-10 00:00:12,2020-06-10 00:00:12,0,0
"""
SMALL = {
    "tiresias": TIRESIAS,
    "gavel": GAVEL,
    "philly": json.dumps(PHILLY),
    "alibaba": ALIBABA,
    "helios": HELIOS,
    "slurm": SLURM,
}
PARTS = {model.name: model.forward_s + model.backward_s for model in TABLE_III}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "trace"


def test_tiresias_computes_as_jobs_with_one_gpu_did(trace: Path) -> None:
    trace.write_text(TIRESIAS)
    found = import_trace("tiresias", trace)
    jobs = {job.id: job for job in found.jobs.jobs}
    assert list(jobs) == ["a", "b", "c", "d", "e"]
    assert [job.arrival_s for job in jobs.values()] == [0, 25, 35, 36, 37]
    # vgg16 on one GPU: 118 / 500 and 26 / 100; alexnet on several only: the least.
    for name, seconds in (("a", 0.248), ("b", 0.248), ("c", 0.248), ("d", 0.4), ("e", 0.4)):
        assert jobs[name].forward_s + jobs[name].backward_s == pytest.approx(seconds)
    assert jobs["b"].forward_s == pytest.approx(0.4 * 0.248)
    assert (jobs["b"].gpus, jobs["b"].iterations, jobs["b"].size_bytes) == (2, 100, 4 * 138_357_544)
    assert any("alexnet" in note for note in found.notes)


def test_gavel_computes_as_measured_on_one_gpu(trace: Path) -> None:
    trace.write_text(GAVEL)
    measured = trace.with_name("measured.json.gz")
    measured.write_bytes(gzip.compress(json.dumps(THROUGHPUTS).encode()))
    found = import_trace("gavel", trace, throughputs=measured)
    lm, resnet, a3c = found.jobs.jobs
    assert (lm.id, lm.model, lm.gpus, lm.iterations, lm.arrival_s) == (
        "1",
        "LM (batch size 10)",
        4,
        7000,
        0.0,
    )
    assert (resnet.arrival_s, a3c.arrival_s) == (7.5, 17.5)
    for job, seconds in ((lm, 1 / 80), (resnet, 1 / 4), (a3c, 1 / 8)):
        assert job.forward_s + job.backward_s == pytest.approx(seconds)
    assert resnet.size_bytes == 4 * 25_557_032
    assert lm.speeds == {"v100": 1.0, "k80": THROUGHPUTS["k80"]["('LM (batch size 10)', 1)"]["null"] / 80}
    assert resnet.speeds == {"v100": 1.0}, "it has no throughput on the other one"
    one = import_trace("gavel", trace, throughputs=measured, gpu="v100").jobs.jobs
    assert one == tuple(msgspec.structs.replace(job, speeds={}) for job in found.jobs.jobs)
    measured.rename(trace.with_name("gavel_throughputs.json.gz"))
    assert import_trace("gavel", trace).jobs == found.jobs
    with pytest.raises(FormatError, match=r"k80 has no steps per second of .'ResNet-50"):
        import_trace("gavel", trace, gpu="k80")
    with pytest.raises(FormatError, match="has no device 'a100'; it has v100, k80, v100_un"):
        import_trace("gavel", trace, gpu="a100")


def test_gavel_without_throughputs_says_that_it_guesses(trace: Path) -> None:
    trace.write_text(GAVEL)
    found = import_trace("gavel", trace)
    assert [job.forward_s + job.backward_s for job in found.jobs.jobs] == pytest.approx([0.0624] * 3)
    assert "a guess" in found.notes[0]


def test_philly_counts_attempts_that_have_begun_and_ended(trace: Path) -> None:
    trace.write_text(json.dumps(PHILLY))
    found = import_trace("philly", trace)
    first, second = found.jobs.jobs
    assert (first.id, first.gpus, first.arrival_s) == ("application_1", 1, 0.0)
    assert (second.id, second.gpus, second.arrival_s) == ("application_2", 3, 2 * 3600 + 11 * 60)
    assert (first.user, second.user) == ("u", "ce2f4c")
    assert first.iterations == round(60 / PARTS[first.model])
    assert second.iterations == round(3660 / PARTS[second.model])
    assert any(note.startswith("1 job left out") for note in found.notes)


def test_philly_leaves_out_what_is_not_known(trace: Path) -> None:
    attempt = {"start_time": "2017-10-06 23:59:00", "end_time": "2017-10-07 00:00:00", "detail": None}
    trace.write_text(
        json.dumps([*PHILLY, {"jobid": "a"}, {**PHILLY[-1], "jobid": "b", "attempts": [attempt]}])
    )
    found = import_trace("philly", trace)
    assert [job.id for job in found.jobs.jobs] == ["application_1", "application_2"]
    assert any(note.startswith("3 jobs left out") for note in found.notes)


@pytest.mark.parametrize("header", [True, False])
def test_alibaba_adds_up_the_tasks_of_a_job(trace: Path, header: bool) -> None:
    trace.write_text(ALIBABA if header else ALIBABA.split("\n", 1)[1])
    found = import_trace("alibaba", trace)
    first, second = found.jobs.jobs
    assert (first.id, first.gpus, first.arrival_s, first.memory_bytes) == ("j2", 1, 0.0, 4e9)
    assert (first.speeds, second.speeds) == ({"misc": 1.0}, {"t4": 1.0})
    # Three instances with half a GPU and one with two.
    assert (second.id, second.gpus, second.arrival_s, second.memory_bytes) == ("j1", 5, 505.0, 16e9)
    assert first.iterations == round(200 / PARTS[first.model])
    assert second.iterations == round(995 / PARTS[second.model])
    assert any(note.startswith("2 jobs left out") for note in found.notes)


def test_alibaba_needs_the_columns_that_it_reads(trace: Path) -> None:
    named = "job_name,inst_num,status,start_time,end_time,plan_gpu"
    trace.write_text(f"{named}\nj1,2.0,Terminated,10,30,50.0\n")
    (job,) = import_trace("alibaba", trace).jobs.jobs
    assert (job.id, job.gpus, job.memory_bytes, job.speeds) == ("j1", 2, 8e9, {})
    trace.write_text("job_name,inst_num,status,start_time,end_time\nj1,2.0,Terminated,10,30\n")
    with pytest.raises(FormatError, match="has no column 'plan_gpu'; needed are job_name, inst_num"):
        import_trace("alibaba", trace)


def test_helios_keeps_what_held_a_gpu(trace: Path) -> None:
    trace.write_text(HELIOS)
    found = import_trace("helios", trace)
    first, second = found.jobs.jobs
    assert [(job.id, job.gpus, job.arrival_s) for job in (first, second)] == [("1", 1, 0.0), ("2", 8, 30.0)]
    assert (first.user, second.user) == ("u", "u")
    assert second.iterations == round(600 / PARTS[second.model])
    assert any(note.startswith("2 jobs left out") for note in found.notes)


def test_helios_leaves_out_what_is_not_over(trace: Path) -> None:
    running = "5,u,v,4,16,1,RUNNING,2020-06-10 00:00:12,2020-06-10 00:00:12,,{},0\n"
    trace.write_text(HELIOS + running.format("") + running.replace("5,", "6,", 1).format("None"))
    found = import_trace("helios", trace)
    assert [job.id for job in found.jobs.jobs] == ["1", "2"]
    assert any(note.startswith("4 jobs left out") for note in found.notes)


def test_slurm_counts_jobs_and_says_what_it_left_out(trace: Path) -> None:
    trace.write_text(SLURM)
    found = import_trace("slurm", trace)
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
        "1 with several records taken for requeued",
        "1 heterogeneous",
        "1 job left out: no GPU",
        "2 jobs left out: never began",
        "1 job left out: not over",
        "--exclusive",
        "jobs run on the type of GPU that they had, at speed 1, where a cluster has types: a100, v100",
    ):
        assert line in said


def test_slurm_reads_what_a_slurm_printed() -> None:
    """Slurm 22.05.8, two nodes of two GPUs: an array, a heterogeneous job, one that failed at once."""
    found = import_trace("slurm", Path(__file__).with_name("sacct_22_05.txt"))
    assert {job.id: (job.gpus, job.arrival_s) for job in found.jobs.jobs} == {
        **{"1": (1, 0.0), "2": (4, 0.0), "4": (1, 0.0)},
        **{f"3_{task}": (1, 0.0) for task in range(4)},
        **{"8": (1, 6.0), "9": (2, 6.0)},
    }
    assert [note for note in found.notes if "left out" in note] == [
        "1 job left out: never began",  # it failed within its first second
        "1 job left out: no GPU",
    ]


def test_users_have_names_that_lists_of_users_can_hold(trace: Path) -> None:
    trace.write_text(HELIOS.replace("\n2,u,", "\n2,a b=c,").replace("\n1,u,", "\n1,,"))
    assert [job.user for job in import_trace("helios", trace).jobs.jobs] == ["", "a_b_c"]


def test_slurm_takes_other_columns_for_gpus_and_time(trace: Path) -> None:
    head, lines = "JobID|State|Submit|ReqTRES", "12|TIMEOUT|2026-01-31T10:00:10|cpu=8,gres/gpu=4"
    for columns, cells, seconds in (
        ("Elapsed", "1-02:03:04", 93784),
        ("Elapsed", "02:05", 125),
        ("Start|End", "2026-01-31T23:59:59|2026-02-01T00:01:59", 120),
    ):
        trace.write_text(f"{head}|{columns}\n{lines}|{cells}\n")
        found = import_trace("slurm", trace)
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


@settings(deadline=None, max_examples=50)
@given(sacct_files())
def test_slurm_reads_what_its_documentation_says(made: tuple[str, dict[str, tuple[int, int, int]]]) -> None:
    text, expected = made
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "sacct.txt"
        trace.write_text(text)
        if not expected:
            with pytest.raises(FormatError, match="holds no job"):
                import_trace("slurm", trace)
            return
        jobs = import_trace("slurm", trace).jobs.jobs
    first = min(submit for _, submit, _ in expected.values())
    assert {job.id: (job.gpus, job.arrival_s) for job in jobs} == {
        name: (gpus, submit - first) for name, (gpus, submit, _) in expected.items()
    }
    for job in jobs:
        assert job.iterations == max(1, round(expected[job.id][2] / PARTS[job.model]))


@pytest.mark.parametrize("kind", list(SMALL))
def test_texts_as_other_programs_write_them(kind: str, trace: Path) -> None:
    """With a byte order mark, other ends of lines, lines that hold nothing, and spaces behind commas."""
    trace.write_text(SMALL[kind])
    expected = import_trace(kind, trace).jobs
    blank = {"philly": "\n", "gavel": "\n \t\t\n", "slurm": "\n||\n"}.get(kind, "\n  \n,,\n")
    text = SMALL[kind].replace("\n", blank, 1) + blank
    text = text if kind in ("philly", "slurm") else text.replace(",", ", ")
    trace.write_bytes(codecs.BOM_UTF8 + text.replace("\n", "\r\n").encode())
    assert import_trace(kind, trace).jobs == expected


@pytest.mark.parametrize("kind", list(SMALL))
def test_a_limit_keeps_those_that_arrive_first_and_a_seed_decides_the_rest(kind: str, trace: Path) -> None:
    trace.write_text(SMALL[kind])
    every = import_trace(kind, trace).jobs.jobs
    assert [job.id for job in import_trace(kind, trace, limit=1).jobs.jobs] == [every[0].id]
    assert import_trace(kind, trace, seed=7).jobs == import_trace(kind, trace, seed=7).jobs


def test_what_is_not_known_is_drawn_with_the_seed(trace: Path) -> None:
    trace.write_text(HELIOS)
    models = {tuple(job.model for job in import_trace("helios", trace, seed=s).jobs.jobs) for s in range(20)}
    assert len(models) > 5


MALFORMED = [
    ("slurm", "JobID|State|Submit|ElapsedRaw\n1|COMPLETED|x|5\n", "AllocTRES: is no column, nor is ReqTRES"),
    ("slurm", "JobID|State|Submit|AllocTRES\n1|COMPLETED|x|a\n", "ElapsedRaw: is no column, nor Elapsed"),
    ("slurm", SLURM.replace("\n12|", "\ntwelve|"), "line 2, JobID: 'twelve' is not a job like 12, 12_7"),
    (
        "slurm",
        SLURM.replace("|2026-01-31T10:00:10|", "|Jan 31|", 1),
        "line 2, Submit: 'Jan 31' is not a time",
    ),
    ("slurm", SLURM.replace("|600|", "|x|"), "line 2, ElapsedRaw: 'x' is not a number of 0 or more"),
    ("slurm", SLURM.replace('a "x', "a|x"), "line 2: has 10 cells where 9 columns are expected"),
    ("tiresias", "", "holds no job"),
    ("tiresias", "a,b\n1,2\n", "line 1: has no column 'job_id'; needed are job_id, num_gpu"),
    ("tiresias", TIRESIAS.replace("vgg16", "lenet"), "line 2, model_name: 'lenet' has no known size; known"),
    (
        "tiresias",
        TIRESIAS.replace(",2,30", ",0,30"),
        "line 2, num_gpu: '0' is not a whole number of 1 or more",
    ),
    ("tiresias", TIRESIAS.replace(",2,30", ",two,30"), "line 2, num_gpu: 'two' is not a number of 0 or more"),
    ("tiresias", TIRESIAS.replace(",30,100", ",-30,100"), "line 2, submit_time: '-30' is not a number of 0"),
    ("tiresias", TIRESIAS.replace("66,10", "66"), "line 2: has 6 cells where 7 columns are expected"),
    ("tiresias", TIRESIAS.replace("b,2", "a,2"), "jobs[1].id: 'a' is a duplicate"),
    ("tiresias", TIRESIAS.replace(",66,", ",nan,"), "line 2, duration: 'nan' is not a number"),
    ("tiresias", TIRESIAS.replace(",66,", ",0,"), "line 2, duration: is 0"),
    ("tiresias", TIRESIAS.replace("interval", "duration"), "line 1: 'duration' is a duplicate"),
    ("tiresias", TIRESIAS.replace("b,2", '"b,2'), "is not delimited text"),
    ("gavel", "x\ty\n", "line 1: has 2 cells where 10 columns are expected"),
    ("gavel", GAVEL.replace("A3C", "GPT"), "line 3, job type: 'GPT' has no known size; known are ResNet-18"),
    ("gavel", GAVEL.replace("\t2931\t", "\t1.5\t"), "line 1, total steps: '1.5' is not a whole number of 1"),
    ("philly", "{}", "expected `array`"),
    ("philly", "[{}]", "[0]: object missing required field `jobid`"),
    ("philly", "[]", "holds no job"),
    (
        "philly",
        json.dumps(PHILLY).replace("01:12:00", "01:12"),
        "[0].attempts[0].start_time: '2017-10-07 01:12'",
    ),
    ("alibaba", "1,2,3\n", "line 1: has 3 cells where 10 columns"),
    (
        "alibaba",
        ALIBABA.replace("3.0,Term", "3.5,Term"),
        "line 3, inst_num: '3.5' is not a whole number of 1",
    ),
    (
        "helios",
        HELIOS.replace("2020-06-10 00:00:10,", "2020-06-31 00:00:10,"),
        "line 2, submit_time: '2020-06-31",
    ),
    ("helios", HELIOS.replace(",8,64", ",x,64"), "line 2, gpu_num: 'x' is not a number of 0 or more"),
    ("helios", HELIOS.replace(",8,64", ",1e300,64"), "line 2, gpu_num: '1e300' is not a number of 0 or more"),
]


@pytest.mark.parametrize(("kind", "text", "message"), MALFORMED)
def test_a_malformed_trace_is_refused_in_one_line(kind: str, text: str, message: str, trace: Path) -> None:
    trace.write_text(text)
    with pytest.raises(FormatError) as refused:
        import_trace(kind, trace)
    assert str(refused.value).startswith(f"{trace}: ")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "cell", ["1" * 100_000 + "x", "1." + "1" * 100_000 + "x", "1e" + "1" * 100_000 + "x"]
)
def test_a_long_number_is_read_once(cell: str, trace: Path) -> None:
    """A pattern that may split the digits in two ways would try all 100,000: minutes a cell."""
    trace.write_text(HELIOS.replace(",8,64", f",{cell},64"))
    with pytest.raises(FormatError, match="line 2, gpu_num: '1") as refused:
        import_trace("helios", trace)
    assert len(str(refused.value)) <= 1000


def test_bytes_that_are_no_text(trace: Path) -> None:
    trace.write_bytes(b"\xff\xfe\x00")
    for kind in IMPORTERS:
        with pytest.raises(FormatError, match="is not"):
            import_trace(kind, trace)


@pytest.mark.parametrize(
    "throughputs",
    ["[]", '{"v100": []}', '{"v100": {}}', json.dumps(THROUGHPUTS).replace("4.0", "0"), "{"],
)
def test_malformed_throughputs_are_refused_in_one_line(throughputs: str, trace: Path) -> None:
    trace.write_text(GAVEL)
    measured = trace.with_name("m.json")
    measured.write_text(throughputs)
    with pytest.raises(FormatError) as refused:
        import_trace("gavel", trace, throughputs=measured)
    assert str(measured) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_requests_that_make_no_sense(trace: Path) -> None:
    trace.write_text(HELIOS)
    with pytest.raises(
        UnknownNameError, match="choose one of: tiresias, gavel, philly, alibaba, helios, slurm"
    ):
        import_trace("helio", trace)
    with pytest.raises(HocketError, match="0 jobs are none"):
        import_trace("helios", trace, limit=0)
    for gavels in ({"throughputs": trace}, {"gpu": "k80"}):
        with pytest.raises(HocketError, match="of Gavel's throughputs, not for helios"):
            import_trace("helios", trace, **gavels)
    with pytest.raises(FormatError, match="cannot be read"):
        import_trace("helios", trace.with_name("absent"))


@pytest.mark.skipif(not DATA.is_dir(), reason="the real traces are not here")
def test_published_traces_are_read_with_their_counts() -> None:
    tiresias = import_trace("tiresias", DATA / "tiresias_60_job.csv").jobs.jobs
    assert (len(tiresias), sum(job.gpus for job in tiresias)) == (60, 170)
    for job in tiresias:
        # No job with one GPU ran shorter or longer than its iterations take here, by more than rounding.
        assert 0.02 < job.forward_s + job.backward_s < 0.6
    gavel = import_trace("gavel", DATA / "gavel_artifact_evaluation.trace")
    assert len(gavel.jobs.jobs) == 15
    assert "v100" in gavel.notes[0]
    resnet = gavel.jobs.jobs[0]
    assert resnet.forward_s + resnet.backward_s == pytest.approx(1 / 4.525762041224065)
