"""Records of ranks on this machine in a folder, which tell a later process which run and how others ended.

A rank is KEY there: KEY.lock is locked while anything of it lives (see :mod:`hocket.launch.guard`), KEY.pid,
KEY.status and KEY.out are its process group, its status and what it printed last; KEY.earlier is what it
printed before that, where it was much; KEY.asked is there once it was asked to end.

Launchers put their workers into sessions of their own, where neither the lock nor a signal to the group may
reach. All that a rank starts inherits a variable that no other rank has, and is found by it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from hocket.ending import signal_each
from hocket.launch.guard import make_room
from hocket.launch.open_files import BEGAN_WITH
from hocket.launch.rank_logs import ENDED, LogPart, LogPosition, log_part, tidy
from hocket.process_stats import all_pids, first_environment

LOST = 256
"""The status of a rank that left none, above those of processes: its guard was killed, and it perhaps too."""

GRACE_S = 5.0
"""Seconds from when a rank is asked to end until it is killed."""
_MARK = "HOCKET_RANK_PLACE"
_KEY = re.compile(r"[0-9a-z-]+", re.ASCII)

Wrap = Callable[[list[str], dict[str, str]], tuple[list[str], dict[str, str]]]


class Ranks:
    """The ranks of one folder.

    ``withheld``: variables of this process that are none of theirs; they inherit the others. ``wrap`` makes
    of a command and its environment what is executed.
    """

    def __init__(self, folder: str | Path, withheld: Collection[str], wrap: Wrap | None = None) -> None:
        self._folder = Path(folder).resolve()  # ranks may run elsewhere
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._withheld, self._wrap = withheld, wrap
        self._groups: dict[str, int] = {}
        self._to_reap: list[subprocess.Popen[bytes]] = []
        self._stopping: dict[str, float] = {}
        self._alone: set[str] = set()  # ranks that have ended and have left nothing behind

    def start(self, key: str, command: Sequence[str], environment: Mapping[str, str], folder: str) -> None:
        """Start a rank; nothing happens where it was started before. Raises OSError."""
        assert _KEY.fullmatch(key), key
        lock = os.open(self._folder / f"{key}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            if (self._folder / f"{key}.pid").exists() or not _locked(lock):
                return
            place = str(self._folder / key)
            make_room(place)
            guard = [sys.executable, "-P", "-m", "hocket.launch.guard", place, str(lock), str(BEGAN_WITH)]
            argv = [*guard, "--", *command]
            told = {**os.environ, **environment, _MARK: place}
            if self._wrap is not None:
                argv, told = self._wrap(argv, told)
            told = {name: value for name, value in told.items() if name not in self._withheld}
            started = subprocess.Popen(
                argv, env=told, cwd=folder, pass_fds=[lock], stdin=subprocess.DEVNULL, start_new_session=True
            )
            self._groups[key] = started.pid
            self._to_reap.append(started)
        except Exception:
            # Or it would be taken for one that was killed without leaving a status.
            for path in self._folder.glob(f"{key}.*"):
                path.unlink()
            raise
        finally:
            os.close(lock)

    def conditions(self) -> dict[str, int | None]:
        """Of every rank that was started here its status, None while anything of it runs.

        Processes that a rank has left behind, in other sessions or with its lock, are made to end.
        """
        self._to_reap = [started for started in self._to_reap if started.poll() is None]
        found = {path.stem: self._condition(path) for path in self._folder.glob("*.lock")}
        for key in [key for key in self._stopping if key not in found or key in self._alone]:
            del self._stopping[key]
        now_s = time.monotonic()
        late = {key for key, deadline_s in self._stopping.items() if now_s >= deadline_s}
        ended = {key for key, status in found.items() if status is not None} - self._alone
        ended |= {key for key, status in found.items() if status is None and self._has_left(key)}
        left = self._marked() if late or ended else {}
        for key in ended:
            if key not in left:
                if found[key] is None:
                    continue  # the last of it is just ending
                self._alone.add(key)
                self._stopping.pop(key, None)
                continue
            found[key] = None
            if key not in self._stopping:
                self._stopping[key] = now_s + GRACE_S
                signal_each(left[key], signal.SIGTERM)
        for key in late & self._stopping.keys():
            self._signal(key, signal.SIGKILL)
            signal_each(left.get(key, []), signal.SIGKILL)
        return found

    def stop(self, key: str, grace_s: float = GRACE_S) -> None:
        """Ask a rank to end, and make it so much later; :meth:`conditions` says when it has.

        It is asked once, also where that was another process: a second signal would disturb it as it saves.
        """
        if key in self._stopping:
            return
        self._stopping[key] = time.monotonic() + grace_s
        asked = self._folder / f"{key}.asked"
        if not asked.exists():
            self._signal(key, signal.SIGTERM)
            with contextlib.suppress(OSError):  # a full disk
                asked.touch()

    def kill(self, key: str) -> None:
        """End a rank now."""
        self._stopping[key] = 0.0
        self._signal(key, signal.SIGKILL)

    def forget(self, key: str) -> None:
        """Ask about a rank that has ended no more; its status and output are in the folder "ended"."""
        ended = self._folder / ENDED
        ended.mkdir(exist_ok=True)
        self._groups.pop(key, None)
        self._alone.discard(key)
        for path in self._folder.glob(f"{key}.*"):
            if path.suffix in (".out", ".earlier", ".status"):
                path.replace(ended / path.name)
            else:
                path.unlink()

    def log(self, key: str, position: LogPosition) -> LogPart | None:
        """The part of a rank's output that begins at ``position``; None where there is no such rank."""
        return log_part(self._folder, key, position)

    def tidy(self, keep_s: float, most_bytes: float) -> None:
        """Remove what ended ranks left if that is older than ``keep_s``, or beyond ``most_bytes``."""
        tidy(self._folder, keep_s, most_bytes)

    def output(self, key: str, most_bytes: int = 4000) -> str:
        """The end of what a rank printed."""
        said = _end_of(self._folder / f"{key}.out", most_bytes)
        if len(said) < most_bytes:  # it may just have been emptied
            said = _end_of(self._folder / f"{key}.earlier", most_bytes - len(said)) + said
        return said.decode(errors="replace")

    def _condition(self, lock_path: Path) -> int | None:
        key = lock_path.stem
        lock = os.open(lock_path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if not _locked(lock):
                return None
        finally:
            os.close(lock)
        try:
            return int((self._folder / f"{key}.status").read_text())
        except (OSError, ValueError):
            # Where it was asked to end and has not, rank and guard are killed together, by us.
            return -signal.SIGKILL if (self._folder / f"{key}.asked").exists() else LOST

    def _has_left(self, key: str) -> bool:
        """True if the command of a rank that holds its lock has ended."""
        return (self._folder / f"{key}.status").exists()

    def _marked(self) -> dict[str, list[int]]:
        """The processes that our ranks have started, or are, by the rank's key."""
        found: dict[str, list[int]] = {}
        for pid in all_pids():
            with contextlib.suppress(OSError):  # it has ended meanwhile, or is another user's
                folder, _, key = first_environment(pid).get(_MARK, "").rpartition("/")
                if folder == str(self._folder):
                    found.setdefault(key, []).append(pid)
        return found

    def _signal(self, key: str, number: int) -> None:
        with contextlib.suppress(OSError, ValueError):
            # The group of one that has ended may be another's by now; what it left is found by its mark.
            if self._condition(self._folder / f"{key}.lock") is None and not self._has_left(key):
                group = self._groups.get(key) or int((self._folder / f"{key}.pid").read_text())
                os.killpg(group, number)


def _end_of(path: Path, most_bytes: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - most_bytes))
            return file.read(most_bytes)
    except OSError:
        return b""


def _locked(lock: int) -> bool:
    """True if nobody had the lock; it is ours then, until it is closed."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
