"""What commands say to whoever asks a cluster's manager for odd things: one line, and nothing hangs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from hocket.cluster.live.manager_address import Contact, leave_contact, starting
from hocket.cluster.live.runnable_jobs import read_live_jobs
from hocket.errors import HocketError
from hocket.launch.credentials import new_credentials
from hocket.ports import free_port
from tests.tokens import TOKEN
from tests.unit.cli.test_commands import hocket, in_tmp, refused
from tests.unit.cluster.live.clusters import Running, live_job, running
from tests.unit.cluster.live.test_manager import noting

__all__ = ["in_tmp"]


@contextlib.contextmanager
def standard_input(path: Path) -> Iterator[None]:
    kept, given = os.dup(0), os.open(path, os.O_RDONLY)
    os.dup2(given, 0)
    try:
        yield
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(given)


def written(path: str, *jobs: msgspec.Struct) -> Path:
    found = Path(path)
    found.write_bytes(msgspec.json.encode({"format": "hocket.jobs/1", "jobs": jobs}))
    return found


@contextlib.contextmanager
def served(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A cluster that commands find by their environment."""
    with running(folder / "c", until_idle=False) as cluster:
        monkeypatch.setenv("HOCKET_CLUSTER", cluster.manager.address)
        monkeypatch.setenv("HOCKET_CLUSTER_TOKEN", TOKEN)
        yield cluster


def test_odd_requests_are_answered_in_a_line(in_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(in_tmp, monkeypatch) as cluster:
        assert "job 'a' is unknown; there are none" in refused(hocket("cluster", "cancel", "a"))
        written("jobs.json", noting("a", in_tmp), live_job("late", arrival_s=1e6))
        assert hocket("cluster", "submit", "jobs.json").err == "a: queued\nlate: queued\n"
        cluster.until(lambda s: s.jobs[0].state == "finished")
        again = "a: finished, it was submitted before\nlate: queued, it was submitted before\n"
        assert hocket("cluster", "submit", "jobs.json").err == again
        written("other.json", live_job("new"), live_job("late", arrival_s=1e6, iterations=9))
        assert "'late' is known and another one" in refused(hocket("cluster", "submit", "other.json"))
        said = [hocket("cluster", "cancel", name) for name in ("late", "late", "a")]
        assert [each.status for each in said] == [0, 0, 0]
        assert [each.err for each in said] == [
            "late: cancelled\n",
            "late: cancelled already\n",
            "a: finished already\n",
        ]
        said = [hocket("cluster", "drain", "node0", *undo) for undo in ((), (), ("--undo",), ("--undo",))]
        assert [each.status for each in said] == [0] * 4
        assert said[0].err == said[1].err == "node0: no job is placed there any more, 0 jobs are there\n"
        assert said[2].err == said[3].err == "node0: in use again, 0 jobs are there\n"
        assert [job.id for job in cluster.status().jobs] == ["a", "late"]


def test_whoever_has_another_token_or_no_manager_is_told_so(
    in_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.cluster.live.manager_address._CONNECT_S", 0.2)
    with served(in_tmp, monkeypatch) as cluster:
        monkeypatch.setenv("HOCKET_CLUSTER_TOKEN", new_credentials().without_key.text)
        said = refused(hocket("cluster", "status"))
        assert f"manager at {cluster.manager.address}: it has another certificate than the token's" in said
        assert "give the token it was started with, unless another host is in between" in said
        monkeypatch.setenv("HOCKET_CLUSTER_TOKEN", "0" * 64)
        assert refused(hocket("cluster", "status")).endswith(
            "HOCKET_CLUSTER_TOKEN holds 64 characters that are no token of Hocket's; copy what is in the "
            "file 'token' of the manager's --state FOLDER\n"
        )
        monkeypatch.setenv("HOCKET_CLUSTER_TOKEN", TOKEN)
    said = refused(hocket("cluster", "status"))
    assert f"nobody answers at {cluster.manager.address} (Connection refused); start it again" in said
    monkeypatch.setenv("HOCKET_CLUSTER", "here")
    assert "'here' is not host:port" in refused(hocket("cluster", "status"))


def test_jobs_come_from_standard_input(in_tmp: Path) -> None:
    job = live_job("a", command=("true",), folder=str(in_tmp))
    with standard_input(written("jobs.json", job)):
        assert read_live_jobs("-") == (job,)
    with standard_input(written("jobs.json")), pytest.raises(HocketError, match="-: jobs: is empty"):
        read_live_jobs("-")


def test_a_manager_that_is_starting_is_said_to_be(in_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.cluster.live.manager_address._CONNECT_S", 0.2)
    state, nobody = in_tmp / "c", f"127.0.0.1:{free_port('127.0.0.1')}"
    wait = "is starting, which takes minutes where it compiles; try again when it says 'manager at'"
    with starting(state):
        assert f"c: its manager {wait}" in refused(hocket("cluster", "status", "--state", "c"))
        leave_contact(state, Contact(address=nobody, token=TOKEN))
        for command in (("status",), ("why", "a"), ("logs", "a"), ("events",), ("cancel", "a")):
            said = refused(hocket("cluster", *command, "--state", "c"))
            assert f"nobody answers at {nobody} (Connection refused); it {wait}" in said
    said = refused(hocket("cluster", "status", "--state", "c"))
    assert "(Connection refused); start it again (hocket cluster serve): it goes on with its jobs" in said
