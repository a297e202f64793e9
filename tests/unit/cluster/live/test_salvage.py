"""A damaged database: what runs is listed, and ended or taken over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hocket.cluster.live.database import Database
from hocket.cluster.live.manager_messages import Submit
from hocket.cluster.live.salvage import end_ranks_of, remains_of, take_over
from hocket.errors import HocketError
from tests.unit.cli.test_commands import hocket, refused
from tests.unit.cluster.live.clusters import live_job, running

WAITS = ("sh", "-c", "while ! test -e go; do sleep 0.05; done")


@pytest.fixture
def damaged(tmp_path: Path) -> Iterator[Path]:
    """A cluster with a job that runs and many in its queue, of whose database a page of jobs is gone."""
    folder, work = tmp_path / "c", tmp_path / "work"
    work.mkdir()
    job = live_job("runs", command=WAITS, folder=str(work))
    try:
        with running(folder, [job], until_idle=False, keep=True) as cluster:
            cluster.until_ranks_run()
            cluster.ask(Submit(tuple(live_job(f"late{k}", arrival_s=1e6) for k in range(200))))
        path = folder / "cluster.sqlite"
        Database(folder).close()
        data = bytearray(path.read_bytes())
        page = data.index(b'"id":"late150"') // 4096
        data[page * 4096 : (page + 1) * 4096] = bytes(4096)
        path.write_bytes(data)
        yield folder
    finally:
        (work / "go").touch()


def test_what_runs_is_taken_over(damaged: Path) -> None:
    folder = damaged
    with pytest.raises(HocketError, match=r"damaged: .*; hocket cluster salvage "):
        Database(folder)
    said = hocket("cluster", "salvage", str(folder))
    assert said.out.startswith("node")
    assert "rank 0 of runs, attempt 1, runs\nthe database is damaged; " in said.out
    assert "give --take-over" in said.err
    remains = remains_of(folder)
    assert 0 < remains.unreadable < 100
    assert len(remains.records) + remains.unreadable == 201
    assert "taken over" in hocket("cluster", "salvage", str(folder), "--take-over").err
    (folder.parent / "work" / "go").touch()
    with running(folder, until_idle=False) as cluster:
        status = cluster.until(lambda s: s.jobs[0].state == "finished")
        assert (status.jobs[0].id, status.jobs[0].attempt) == ("runs", 1)
        assert len(status.jobs) == len(remains.records)
    assert (folder / "cluster.sqlite.damaged").exists()
    assert "nothing is to be salvaged" in hocket("cluster", "salvage", str(folder)).err


def test_what_runs_is_ended(damaged: Path) -> None:
    remains = remains_of(damaged)
    assert len(remains.ranks) == 1
    end_ranks_of(remains)
    assert remains_of(damaged).ranks == []


def test_without_settings_nothing_is_taken_over(tmp_path: Path) -> None:
    assert "has no cluster.sqlite" in refused(hocket("cluster", "salvage", str(tmp_path)))
    (tmp_path / "cluster.sqlite").write_bytes(b"SQLite format 3\0" + bytes(8192))
    remains = remains_of(tmp_path)
    assert (remains.is_whole, remains.records, remains.ranks) == (False, [], [])
    with pytest.raises(HocketError, match="settings cannot be read"):
        take_over(tmp_path, remains)
    assert "give one of them" in refused(hocket("cluster", "salvage", str(tmp_path), "--end", "--take-over"))
