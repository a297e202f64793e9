"""``hocket cluster why``, ``logs`` and ``events``; what status leaves out, and fields that no job has."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path

import pytest

from hocket.cluster.live.manager_messages import Submit
from hocket.cluster.live.retention import Retention
from tests.unit.cli.test_client_commands import served, written
from tests.unit.cli.test_commands import Ran, hocket, in_tmp, refused
from tests.unit.cluster.live.clusters import Running, live_job

__all__ = ["in_tmp"]

TALK = ("sh", "-c", "echo one; echo two $RANK; printf 'half \\303\\244'")


def finished(cluster: Running, job: str = "a") -> None:
    cluster.until(lambda s: any(each.id == job and each.state == "finished" for each in s.jobs))


def test_what_ranks_printed_is_printed(in_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(in_tmp, monkeypatch) as cluster:
        cluster.ask(Submit((live_job("a", 2, command=TALK), live_job("late", arrival_s=1e6))))
        finished(cluster)
        said = "[0] one\n[0] two 0\n[0] half ä\n[1] one\n[1] two 1\n[1] half ä\n"
        assert hocket("cluster", "logs", "a").out == said
        assert hocket("cluster", "logs", "a", "--rank", "1", "--lines", "2").out == "two 1\nhalf ä\n"
        assert hocket("cluster", "logs", "a", "--rank", "0", "--attempt", "1").out == "one\ntwo 0\nhalf ä\n"
        assert "rank 2 of job 'a', which has 2 ranks" in refused(
            hocket("cluster", "logs", "a", "--rank", "2")
        )
        assert "attempt 7 of job 'a', which has had 1" in refused(
            hocket("cluster", "logs", "a", "--attempt", "7")
        )
        assert "'late' has not printed anything: it arrives in" in refused(hocket("cluster", "logs", "late"))
        assert "did you mean 'late'?" in refused(hocket("cluster", "logs", "lat"))


def test_what_is_followed_goes_on_to_the_end_of_the_last_attempt(
    in_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = (
        "echo begun $TORCHELASTIC_RESTART_COUNT; while ! test -e go; do sleep 0.05; done; echo ended; "
        "exit $((1 - TORCHELASTIC_RESTART_COUNT))"
    )
    found: list[Ran] = []
    with served(in_tmp, monkeypatch) as cluster:
        job = live_job("a", command=("sh", "-c", talk), folder=str(in_tmp), restarts=1)
        cluster.ask(Submit((job,)))
        cluster.until(lambda s: s.jobs[0].state == "running")
        timer = threading.Timer(1.0, lambda: (in_tmp / "go").touch())
        timer.start()
        found.append(hocket("cluster", "logs", "a", "--follow"))
        timer.join()
    (ran,) = found
    assert ran.out == "begun 0\nended\nbegun 1\nended\n"
    assert ran.err.startswith("a finished in attempt 2, ")


def test_a_log_that_was_cut_is_read_on(tmp_path: Path) -> None:
    from hocket.launch.guard import cut
    from hocket.launch.rank_logs import LogPosition, log_part

    (tmp_path / "1-1-0.out").write_text("a" * 300)
    first = log_part(tmp_path, "1-1-0", LogPosition())
    assert first is not None
    assert (len(first.text), first.gap, first.next) == (300, False, LogPosition(False, 300))
    with (tmp_path / "1-1-0.out").open("a") as out:
        out.write("b" * 300)
    assert cut(str(tmp_path / "1-1-0"), most_bytes=200)
    (tmp_path / "1-1-0.out").write_text("after")
    again = log_part(tmp_path, "1-1-0", first.next)
    assert again is not None
    assert (again.text, again.gap) == ("after", True)
    anew = log_part(tmp_path, "1-1-0", LogPosition())
    assert anew is not None
    assert anew.text == "b" * 200
    assert log_part(tmp_path, "1-1-1", LogPosition()) is None


def test_events_of_a_job_without_any_say_why_and_of_an_unknown_one_that_it_is(
    in_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(in_tmp, monkeypatch) as cluster:
        cluster.ask(Submit((live_job("late", arrival_s=1e6),)))
        said = hocket("cluster", "events", "late")
        assert (said.status, said.out) == (0, "")
        assert said.err.startswith("no events; late: arrives in ")
        assert said.err.count("\n") == 1
        for more in ((), ("--json",), ("--follow",)):
            assert "job 'lat' is unknown" in refused(hocket("cluster", "events", "lat", *more))


def test_events_are_told_in_order(in_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(in_tmp, monkeypatch) as cluster:
        cluster.ask(Submit((live_job("a", command=("true",)), live_job("b", command=("true",)))))
        finished(cluster)
        finished(cluster, "b")
        printed = hocket("cluster", "events", "a").out.splitlines()
        assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  a: ", line) for line in printed)
        assert [line.partition("  a: ")[2].partition(" ")[0] for line in printed] == ["placed", "finished"]
        told = json.loads(hocket("cluster", "events", "--json").out)
        assert {event["job"] for event in told} == {None, "a", "b"}
        assert [event["number"] for event in told] == sorted(event["number"] for event in told)
        assert "give one of them" in refused(hocket("cluster", "events", "--json", "--follow"))


def test_events_of_a_job_with_an_odd_name_are_lines(in_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(in_tmp, monkeypatch) as cluster:
        cluster.ask(Submit((live_job("x\ny\x1b[31m", command=("true",)),)))
        cluster.until(lambda status: status.jobs[0].state == "finished")
        printed = hocket("cluster", "events").out
        assert "\x1b" not in printed
        assert r"  x y\x1b[31m: finished" in printed


def test_why_is_one_line(in_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(in_tmp, monkeypatch) as cluster:
        cluster.ask(Submit((live_job("a", command=("sh", "-c", "exit 4")),)))
        cluster.until(lambda s: s.jobs[0].state == "failed")
        said = hocket("cluster", "why", "a")
        assert said.out.startswith("a: failed: rank 0 on node")
        assert "ended with status 4; it failed by itself" in said.out
        assert said.out.count("\n") == 1
        assert "ended with status 4" in hocket("cluster", "status").out


def test_jobs_that_were_over_long_ago_are_left_out(in_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(in_tmp, monkeypatch) as cluster:
        cluster.manager.set_retention(Retention(shown_s=0.0))
        cluster.ask(Submit((live_job("old", command=("true",)), live_job("late", arrival_s=1e6))))
        status = cluster.until(lambda s: [job.id for job in s.jobs] == ["late"])
        assert status.left_out == 1
        assert status.average_jct_s is not None
        shown = " ".join(hocket("cluster", "status").out.split())
        assert "of 1 finished · 1 more are over (--all)" in shown
        assert "old" in hocket("cluster", "status", "--all").out
        told = json.loads(hocket("cluster", "status", "--all", "--json").out)
        assert [job["id"] for job in told["jobs"]] == ["old", "late"]


def test_outputs_of_ended_ranks_are_kept_for_a_while(in_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.cluster.live.attempts._TIDY_EVERY_S", 0.1)
    with served(in_tmp, monkeypatch) as cluster:
        cluster.ask(Submit((live_job("a", command=TALK), live_job("silent", command=("true",)))))
        finished(cluster)
        finished(cluster, "silent")
        left = sorted(path.suffix for path in (in_tmp / "c").glob("node*/**/*-1-0.*"))
        assert left == [".out", ".out", ".status", ".status"]  # no lock, no number of a process
        assert not list((in_tmp / "c" / "jobs").iterdir())  # they have kept nothing
        cluster.manager.set_retention(Retention(output_s=0.0))
        cluster.until(lambda _: not list((in_tmp / "c").glob("node*/**/*-1-0.*")))
        assert hocket("cluster", "logs", "a").out == ""


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("iteratoins", "did you mean 'iterations'?"),
        ("colour", "jobs[0]: field 'colour' is unknown; choose one of: arrival_s, "),
        ("gpu_type", "field 'gpu_type' is unknown"),
    ],
)
def test_fields_that_no_job_has_are_refused(in_tmp: Path, field: str, said: str) -> None:
    written("jobs.json", live_job("a"))
    document = json.loads(Path("jobs.json").read_text())
    document["jobs"][0][field] = 3
    Path("jobs.json").write_text(json.dumps(document))
    ran = hocket("cluster", "run", "jobs.json", "--placement", "ls", "--policy", "fifo")
    assert said in refused(ran)


def test_restarts_are_of_jobs_that_do_not_say(in_tmp: Path) -> None:
    from hocket.cluster.live.runnable_jobs import read_live_jobs

    path = written("jobs.json", live_job("a"), live_job("b", restarts=5))
    assert [job.restarts for job in read_live_jobs(path)] == [None, 5]
    assert [job.restarts for job in read_live_jobs(path, 2)] == [2, 5]
