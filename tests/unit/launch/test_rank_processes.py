"""Ranks of a folder: their statuses, wherever they run, and the end of all that they have started."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from hocket.launch.guard import MOST_BYTES, cut
from hocket.launch.rank_processes import LOST, Ranks

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


@pytest.mark.parametrize("session", ["", "setsid "])
def test_what_a_rank_leaves_behind_with_its_files_ends_with_it(tmp_path: Path, session: str) -> None:
    """A shell gives what it starts in the background all that it has itself, the rank's lock as well."""
    ranks = Ranks(tmp_path / "ranks", ())
    stays = f"{session}sh -c 'echo $$ > left; exec sleep 1000' &"
    script = f"{stays} while ! test -s left; do sleep 0.02; done; exit 3"
    ranks.start("a", ["sh", "-c", script], {}, str(tmp_path))
    assert until_ended(ranks, "a") == {"a": 3}
    assert not runs(int((tmp_path / "left").read_text()))


def test_what_holds_on_is_killed_in_all_sessions(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path / "ranks", ())
    ranks.start("a", [sys.executable, "-c", LAUNCHER, "holds on"], {}, str(tmp_path))
    deadline = time.monotonic() + LIMIT_S
    while not (tmp_path / "worker").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    worker = int((tmp_path / "worker").read_text())
    assert runs(worker)
    again = Ranks(tmp_path / "ranks", ())  # which has not started it
    again.stop("a", 0.1)
    assert until_ended(again, "a") == {"a": -signal.SIGKILL}
    assert not runs(worker)
    again.stop("a")  # late, as it may be asked twice
    assert again.conditions() == {"a": -signal.SIGKILL}
    again.forget("a")
    assert again.conditions() == {}


def test_a_rank_is_asked_to_end_once_whoever_asks(tmp_path: Path) -> None:
    """A second signal would disturb it as it saves; it is made to end when the second one says."""
    ranks, asked = Ranks(tmp_path / "ranks", ()), tmp_path / "asked"
    script = "trap 'echo asked >> asked' TERM; touch ready; while true; do sleep 0.02; done"
    ranks.start("a", ["sh", "-c", script], {}, str(tmp_path))
    while not (tmp_path / "ready").exists():
        time.sleep(0.02)
    ranks.stop("a", 60.0)
    while not asked.exists():
        time.sleep(0.02)
    again = Ranks(tmp_path / "ranks", ())
    again.stop("a", 0.3)
    assert until_ended(again, "a") == {"a": -signal.SIGKILL}
    assert asked.read_text() == "asked\n"


def test_a_rank_that_could_not_be_started_was_not(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path / "ranks", ())
    with pytest.raises(FileNotFoundError):
        ranks.start("a", ["true"], {}, str(tmp_path / "nowhere"))
    assert ranks.conditions() == {}
    ranks.start("a", ["true"], {}, str(tmp_path))
    assert until_ended(ranks, "a") == {"a": 0}


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


def test_the_end_of_what_a_rank_printed_is_there_when_its_file_has_just_been_emptied(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, ())
    said = b"".join(b"line %d\n" % k for k in range(1000))
    with (tmp_path / "a.out").open("ab", buffering=0) as out:
        out.write(said)
        cut(str(tmp_path / "a"), most_bytes=len(said))
        assert (tmp_path / "a.out").stat().st_size == len(said)  # not too long yet
        cut(str(tmp_path / "a"), most_bytes=5000)
        assert (tmp_path / "a.out").stat().st_size == 0
        assert ranks.output("a") == said[-4000:].decode()
        assert ranks.output("a", 10_000) == said[-5000:].decode()
        out.write(b"the end\n")
        assert (tmp_path / "a.out").read_bytes() == b"the end\n"
        assert ranks.output("a") == (said[-3992:] + b"the end\n").decode()
        out.write(said)
        assert ranks.output("a") == said[-4000:].decode()


def test_a_rank_that_prints_without_end_fills_no_disk(tmp_path: Path) -> None:
    folder = tmp_path / "ranks"
    ranks = Ranks(folder, ())
    # Until it was cut while the rank runs; then once more, to be cut when it has ended.
    much = f"head -c {MOST_BYTES + 1} /dev/zero | tr '\\0' x"
    script = f"while [ ! -e {folder}/a.earlier ]; do {much}; sleep 0.05; done; {much}; {much}; echo the end"
    ranks.start("a", ["sh", "-c", script], {}, str(tmp_path))
    assert until_ended(ranks, "a") == {"a": 0}
    assert ranks.output("a").endswith("xxx" + "the end\n")
    sizes = {path.suffix: path.stat().st_size for path in folder.iterdir()}
    assert sizes[".out"] <= MOST_BYTES
    assert sizes[".earlier"] <= 2 * MOST_BYTES
    ranks.forget("a")
    assert [path.name for path in folder.iterdir()] == ["ended"]
