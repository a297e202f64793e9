"""A disk that jobs have filled: the manager goes on, and what has finished counts as finished."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hocket.cluster.live.database import Database
from hocket.cluster.live.job_record import Record
from hocket.cluster.live.manager_address import Contact, leave_contact
from hocket.cluster.live.manager_messages import AskStatus, Submit
from hocket.errors import HocketError
from hocket.launch.guard import MOST_BYTES, cut
from hocket.launch.rank_processes import Ranks
from tests.unit.cluster.live.clusters import LIMIT_S, live_job, running

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 32 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(folder)], capture_output=True, timeout=30
    )
    if made.returncode:
        pytest.skip(f"no disk can be mounted: {made.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, timeout=30)


def fill(folder: Path) -> None:
    """Leave no byte of the disk free."""
    with contextlib.suppress(OSError), (folder / "filler").open("ab", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))
    with contextlib.suppress(OSError), (folder / "filler").open("ab", buffering=0) as file:
        while True:
            file.write(b"0")


def test_jobs_end_as_they_do_while_one_fills_the_disk(disk: Path) -> None:
    greedy = ("sh", "-c", "cat /dev/zero > $HOCKET_CHECKPOINT/all 2>&1; touch ../full; sleep 4")
    talker = ("sh", "-c", "timeout 3 yes; exit 0")
    # It ends while nothing can be written.
    modest = ("sh", "-c", "while ! test -e ../full; do sleep 0.1; done; exit 0")
    beside = str(disk.parent / "work")
    os.mkdir(beside)
    jobs = [
        live_job(name, command=command, folder=beside)
        for name, command in (("greedy", greedy), ("talker", talker), ("modest", modest))
    ]
    with running(disk / "state", jobs, servers=1, gpus=3) as cluster:
        records = cluster.join()
    assert {name: (record.state, record.why) for name, record in records.items()} == {
        "greedy": ("finished", ""),
        "talker": ("finished", ""),
        "modest": ("finished", ""),
    }


def test_a_full_disk_does_not_end_the_manager_and_what_was_acknowledged_is_kept(disk: Path) -> None:
    waits = ("sh", "-c", "sleep 1000")
    with running(disk / "state", [live_job("a", command=waits)], servers=1, until_idle=False) as cluster:
        cluster.until(lambda status: status.jobs[0].state == "running")
        fill(disk)
        acknowledged = ["a"]
        for k in range(20):
            with contextlib.suppress(HocketError):
                cluster.ask(Submit(jobs=(live_job(f"later{k}", command=waits),)))
                acknowledged.append(f"later{k}")
        assert cluster.ask(AskStatus()).status is not None
        assert len(acknowledged) > 1
    (disk / "filler").unlink()
    with running(disk / "state", servers=1, nodes=cluster.nodes, until_idle=False) as again:
        assert [record.job.id for record in again.manager.records] == acknowledged


def test_changes_of_jobs_need_no_room_on_the_disk(disk: Path) -> None:
    database = Database(disk)
    record = Record(number=1, job=live_job("a"), arrival_s=0.0)
    database.add([record])
    fill(disk)
    with pytest.raises(OSError, match="No space"):
        (disk / "another").write_bytes(bytes(4096))
    for attempt in range(2000):
        record.attempt, record.state = attempt, "running"
        database.note(float(attempt), "a", "placed on node0, again " * 20)
        database.put([record])
        database.keep_reserve()
    database.close()
    with contextlib.closing(sqlite3.connect(disk / "cluster.sqlite")) as kept:
        assert kept.execute("select attempt from jobs").fetchall() == [(1999,)]


def test_what_was_printed_is_cut_on_a_full_disk(disk: Path) -> None:
    said = b"line\n" * (MOST_BYTES // 5 + 1000)
    (disk / "a.out").write_bytes(said)
    fill(disk)
    assert cut(str(disk / "a"))
    assert (disk / "a.out").stat().st_size == 0
    assert (disk / "a.earlier").read_bytes() == said[-MOST_BYTES:]
    assert not cut(str(disk / "a"))


def test_a_rank_that_finds_no_room_is_not_started_and_one_that_runs_leaves_its_status(disk: Path) -> None:
    ranks = Ranks(disk / "ranks", ())
    (disk / "go").touch()
    ranks.start(
        "1-1-0", ["sh", "-c", "while test -e ../go; do sleep 0.1; done; exit 7"], {}, str(disk / "ranks")
    )
    fill(disk)
    with pytest.raises(OSError, match="No space"):
        ranks.start("1-1-1", ["true"], {}, str(disk / "ranks"))
    assert ranks.conditions()["1-1-0"] is None
    (disk / "go").unlink()
    fill(disk)
    deadline_s = time.monotonic() + LIMIT_S
    while ranks.conditions()["1-1-0"] is None:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    assert ranks.conditions()["1-1-0"] == 7


def test_a_contact_that_a_full_disk_does_not_take_is_named(disk: Path) -> None:
    fill(disk)
    with pytest.raises(HocketError, match=r"contact\.json: cannot be written: No space left on device"):
        leave_contact(disk, Contact(address="127.0.0.1:1", token="t" * 8000, page=""))
