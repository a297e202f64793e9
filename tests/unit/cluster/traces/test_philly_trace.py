"""Philly's job log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hocket.errors import FormatError
from tests.unit.cluster.traces.small_traces import PARTS, PHILLY, imported, says


def test_philly_counts_attempts_that_have_begun_and_ended(trace: Path) -> None:
    trace.write_text(json.dumps(PHILLY))
    found = imported("philly", trace)
    first, second = found.jobs.jobs
    assert (first.id, first.gpus, first.arrival_s) == ("application_1", 1, 0.0)
    assert (second.id, second.gpus, second.arrival_s) == ("application_2", 3, 2 * 3600 + 11 * 60)
    assert (first.user, second.user) == ("u", "ce2f4c")
    assert first.iterations == round(60 / PARTS[first.model])
    assert second.iterations == round(3660 / PARTS[second.model])
    assert found.notes[2:] == (
        "a job belongs to its user; its vc is left out (--user vc)",
        "1 job had several attempts, which replays do not repeat",
        "1 job had an attempt that was not over: the attempt without an end is left out",
        "by state: 1 Pass, 1 Failed; all are kept, for as long as they held their GPUs, and succeed"
        " (--states finished: those that ended as Pass alone)",
        "1 job left out: no submission",
    )


def test_philly_leaves_out_what_is_not_known(trace: Path) -> None:
    attempt = {"start_time": "2017-10-06 23:59:00", "end_time": "2017-10-07 00:00:00", "detail": None}
    trace.write_text(
        json.dumps([*PHILLY, {"jobid": "a"}, {**PHILLY[-1], "jobid": "b", "attempts": [attempt]}])
    )
    found = imported("philly", trace)
    assert [job.id for job in found.jobs.jobs] == ["application_1", "application_2"]
    assert says(found, "2 jobs left out: no submission")
    assert says(found, "1 job left out: no attempt with a beginning, an end and a GPU")


def test_philly_has_virtual_clusters_states_and_last_attempts(trace: Path) -> None:
    trace.write_text(json.dumps(PHILLY))
    found = imported("philly", trace, user="vc", states="finished", attempts="last")
    (job,) = found.jobs.jobs
    assert (job.id, job.gpus, job.user) == ("application_2", 3, "ee9e8c")
    assert job.iterations == round(3600 / PARTS[job.model])
    assert says(found, "of the last attempt that has ended")
    assert says(found, "1 job left out: ended as Failed, not as Pass")


@pytest.mark.parametrize("piece", [1, 7, 65536])
def test_philly_is_read_a_job_at_a_time(piece: int, trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where what is read at a time ends within a job, a text or a number."""
    trace.write_text(json.dumps(PHILLY, indent=1) + "\n")
    whole = imported("philly", trace)
    monkeypatch.setattr("hocket.cluster.workloads.trace_text._PIECE_CHARACTERS", piece)
    assert imported("philly", trace) == whole


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a list of records"),
        ("[", "[0]: is not JSON"),
        ("[1]", "[0]: expected `object`, got `int`"),
        ('[{"jobid": "a"}', "[1]: is cut"),
        ('[{"jobid": "a"} {"jobid": "b"}]', "[1]: is not JSON: no comma"),
        ('[{"jobid": "a"},]', "[1]: is not JSON"),
        ('[{"jobid": "a"}] 1', "goes on behind its list"),
        ('[{"jobid": "a", "x": NaN}]', "[0]: NaN is not a finite number"),
        ("[" * 100_000, "[0]: is not JSON that we read: it is nested too deeply"),
        ('[{"jobid": "a", "attempts": [{"detail": 1}]}]', "[0]: attempts[0].detail: expected `array | null`"),
        (
            json.dumps([PHILLY[0], PHILLY[0]]),
            "[1].jobid: 'application_2' is a duplicate, of [0]; ids are unique: leave one out",
        ),
        (
            json.dumps([{**PHILLY[0], "jobid": "\ud800"}]),
            "[0]: holds a text that is none: half of a surrogate pair is alone",
        ),
        (json.dumps([{**PHILLY[0], "jobid": ""}]), "[0].jobid: is empty; name the job"),
    ],
)
def test_philly_says_which_job_is_wrong(text: str, message: str, trace: Path) -> None:
    trace.write_text(text)
    with pytest.raises(FormatError) as refused:
        imported("philly", trace)
    assert message in str(refused.value)
    assert str(trace) in str(refused.value)


def test_philly_is_refused_where_it_is_wrong_and_not_at_its_end(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records behind a mistake are not read: a file may be larger than the memory."""
    monkeypatch.setattr("hocket.cluster.workloads.trace_text._PIECE_CHARACTERS", 100)
    read = 0

    def pieces(path: Path) -> Iterator[bytes]:
        nonlocal read
        for piece in (b'[{"jobid": "a" "b"}, ', *[b'{"jobid": "c"}, ' * 100] * 10_000):
            read += len(piece)
            yield piece

    monkeypatch.setattr("hocket.cluster.workloads.trace_text.read_pieces", pieces)
    with pytest.raises(FormatError, match=r"\[0\]: is not JSON"):
        imported("philly", trace)
    assert read < 2_000_000
