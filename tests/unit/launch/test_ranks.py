"""Ranks of a folder: their statuses, wherever they run, and the end of all that they have started."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from hocket.launch.ranks import LOST, Ranks

LIMIT_S = 40.0
# As launchers do: a worker in a session of its own, which does not inherit what it was not given.
LAUNCHER = """import os, signal, subprocess, sys, time
if sys.argv[1] == "holds on":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
worker = subprocess.Popen(["sleep", "1000"], start_new_session=True)
open("new", "w").write(str(worker.pid)); os.replace("new", "worker")
if sys.argv[1] == "holds on":
    time.sleep(1000)
raise SystemExit(int(sys.argv[2]))"""


def until_ended(ranks: Ranks, *keys: str) -> dict[str, int | None]:
    deadline = time.monotonic() + LIMIT_S
    while None in (found := ranks.conditions()).values():
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    assert sorted(found) == sorted(keys)
    return found


def runs(pid: int) -> bool:
    path = Path("/proc", str(pid), "cmdline")
    return path.exists() and bool(path.read_bytes())  # at most its parent has yet to hear of its end


@pytest.mark.parametrize("status", [0, 3])
def test_what_a_rank_leaves_behind_ends_with_it(tmp_path: Path, status: int) -> None:
    ranks = Ranks(tmp_path / "ranks", ())
    ranks.start("a", [sys.executable, "-c", LAUNCHER, "ends", str(status)], {}, str(tmp_path))
    ranks.start("b", ["sleep", "1000"], {}, str(tmp_path))
    deadline = time.monotonic() + LIMIT_S
    while (found := ranks.conditions())["a"] is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert found == {"a": status, "b": None}
    assert not runs(int((tmp_path / "worker").read_text()))
    ranks.kill("b")
    assert until_ended(ranks, "a", "b") == {"a": status, "b": LOST}


def test_what_holds_on_is_killed_in_all_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.launch.ranks._GRACE_S", 0.1)
    ranks = Ranks(tmp_path / "ranks", ())
    ranks.start("a", [sys.executable, "-c", LAUNCHER, "holds on"], {}, str(tmp_path))
    deadline = time.monotonic() + LIMIT_S
    while not (tmp_path / "worker").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    worker = int((tmp_path / "worker").read_text())
    assert runs(worker)
    again = Ranks(tmp_path / "ranks", ())  # which has not started it
    again.stop("a")
    assert until_ended(again, "a") == {"a": LOST}
    assert not runs(worker)
    again.stop("a")  # late, as it may be asked twice
    assert again.conditions() == {"a": LOST}
    again.forget("a")
    assert again.conditions() == {}


def test_a_folder_may_be_named_from_here_and_ranks_run_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    ranks = Ranks("ranks", ())
    ranks.start("a", ["sh", "-c", "pwd; kill -9 $$"], {}, str(elsewhere))
    assert until_ended(ranks, "a") == {"a": -signal.SIGKILL}
    assert ranks.output("a") == f"{os.path.realpath(elsewhere)}\n"
