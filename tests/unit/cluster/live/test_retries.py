"""Attempts that fail as they begin by no fault of the job: the next one waits, longer each time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from hocket.cluster.live.manager_messages import AskEvents, Cancel
from hocket.cluster.live.nodes import FullError, LocalNode
from tests.unit.cluster.live.clusters import Running, live_job, running
from tests.unit.cluster.live.test_reasons import until_why

WAITS = ("sh", "-c", "sleep 1000")


class Full(LocalNode):
    """A node whose disk is full as long as ``is_full``."""

    is_full = True

    async def start(
        self, key: str, command: Sequence[str], environment: Mapping[str, str], folder: str
    ) -> None:
        if self.is_full:
            raise FullError(f"{self.name}: no space left")
        await super().start(key, command, environment, folder)


def pauses(cluster: Running) -> list[str]:
    """The ends of events that say when the job is tried again."""
    told = [event.what for event in cluster.ask(AskEvents(job="a")).events or ()]
    return [what.partition("; it is tried again")[2] for what in told if "; it is tried again" in what]


def test_a_job_that_a_full_disk_keeps_from_starting_is_tried_again_later_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.cluster.live.attempt_endings._LONGEST_RETRY_S", 3.0)
    node = Full("node0", tmp_path / "node0")
    with running(
        tmp_path, [live_job("a", command=WAITS)], nodes=[node], gpus=1, restarts=0, until_idle=False
    ) as cluster:
        cluster.until(lambda status: status.jobs[0].attempt >= 2)
        line = until_why(cluster, "a", r"attempt 2: cannot")
        assert re.fullmatch(
            r"a: is tried again in [12] s; attempt 2: cannot be started: a disk is full: node0: .*", line
        )
        cluster.until(lambda _: len(pauses(cluster)) >= 4)
        assert pauses(cluster)[:4] == ["", " in 2 s", " in 3 s", " in 3 s"]
        node.is_full = False
        cluster.until(lambda status: status.jobs[0].stage == "running")
        cluster.ask(Cancel("a"))
        cluster.until(lambda status: status.jobs[0].state == "cancelled")


def test_a_job_that_waits_to_be_tried_again_is_cancelled_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.cluster.live.attempt_endings._RETRY_S", 1000.0)
    node = Full("node0", tmp_path / "node0")
    with running(tmp_path, [live_job("a", command=WAITS)], nodes=[node], gpus=1, until_idle=False) as cluster:
        until_why(cluster, "a", "attempt 1: cannot")
        cluster.ask(Cancel("a"))
        cluster.until(lambda status: status.jobs[0].state == "cancelled")


@pytest.mark.parametrize("how", ["exit 1", "kill -KILL $$"])
def test_own_failures_and_attempts_that_ran_for_a_while_do_not_lengthen_the_pause(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.cluster.live.attempt_endings._EARLY_S", 0.0 if "KILL" in how else 1000.0)
    job = live_job("a", command=("sh", "-c", how), restarts=2)
    with running(tmp_path, [job], servers=1, gpus=1, restarts=2, until_idle=False) as cluster:
        cluster.until(lambda status: status.jobs[0].state == "failed")
        assert pauses(cluster) == ["", ""]
