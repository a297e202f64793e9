"""Published traces as jobs: what holds for all of them, and one line for what is wrong."""

from __future__ import annotations

import codecs
import gzip
import json
import tarfile
import tracemalloc
from pathlib import Path

import pytest
import zstandard

from hocket.cluster.workloads import IMPORTERS
from hocket.errors import FormatError, HocketError, UnknownNameError
from tests.unit.cluster.traces.small_traces import (
    ALIBABA,
    DATA,
    GAVEL,
    HELIOS,
    PHILLY,
    SLURM,
    SMALL,
    THROUGHPUTS,
    TIRESIAS,
    imported,
)


@pytest.mark.parametrize("kind", list(SMALL))
def test_texts_as_other_programs_write_them(kind: str, trace: Path) -> None:
    """With a byte order mark, other ends of lines, lines that hold nothing, and spaces behind commas."""
    trace.write_text(SMALL[kind])
    expected = imported(kind, trace).jobs
    blank = {"philly": "\n", "gavel": "\n \t\t\n", "slurm": "\n||\n"}.get(kind, "\n  \n,,\n")
    text = SMALL[kind].replace("\n", blank, 1) + blank
    text = text if kind in ("philly", "slurm") else text.replace(",", ", ")
    trace.write_bytes(codecs.BOM_UTF8 + text.replace("\n", "\r\n").encode())
    assert imported(kind, trace).jobs == expected


@pytest.mark.parametrize("kind", list(SMALL))
def test_a_limit_keeps_those_that_arrive_first_and_a_seed_decides_the_rest(kind: str, trace: Path) -> None:
    trace.write_text(SMALL[kind])
    every = imported(kind, trace).jobs.jobs
    assert [job.id for job in imported(kind, trace, limit=1).jobs.jobs] == [every[0].id]
    assert imported(kind, trace, seed=7).jobs == imported(kind, trace, seed=7).jobs


def test_what_is_not_known_is_drawn_with_the_seed(trace: Path) -> None:
    trace.write_text(HELIOS)
    models = {tuple(job.model for job in imported("helios", trace, seed=s).jobs.jobs) for s in range(20)}
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
    ("tiresias", TIRESIAS.replace("b,2", "a,2"), "line 3, job_id: 'a' is a duplicate, of line 2; ids"),
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
        imported(kind, trace)
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
        imported("helios", trace)
    assert len(str(refused.value)) <= 1000


def test_bytes_that_are_no_text(trace: Path) -> None:
    trace.write_bytes(b"\xff\xfe\x00")
    for kind in IMPORTERS:
        with pytest.raises(FormatError, match="is not"):
            imported(kind, trace)


@pytest.mark.parametrize(
    "throughputs",
    ["[]", '{"v100": []}', '{"v100": {}}', json.dumps(THROUGHPUTS).replace("4.0", "0"), "{"],
)
def test_malformed_throughputs_are_refused_in_one_line(throughputs: str, trace: Path) -> None:
    trace.write_text(GAVEL)
    measured = trace.with_name("m.json")
    measured.write_text(throughputs)
    with pytest.raises(FormatError) as refused:
        imported("gavel", trace, throughputs=measured)
    assert str(measured) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_requests_that_make_no_sense(trace: Path) -> None:
    trace.write_text(HELIOS)
    with pytest.raises(
        UnknownNameError, match="choose one of: tiresias, gavel, philly, alibaba, alibaba-2023, helios, slurm"
    ):
        imported("helio", trace)
    with pytest.raises(HocketError, match="0 jobs are none"):
        imported("helios", trace, limit=0)
    for option, value, kinds in (
        ("throughputs", trace, "gavel"),
        ("gpu", "k80", "gavel"),
        ("attempts", "last", "philly and slurm"),
        ("qos", {"LS": 2, "BE": 0}, "alibaba-2023 and slurm"),
        ("job_table", trace, "alibaba"),
    ):
        with pytest.raises(HocketError, match=f"is for {kinds}, not for helios; leave it out") as refused:
            imported("helios", trace, **{option: value})
        assert str(refused.value).startswith(f"--{option.replace('_', '-')} '")
    with pytest.raises(FormatError, match="cannot be read"):
        imported("helios", trace.with_name("absent"))


@pytest.mark.parametrize("kind", list(SMALL))
def test_compressed_traces(kind: str, trace: Path) -> None:
    trace.write_text(SMALL[kind])
    expected = imported(kind, trace).jobs
    for ending, packed in (
        (".gz", gzip.compress(SMALL[kind].encode())),
        (".zst", zstandard.ZstdCompressor().compress(SMALL[kind].encode())),
    ):
        path = trace.with_name(f"trace{ending}")
        path.write_bytes(packed)
        assert imported(kind, path).jobs == expected
        path.write_bytes(packed[:-9])
        with pytest.raises(FormatError, match=r"is not a (gzip|whole zstd) file"):
            imported(kind, path)


@pytest.mark.parametrize("kind", list(SMALL))
def test_archives_are_to_be_unpacked(kind: str, trace: Path) -> None:
    """Alibaba's tables are published so."""
    trace.write_text(SMALL[kind])
    archive = trace.with_name("trace.tar.gz")
    with tarfile.open(archive, "w:gz") as file:
        file.add(trace, "trace")
    with pytest.raises(FormatError, match=r"is a tar archive; unpack it \(tar -xf\) and give the file in it"):
        imported(kind, archive)


@pytest.mark.parametrize("kind", list(SMALL))
def test_bytes_that_are_no_text_far_into_a_trace(kind: str, trace: Path) -> None:
    trace.write_bytes(SMALL[kind].encode()[:-2] + b"\xff")
    with pytest.raises(FormatError, match="is not text in UTF-8"):
        imported(kind, trace)


def test_a_limit_holds_no_more_jobs_than_it_says(trace: Path) -> None:
    """Rows are read one at a time; those that arrive first are at the end."""
    head = HELIOS.splitlines()[0]
    days = [28 - number // 500 for number in range(5_000)]
    rows = (
        f"{number},u,v,1,1,1,COMPLETED,2020-06-{day:02} 00:00:00,,,60,0" for number, day in enumerate(days)
    )
    trace.write_text("\n".join([head, *rows]))
    tracemalloc.start()
    jobs = imported("helios", trace, limit=5).jobs.jobs
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [job.id for job in jobs] == [str(4_500 + k) for k in range(5)]
    # Ids are kept, to find two of one name, and 3 MB of text; rows alone would be 6 MB.
    assert peak < 5_000 * 150 + (3 << 20)


@pytest.mark.skipif(not DATA.is_dir(), reason="the real traces are not here")
def test_published_traces_are_read_with_their_counts() -> None:
    tiresias = imported("tiresias", DATA / "tiresias_60_job.csv").jobs.jobs
    assert (len(tiresias), sum(job.gpus for job in tiresias)) == (60, 170)
    for job in tiresias:
        # No job with one GPU ran shorter or longer than its iterations take here, by more than rounding.
        assert 0.02 < job.forward_s + job.backward_s < 0.6
    gavel = imported("gavel", DATA / "gavel_artifact_evaluation.trace")
    assert len(gavel.jobs.jobs) == 15
    assert "v100" in gavel.notes[0]
    resnet = gavel.jobs.jobs[0]
    assert resnet.forward_s + resnet.backward_s == pytest.approx(1 / 4.525762041224065)
