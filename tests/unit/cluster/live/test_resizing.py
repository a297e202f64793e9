"""Real ranks of jobs that go on with fewer GPUs or with more, also under another manager."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.live.database import Database
from hocket.cluster.live.job_record import Record
from hocket.cluster.live.manager_messages import Cancel, Drain, Status, Submit
from hocket.cluster.live.result_row import live_row
from hocket.cluster.results.run_statistics import ClusterRow, check_cluster_row
from tests.unit.cluster.live.clusters import live_job, running
from tests.unit.cluster.live.test_preempted_over_restarts import noting
from tests.unit.cluster.live.test_reasons import until_why, why

GPUS = 4
CHANGES: dict[str, Any] = {"servers": 1, "gpus": GPUS, "memory": 16e9, "resize": True}


def wide(folder: Path, **changes: object):
    """A job of two to four GPUs that takes two seconds to save, and says that it takes half of one."""
    fields = {"steps": 150, "gpus_min": 2, "iterations": 10**6, "checkpoint_s": 0.5}
    return noting("wide", folder, GPUS, **fields | changes)


def notes(folder: Path) -> list[list[str]]:
    """What ranks said: what they do, attempt, rank, step, and when."""
    path = folder / "notes"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def has_paid_off(folder: Path) -> Callable[[Status], bool]:
    """True once the wide job has had its GPUs for longer than a resize costs it."""

    def due(status: Status) -> bool:
        placed_s = status.jobs[0].placed_s
        return len(notes(folder)) >= GPUS and placed_s is not None and status.now_s - placed_s > 1.6

    return due


def saves(folder: Path) -> Callable[[Status], bool]:
    return lambda status: (
        sum(what == "asked" for what, *_ in notes(folder)) >= GPUS and status.jobs[0].stage == "saving"
    )


def check_ranks(folder: Path, numbers: Sequence[int]) -> None:
    """The attempts of the wide job had so many ranks, and went on where the one before saved."""
    rows = notes(folder)
    attempts = [f"1-{number}" for number in range(1, len(numbers) + 1)]
    for attempt, number in zip(attempts, numbers, strict=True):
        assert sum((what, of) == ("begin", attempt) for what, of, *_ in rows) == number
    steps = {(what, of): int(step) for what, of, rank, step, _ in rows if rank == "0"}
    for before, after in itertools.pairwise(attempts):
        assert 0 < steps["end", before] == steps["begin", after]
    assert steps["end", attempts[-1]] == 150
    at_once = 0
    for what, *_ in sorted(rows, key=lambda row: (float(row[-1]), row[0] == "begin")):
        at_once += {"begin": 1, "end": -1, "asked": 0}[what]
        assert 0 <= at_once <= GPUS, "a GPU was given twice"


def check_row(records: dict[str, Record]) -> None:
    """The figures of a run have how often jobs were resized, and how long their GPUs computed together."""
    scheduling = Scheduling(placement="ls", policy="srsf-1", resize=True)
    cluster = Cluster(num_servers=1, gpus_per_server=GPUS)
    row = live_row(list(records.values()), cluster, scheduling, source="jobs.json", events=1, wall_s=1.0)
    assert row is not None
    assert row.preemption is not None
    assert (row.preemption.preemptions, row.preemption.shrunk, row.preemption.grown) == (0, 1, 1)
    check_cluster_row(msgspec.convert(msgspec.to_builtins(row), ClusterRow), "row")


def check_metrics(text: str) -> None:
    values = {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert values["hocket_job_retries_total"] == 0
    assert (values["hocket_job_resizes_total"], values["hocket_job_preemptions_total"]) == (2, 0)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    """Each change of a job as it is written to the database: its id, state and attempt."""
    rows: list[tuple[str, str, int]] = []
    put = Database.put

    def noting_put(database: Database, records: Sequence[Record]) -> None:
        rows.extend((record.job.id, record.state, record.attempt) for record in records)
        put(database, records)

    monkeypatch.setattr(Database, "put", noting_put)
    return rows


def test_a_job_gives_gpus_to_one_that_waits_and_takes_them_when_nobody_does(
    tmp_path: Path, written: list[tuple[str, str, int]]
) -> None:
    with running(tmp_path, [wide(tmp_path)], **CHANGES) as cluster:
        cluster.until(has_paid_off(tmp_path))
        cluster.ask(Submit((noting("two", tmp_path, 2, steps=40, iterations=20),)))
        line = until_why(cluster, "wide", "saves")
        assert line.endswith("wide: saves what it has: shrunk from 4 to 2 GPUs for two; has 4 of 2 to 4 GPUs")
        assert why(cluster, "two") == "two: has its GPUs once wide has saved"
        records = cluster.join()
    record = records["wide"]
    assert {each.state for each in records.values()} == {"finished"}
    assert (record.attempt, record.shrunk, record.grown, record.preempted) == (3, 1, 1, 0)
    assert [each.why for each in record.tried] == [
        "shrunk from 4 to 2 GPUs for two", "grown from 2 to 4 GPUs",
    ]  # fmt: skip
    assert records["two"].attempt == 1
    check_ranks(tmp_path, [4, 2, 4])
    # The end of an attempt and the beginning of the next are one change.
    assert {state for job, state, _ in written if job == "wide"} == {"running", "finished"}
    check_row(records)
    check_metrics(cluster.manager._backend.metrics())


def test_a_job_takes_idle_gpus_once_that_pays_though_nothing_happens(tmp_path: Path) -> None:
    """The other one is over long before the two seconds that a resize costs."""
    jobs = [noting("one", tmp_path, 3, steps=1, iterations=1), wide(tmp_path, gpus_min=1, checkpoint_s=1.0)]
    with running(tmp_path, jobs, **CHANGES) as cluster:
        records = cluster.join()
    record = records["wide"]
    assert {each.state for each in records.values()} == {"finished"}
    assert [each.why for each in record.tried] == ["grown from 1 to 4 GPUs"]
    assert len(record.gpus) == GPUS
    one, left_s = records["one"].finish_s, record.tried[0].end_s
    assert one is not None
    assert one + 1.0 < left_s, "it ended as the other one did"


def test_another_manager_goes_on_while_it_saves_to_shrink(tmp_path: Path) -> None:
    with running(tmp_path, [wide(tmp_path)], keep=True, **CHANGES) as first:
        first.until(has_paid_off(tmp_path))
        # The third of them would fit on what the wide one is to keep, were that anybody's.
        jobs = [noting(f"one{k}", tmp_path, 1, steps=40, iterations=20) for k in range(3)]
        first.ask(Submit(tuple(jobs)))
        first.until(saves(tmp_path))
    with running(tmp_path, **CHANGES) as second:
        assert saves(tmp_path)(second.status())
        records = second.join()
    assert {each.state for each in records.values()} == {"finished"}
    assert records["wide"].shrunk >= 1
    assert records["wide"].leaving is None
    numbers = [len(each.gpus) for each in records["wide"].tried] + [len(records["wide"].gpus)]
    check_ranks(tmp_path, numbers)


def test_a_job_whose_kept_gpus_are_drained_as_it_saves_queues(tmp_path: Path) -> None:
    with running(tmp_path, [wide(tmp_path)], until_idle=False, **CHANGES) as cluster:
        cluster.until(has_paid_off(tmp_path))
        cluster.ask(Submit((noting("two", tmp_path, 2, steps=40, iterations=20),)))
        cluster.until(saves(tmp_path))
        cluster.ask(Drain("node0"))
        line = until_why(cluster, "wide", "is drained")
        assert "wide: waits for 2 to 4 GPUs" in line
        assert line.endswith("shrunk from 4 to 2 GPUs for two, and queued, as node0 took no jobs then")
        cluster.ask(Cancel("wide"))
        cluster.until(lambda status: status.jobs[0].state == "cancelled")
    assert "1-2" not in {attempt for _, attempt, *_ in notes(tmp_path)}


def test_one_that_is_cancelled_before_its_gpus_are_free_is_said_to_have_no_ranks(tmp_path: Path) -> None:
    with running(tmp_path, [wide(tmp_path)], until_idle=False, **CHANGES) as cluster:
        cluster.until(has_paid_off(tmp_path))
        cluster.ask(Submit((noting("two", tmp_path, 2, steps=40, iterations=20),)))
        cluster.until(saves(tmp_path))
        cluster.ask(Cancel("two"))
        assert why(cluster, "two") == (
            "two: it was cancelled by a command as it waited for its GPUs; it is over once wide has saved"
        )
        cluster.until(lambda status: status.jobs[1].state == "cancelled")
        cluster.ask(Cancel("wide"))
        cluster.until(lambda status: status.jobs[0].state == "cancelled")
    assert not any(attempt.startswith("2-") for _, attempt, *_ in notes(tmp_path))


@pytest.mark.parametrize("says", [True, False])
def test_who_says_no_checkpoint_is_never_resized(says: bool, tmp_path: Path) -> None:
    changes = {"gpus_min": 1, "command": ("sleep", "1000"), "memory_bytes": 16e9}
    job = live_job("wide", GPUS, **changes | ({"checkpoint_s": 1.0} if says else {}))
    with running(tmp_path, [job], until_idle=False, **CHANGES) as cluster:
        line = until_why(cluster, "wide", "runs a program")
        assert line.endswith("; never resized, it says no checkpoint_s; has 4 of 1 to 4 GPUs") != says
        cluster.ask(Cancel("wide"))
        cluster.until(lambda status: status.jobs[0].state == "cancelled")
