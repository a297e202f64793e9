"""What strangers do is said, and does not push what happened to jobs out of the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from hocket.launch.control import Guest, TransportError, connect
from hocket.launch.credentials import Credentials
from hocket.launch.rate_limited_log import RateLimitedLog
from tests.tokens import FINGERPRINT
from tests.unit.cluster.live.clusters import running
from tests.unit.cluster.live.test_manager import events, noting


class Clock:
    """The ``time`` of a module, which passes when we say so."""

    now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("hocket.launch.rate_limited_log.time", made)
    return made


def test_a_line_is_said_at_once_and_then_once_a_minute_with_how_often(clock: Clock) -> None:
    said: list[str] = []
    note = RateLimitedLog(said.append)
    for _ in range(1000):
        note("a was refused")
    note("b was refused")
    note.tell()
    assert said == ["a was refused", "b was refused"]
    clock.now_s += 61
    note.tell()
    assert said[2:] == ["a was refused (999 times more within a minute)"]
    note("a was refused")
    note("b was refused")  # not since a minute
    assert said[3:] == ["b was refused"]
    clock.now_s += 61
    note.tell()
    clock.now_s += 61
    note.tell()
    assert said[4:] == ["a was refused (1 times more within a minute)"]
    note("a was refused")
    assert said[5:] == ["a was refused"]
    note("a was refused")
    note.tell(ends=True)
    assert said[6:] == ["a was refused (1 times more within a minute)"]


def test_however_many_lines_there_are_few_are_written_down(clock: Clock) -> None:
    said: list[str] = []
    note = RateLimitedLog(said.append)
    for minute in range(5):
        for k in range(1000):
            note(f"{minute}.{k} was refused" + "x" * 1000)
        clock.now_s += 61
        note.tell()
    assert len(said) <= 5 * 2 * 17
    assert sum("0.1 was refused" in line for line in said) == 1
    assert any("(983 times more within a minute)" in line for line in said)
    assert max(map(len, said)) < 400


def test_a_flood_of_wrong_tokens_leaves_what_happened_to_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.cluster.live.database._MOST_EVENTS", 20)
    stranger = Credentials("not the cluster's", FINGERPRINT)
    with running(tmp_path, [noting("a", tmp_path)], until_idle=False) as cluster:
        cluster.until(lambda s: s.jobs[0].state == "finished")
        for _ in range(50):
            with pytest.raises(TransportError):
                connect(cluster.manager.address, stranger, Guest("rank", 0, "1-1"), 5.0)
    said = events(tmp_path)
    assert [what for _, job, what in said if job == "a"] == ["placed on node0, attempt 1", "finished"]
    refused = "127.0.0.1 was refused: it does not know the token"
    assert [what for _, _, what in said if refused in what] == [
        refused,
        f"{refused} (49 times more within a minute)",
    ]
