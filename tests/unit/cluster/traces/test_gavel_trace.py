"""Gavel's traces and throughputs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import msgspec
import pytest

from hocket.errors import FormatError
from tests.unit.cluster.traces.small_traces import GAVEL, THROUGHPUTS, imported, says


def test_gavel_computes_as_measured_on_one_gpu(trace: Path) -> None:
    trace.write_text(GAVEL)
    measured = trace.with_name("measured.json.gz")
    measured.write_bytes(gzip.compress(json.dumps(THROUGHPUTS).encode()))
    found = imported("gavel", trace, throughputs=measured)
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
    one = imported("gavel", trace, throughputs=measured, gpu="v100").jobs.jobs
    assert one == tuple(msgspec.structs.replace(job, speeds={}) for job in found.jobs.jobs)
    measured.rename(trace.with_name("gavel_throughputs.json.gz"))
    assert imported("gavel", trace).jobs == found.jobs
    with pytest.raises(FormatError, match=r"k80 has no steps per second of .'ResNet-50"):
        imported("gavel", trace, gpu="k80")
    with pytest.raises(FormatError, match="has no device 'a100'; it has v100, k80, v100_un"):
        imported("gavel", trace, gpu="a100")


def test_gavel_without_throughputs_says_that_it_guesses(trace: Path) -> None:
    trace.write_text(GAVEL)
    found = imported("gavel", trace)
    assert [job.forward_s + job.backward_s for job in found.jobs.jobs] == pytest.approx([0.0624] * 3)
    assert "a guess" in found.notes[0]


def test_gavels_weights_are_priorities(trace: Path) -> None:
    trace.write_text(GAVEL.replace("\t4\t1\t-1", "\t4\t5\t-1").replace("\t88\t1\t1\t-1.0", "\t88\t1\t1\t1.2"))
    found = imported("gavel", trace)
    assert [(job.id, job.priority) for job in found.jobs.jobs] == [("1", 5), ("0", 1), ("2", 1)]
    assert says(found, "priorities are priority weights: a heavier job is placed first")
    assert says(found, "1 deadline (SLO) left out")
    trace.write_text(GAVEL.replace("\t4\t1\t-1", "\t4\t0.5\t-1"))
    found = imported("gavel", trace)
    assert [(job.id, job.priority) for job in found.jobs.jobs] == [("1", 0), ("0", 1), ("2", 1)]
    assert says(found, "priorities are the ranks of priority weights")
    trace.write_text(GAVEL)
    assert not says(imported("gavel", trace), "priorities")


def test_gavels_traces_of_virtual_clusters_have_seven_columns(trace: Path) -> None:
    trace.write_text("LM (batch size 10)\tpython main.py\t--steps\t1\t7000\t2.500000\t4\n")
    (job,) = imported("gavel", trace).jobs.jobs
    assert (job.model, job.gpus, job.iterations) == ("LM (batch size 10)", 4, 7000)
