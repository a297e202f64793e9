"""What a manager must not forget, and how often it waits for the disk."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path

import pytest

from hocket.cluster.live.database import Database, read_record
from hocket.cluster.live.job_record import Record
from hocket.errors import HocketError
from tests.unit.cluster.live.clusters import live_job


def records(count: int) -> list[Record]:
    return [Record(number=k, job=live_job(f"j{k}"), arrival_s=0.0) for k in range(1, count + 1)]


def test_what_is_written_together_waits_for_the_disk_once(tmp_path: Path) -> None:
    database = Database(tmp_path)
    said: list[str] = []
    database._connection.set_trace_callback(said.append)
    for k in range(20):
        database.note(float(k), None, "something")
    assert said == []
    database.add(records(20))
    database.put(records(20))
    assert said.count("COMMIT") == 2
    assert [time_s for time_s, _, _ in database.events()] == list(range(20))
    database.close()


def test_the_newest_events_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.cluster.live.database._MOST_EVENTS", 3)
    database = Database(tmp_path)
    for k in range(8):
        database.note(float(k), "a", "something")
        if k % 2:
            database.write_notes()
    database.close()
    database = Database(tmp_path)
    assert [time_s for time_s, _, _ in database.events()] == [5.0, 6.0, 7.0]
    database.close()


def test_nothing_of_what_cannot_be_written_is_kept(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.note(0.0, None, "something")
    with pytest.raises(sqlite3.IntegrityError):
        database.add([*records(2), *records(1)])
    assert database.jobs() == []
    assert len(database.events()) == 1  # what was noted is written with the next row
    database.close()


def test_jobs_of_an_earlier_version_are_read_and_have_computed_on_the_gpus_that_they_have(
    tmp_path: Path,
) -> None:
    database = Database(tmp_path)
    (record,) = records(1)
    record.gpus, record.parts = (2, 3), (1.5, 0.0, 0.0, 0.0)
    database.add([record])
    for column in ("placed_s", "tried", "leaving", "shrunk", "busy_gpu_s"):
        database._connection.execute(f"alter table jobs drop column {column}")
    read = read_record(database._connection, 1)
    assert read == record
    database.close()
    database = Database(tmp_path)
    record.busy_gpu_s = 3.0
    assert database.jobs() == [record]
    database.close()


def test_a_cluster_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.add(records(1))
    for column in ("cancelled", "lost"):
        database._connection.execute(f"alter table jobs drop column {column}")
    database._connection.execute("drop table drained")
    database.close()
    database = Database(tmp_path)
    (record,) = database.jobs()
    assert (record.job.id, record.cancelled, record.lost_attempts) == ("j1", False, 0)
    record.cancelled = True
    database.put([record])
    database.drain("node1", on=True)
    database.close()
    database = Database(tmp_path)
    assert database.jobs()[0].cancelled
    assert database.drained_nodes() == {"node1"}
    database.close()


def test_what_jobs_run_is_for_their_owner_alone(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.add(records(1))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("cluster.sqlite*")}
    assert set(modes.values()) == {0o600}, modes
    database.close()


def test_a_damaged_database_is_refused(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.add(records(200))
    database.close()
    path = tmp_path / "cluster.sqlite"
    data = path.read_bytes()
    path.write_bytes(data[:8192] + bytes(len(data) - 8192))
    with pytest.raises(HocketError, match="is no database of a cluster, or damaged"):
        Database(tmp_path)
    path.write_bytes(data)
    Database(tmp_path).close()  # nobody has it
