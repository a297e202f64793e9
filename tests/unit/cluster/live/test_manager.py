"""Real ranks under a manager: jobs end once, whatever is killed meanwhile."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import sys
import threading
import time
from pathlib import Path

import pytest

from hocket.cluster.live.database import Database
from hocket.cluster.live.manager_address import Contact, ask_manager
from hocket.cluster.live.manager_messages import AskStatus, Cancel, Drain, Submit
from hocket.errors import HocketError
from hocket.launch import control
from hocket.launch.control import Guest, TransportError, connect
from hocket.launch.credentials import Credentials, new_credentials
from hocket.launch.gate import GIVEN_UP
from hocket.launch.traffic import kept_iterations
from tests.tokens import FINGERPRINT, SECRET, TOKEN
from tests.unit.cluster.live.clusters import as_rank, live_job, running

# Leaves a line in a file of its own; nothing of Hocket's, so it starts at once.
NOTE = """import os, sys, time
open(sys.argv[1], 'a').write(os.environ['RANK'] + '\\n')
time.sleep(float(sys.argv[2]))"""


def noting(name: str, folder: Path, seconds: float = 0.0, gpus: int = 1, **changes: object):
    command = (sys.executable, "-c", NOTE, str(folder / f"{name}.ran"), str(seconds))
    return live_job(name, gpus, command=command, **changes)


@pytest.mark.parametrize("policy", ["srsf-1", pytest.param("srpt", marks=pytest.mark.slow)])
def test_jobs_run_to_their_end(tmp_path: Path, policy: str) -> None:
    jobs = [live_job("wide", 4), live_job("pair", 2, arrival_s=0.1), live_job("alone", 1, size_bytes=0.0)]
    with running(tmp_path, jobs, policy=policy) as cluster:
        records = cluster.join()
    assert {r.state for r in records.values()} == {"finished"}
    for job in jobs:
        record = records[job.id]
        assert record.attempt == 1
        assert record.finish_s - record.start_s >= job.iterations * (job.forward_s + job.backward_s)
        assert record.parts[0] == pytest.approx(job.iterations * (job.forward_s + job.backward_s), rel=0.2)
    assert records["wide"].parts[2] > 0
    assert kept_iterations((tmp_path / "jobs" / "1" / "iterations").read_text(), 4) == 4


def test_a_rank_that_fails_is_said_and_tried_again(tmp_path: Path) -> None:
    command = (sys.executable, "-c", "print('no \\x1b[2Jdata'); raise SystemExit(3)")
    failing = live_job("bad", command=command, restarts=1)
    with running(tmp_path, [failing, live_job("good")]) as cluster:
        records = cluster.join()
    assert records["good"].state == "finished"
    assert (records["bad"].state, records["bad"].attempt) == ("failed", 2)
    assert "status 3: no \ufffd[2Jdata" in records["bad"].why


@pytest.mark.slow
def test_a_killed_rank_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    with running(tmp_path, [live_job("a", 4, iterations=40)]) as cluster:
        cluster.until(lambda status: status.jobs[0].iteration >= 5)
        kept = kept_iterations((tmp_path / "jobs" / "1" / "iterations").read_text(), 4)
        os.kill(rank_of(tmp_path / "node1" / "1-1-3"), signal.SIGKILL)
        record = cluster.join()["a"]
    assert (record.state, record.attempt) == ("finished", 2)
    assert kept >= 4
    again = [e for _, job, e in events(tmp_path) if job == "a"]
    assert any("rank 3 on node1 was killed by SIGKILL" in line for line in again)


def test_a_job_goes_on_with_another_number_of_gpus(tmp_path: Path) -> None:
    """4 ranks have run some of 30 iterations; 2 go on with twice what is left, and know what was run."""
    job = live_job("a", 4, iterations=30, gpus_min=2)
    with running(tmp_path, [job], until_idle=False) as cluster:
        cluster.until(lambda status: status.jobs[0].iteration >= 5)
        cluster.ask(Drain("node1"))
        os.kill(rank_of(tmp_path / "node1" / "1-1-3"), signal.SIGKILL)
        two = cluster.until(lambda s: s.jobs[0].attempt == 2 and s.jobs[0].state == "running").jobs[0]
        over = cluster.until(lambda s: s.jobs[0].state == "finished").jobs[0]
    assert (len(two.gpus), len(two.tried[0].gpus)) == (2, 4)
    assert two.iteration >= 10
    assert (over.iteration, over.iterations) == (60, 60)
    assert kept_iterations((tmp_path / "jobs" / "1" / "iterations").read_text(), 2) == 60


def test_what_is_kept_is_counted_in_iterations_of_as_many_ranks() -> None:
    assert kept_iterations("", 4) == 0
    assert kept_iterations("12", 4) == 12  # of as many, where it names none
    assert kept_iterations("12 4", 4) == 12
    assert kept_iterations("12 4", 3) == 16
    assert kept_iterations("no number", 4) == 0


def rank_of(place: Path) -> int:
    """The process that a guard watches: the one of their group whose parent is in it."""
    group = int(place.with_name(place.name + ".pid").read_text())
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.getpgid(int(path.name)) == group:
                found[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
    (rank,) = [pid for pid, parent in found.items() if parent in found]
    return rank


def events(folder: Path) -> list[tuple[float, str | None, str]]:
    database = Database(folder)
    try:
        return database.events()
    finally:
        database.close()


@pytest.mark.slow
def test_another_manager_goes_on_with_what_runs(tmp_path: Path) -> None:
    jobs = [
        live_job("a", 4, iterations=60),
        noting("b", tmp_path, 3.0),
        noting("queued", tmp_path, gpus=4, memory_bytes=9.5),
    ]
    with running(tmp_path, jobs, until_idle=False, keep=True) as cluster:
        before = cluster.until(lambda s: s.jobs[0].iteration >= 5 and (tmp_path / "b.ran").exists())
        assert before.jobs[2].state == "queued"
        iteration = before.jobs[0].iteration
    with running(tmp_path) as cluster:
        records = cluster.join()
    assert {r.state for r in records.values()} == {"finished"}
    assert [r.attempt for r in records.values()] == [1, 1, 1]
    assert iteration >= 5
    assert (tmp_path / "b.ran").read_text() == "0\n"
    assert sorted((tmp_path / "queued.ran").read_text().split()) == ["0", "1", "2", "3"]


def test_an_attempt_that_was_written_down_and_not_started_is_started_once(tmp_path: Path) -> None:
    with running(tmp_path, [noting("a", tmp_path, arrival_s=1000.0)], until_idle=False):
        pass
    database = Database(tmp_path)
    (record,) = database.jobs()
    record.state, record.attempt, record.gpus, record.start_s = "running", 1, (0,), 0.5
    database.put([record])
    database.close()
    with running(tmp_path, restarts=0) as cluster:
        record = cluster.join()["a"]
    assert (record.state, record.attempt) == ("finished", 2)
    assert (tmp_path / "a.ran").read_text() == "0\n"


def test_two_managers_do_not_share_a_cluster(tmp_path: Path) -> None:
    with (
        running(tmp_path, until_idle=False),
        pytest.raises(HocketError, match="another manager runs"),
        running(tmp_path),
    ):
        pass


@pytest.mark.slow
def test_many_submissions_at_once_are_all_kept(tmp_path: Path) -> None:
    refused: list[Exception] = []

    def submit(k: int) -> None:
        try:
            contact = Contact(address=cluster.manager.address, token=TOKEN)
            notes = ask_manager(contact, Submit((live_job(f"j{k}", arrival_s=1e6),))).notes
            assert notes == (f"j{k}: queued",)
        except Exception as error:
            refused.append(error)

    with running(tmp_path, until_idle=False) as cluster:
        threads = [threading.Thread(target=submit, args=[k]) for k in range(200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert refused == []
        again = cluster.ask(Submit((live_job("j7", arrival_s=3.0),))).notes
        assert again == ("j7: queued, it was submitted before",)
        with pytest.raises(HocketError, match="'j8' is known and another one"):
            cluster.ask(Submit((live_job("j8", iterations=5),)))
        with pytest.raises(HocketError, match="can never be placed"):
            cluster.ask(Submit((live_job("huge", gpus=5),)))
    database = Database(tmp_path)
    assert sorted(r.job.id for r in database.jobs()) == sorted(f"j{k}" for k in range(200))
    database.close()


def test_jobs_are_cancelled_wherever_they_are(tmp_path: Path) -> None:
    jobs = [
        noting("runs", tmp_path, 100.0),
        live_job("to arrive", arrival_s=1e6),
        live_job("wide", 4, iterations=10**6),
    ]
    with running(tmp_path, jobs) as cluster:
        cluster.until(lambda s: (tmp_path / "runs.ran").exists() and s.jobs[2].iteration > 1)
        for job in jobs:
            assert cluster.ask(Cancel(job.id)).notes == (f"{job.id}: cancelled",)
        with pytest.raises(HocketError, match="job 'nobody' is unknown"):
            cluster.ask(Cancel("nobody"))
        records = cluster.join()
    assert {r.state for r in records.values()} == {"cancelled"}


def test_what_was_answered_is_not_forgotten(tmp_path: Path) -> None:
    with running(tmp_path, [noting("a", tmp_path, 100.0)], until_idle=False, keep=True) as cluster:
        cluster.until(lambda s: (tmp_path / "a.ran").exists())
        assert cluster.ask(Drain("node0", True)).notes[0].endswith("1 job is there")
        assert cluster.ask(Cancel("a")).notes == ("a: cancelled",)
        # The manager ends here, before it has seen any rank end.
    with running(tmp_path, [noting("b", tmp_path)]) as cluster:
        records = cluster.join()
    assert (records["a"].state, records["a"].attempt) == ("cancelled", 1)
    assert records["b"].gpus[0] >= 2
    assert cluster.manager._commands.status().drained == ("node0",)


def test_what_cannot_be_kept_is_not_done(tmp_path: Path) -> None:
    with running(tmp_path, until_idle=False) as cluster:
        cluster.ask(Submit((noting("a", tmp_path, arrival_s=1e6),)))
        cluster.manager._database._connection.execute("pragma query_only = on")
        with pytest.raises(HocketError, match="cannot be kept that it is to end"):
            cluster.ask(Cancel("a"))
        with pytest.raises(HocketError, match="node0 is as it was"):
            cluster.ask(Drain("node0", True))
        status = cluster.status()
        assert (status.jobs[0].state, status.drained) == ("queued", ())
        cluster.manager._database._connection.execute("pragma query_only = off")


def test_a_drained_node_gets_no_job(tmp_path: Path) -> None:
    with running(tmp_path, until_idle=False) as cluster:
        assert cluster.ask(Drain("node0", True)).notes == (
            "node0: no job is placed there any more, 0 jobs are there",
        )
        cluster.ask(Submit((noting("a", tmp_path),)))
        status = cluster.until(lambda s: s.jobs[0].state == "finished")
        assert status.drained == ("node0",)
        assert status.jobs[0].gpus[0][0] == 1
        with pytest.raises(HocketError, match="node 'node7' is unknown"):
            cluster.ask(Drain("node7", True))


@pytest.mark.slow
def test_strangers_disturb_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.cluster.live.manager_server.HANDSHAKE_S", 0.5)
    with running(tmp_path, [live_job("a", 4, iterations=50)]) as cluster:
        address = cluster.manager.address
        cluster.until(lambda s: s.jobs[0].iteration >= 1)
        with pytest.raises(HocketError, match="another certificate than the token's"):
            ask_manager(Contact(address=address, token=new_credentials().text), AskStatus())
        stranger = Credentials("not the cluster's", FINGERPRINT)
        with pytest.raises(TransportError, match="closed"):
            connect(address, stranger, Guest("rank", 0, "1-1"), 5.0)
        host, port = address.split(":")
        with socket.create_connection((host, int(port))) as slow:  # says nothing
            slow.settimeout(5)
            while slow.recv(1000):
                pass
        friend = as_rank(address, "1-1")
        friend._stream.send(struct.pack("<I", 1 << 31))  # more than anybody may say
        with pytest.raises(TransportError):
            friend.receive(control.Welcome)
        drip = as_rank(address, "1-1")
        drip._stream.send(struct.pack("<I", 100) + b"{")  # begins, and does not go on
        with pytest.raises(TransportError):
            drip.receive(control.Welcome)
        record = cluster.join()["a"]
    assert (record.state, record.attempt) == ("finished", 1)
    said = " ".join(what for _, _, what in events(tmp_path))
    for why in ("does not know the token", "did not say who it is", "at most", "it is too slow"):
        assert why in said


def test_a_rank_of_an_attempt_that_was_given_up_is_sent_away(tmp_path: Path) -> None:
    from hocket.cluster.live.runnable_jobs import attempt_token

    with running(tmp_path, until_idle=False) as cluster:
        with pytest.raises(TransportError, match=GIVEN_UP):
            as_rank(cluster.manager.address, "7-1")
        theirs = Credentials(attempt_token(SECRET, "7-1"), FINGERPRINT)
        contact = Contact(address=cluster.manager.address, token=theirs.text)
        with pytest.raises(HocketError, match="token is missing, or it is another"):  # it is no command's
            ask_manager(contact, AskStatus())


def test_shared_gpus_are_used_in_turn(tmp_path: Path) -> None:
    # Two jobs that compute 0.2 s on one GPU: together they cannot be faster than one after the other.
    jobs = [live_job(name, iterations=5, size_bytes=0.0) for name in ("a", "b")]
    with running(tmp_path, jobs, servers=1, gpus=1) as cluster:
        records = cluster.join()
    ends = [record.finish_s - record.start_s for record in records.values()]
    assert max(ends) >= 2 * 5 * 0.04
    assert sum(record.parts[1] for record in records.values()) >= 0.1


@pytest.mark.slow
def test_ranks_go_on_without_a_gate(tmp_path: Path) -> None:
    with running(tmp_path, [live_job("a", 4, iterations=30)], until_idle=False, keep=True) as cluster:
        cluster.until(lambda s: s.jobs[0].iteration >= 3)
        nodes = cluster.nodes
    kept = tmp_path / "jobs" / "1" / "iterations"
    deadline = time.monotonic() + 20
    while kept_iterations(kept.read_text(), 4) < 30:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    said = (tmp_path / "node0" / "1-1-0.out").read_text()
    assert said.count("training goes on") == 1
    with running(tmp_path) as cluster:
        record = cluster.join()["a"]
    assert (record.state, record.attempt, record.iteration) == ("finished", 1, 30)
    assert nodes
