"""A manager's memory, in SQLite: its settings, every job, and what happened."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from hocket.cluster.live.devices import MASK
from hocket.cluster.live.job_record import Record, record_of, row_of
from hocket.errors import HocketError

FILE = "cluster.sqlite"
_FORMAT = "hocket.cluster/1"
_TABLES = """
create table if not exists settings (name text primary key, value text not null) strict;
create table if not exists jobs (
    number integer primary key, id text not null unique, job text not null, state text not null,
    arrival_s real not null, start_s real, finish_s real, attempt integer not null,
    iteration integer not null, gpus text not null, parts text not null, why text not null
) strict;
create table if not exists events (time_s real not null, job text, what text not null) strict;
create table if not exists drained (node text primary key) strict;
"""
# They came later; clusters that are there get them.
_NEW_COLUMNS = {
    "cancelled": "integer not null default 0",
    "lost": "integer not null default 0",
    "own_failures": "integer not null default 0",
    "placed_s": "real",
    "tried": "text not null default '[]'",
    "preempted": "integer not null default 0",
    "leaving": "text not null default 'null'",
    "shrunk": "integer not null default 0",
    "grown": "integer not null default 0",
    "busy_gpu_s": "real not null default 0.0",
}
_COLUMNS = (
    "number", "id", "job", "state", "arrival_s", "start_s", "finish_s", "attempt", "iteration", "gpus",
    "parts", "why", *_NEW_COLUMNS,
)  # fmt: skip
_ALL_COLUMNS = ", ".join(_COLUMNS)
_MOST_EVENTS = 100_000
_CHECK = "pragma quick_check(1)"
_PAGE_BYTES = 4096
_RESERVE_PAGES = 1024
"""Room in the file for changes to come, so that they need no disk: as much as its log takes, too."""


class Database:
    """A cluster's database in ``folder``, which one manager has at a time.

    Raises
    ------
    HocketError
        When another manager has it, or it is none.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = _lock(folder)
        path = folder / FILE
        try:
            # Users who may not read the token need not read what jobs run either.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            # Used by one thread at a time, which need not be the one that opened it.
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            # Everything that was answered is on disk.
            self._connection.executescript("pragma journal_mode = wal; pragma synchronous = full;" + _TABLES)
            (found,) = self._connection.execute(_CHECK).fetchone()
            if found != "ok":
                raise sqlite3.DatabaseError(found)
            for column in _missing_columns(self._connection):
                self._connection.execute(f"alter table jobs add column {column} {_NEW_COLUMNS[column]}")
                if column == "busy_gpu_s":  # nobody was resized where there was none
                    busy = "json_extract(parts, '$[0]') * json_array_length(gpus)"
                    self._connection.execute(f"update jobs set busy_gpu_s = {busy}")
        except sqlite3.DatabaseError as error:
            os.close(self._lock)
            raise HocketError(
                f"{path}: is no database of a cluster, or damaged: {error}; "
                f"hocket cluster salvage {folder} says what runs, and takes over what can be read"
            ) from None
        self._notes: list[tuple[float, str | None, str]] = []
        self._scarce = False
        self.keep_reserve()

    @staticmethod
    @contextmanager
    def locked(folder: Path) -> Iterator[None]:
        """Keep managers from a cluster meanwhile; HocketError where one runs it."""
        lock = _lock(folder)
        try:
            yield
        finally:
            os.close(lock)

    def restore(self, settings: Mapping[str, str], records: Sequence[Record]) -> None:
        """Take the settings and jobs of another database into this one, which is empty."""
        with self._together():
            self._connection.executemany("insert into settings values (?, ?)", settings.items())
        self.add(records)

    def close(self) -> None:
        """Let another manager have it."""
        with suppress(sqlite3.Error):  # that they are lost must not hide why we end
            self.write_notes()
        self._connection.close()
        os.close(self._lock)

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Keep all of what is written inside, or none of it; the disk is waited for once."""
        with self._connection:
            self._connection.execute("begin")
            yield
            # Events are worth less than jobs: on a full disk there is room for jobs alone.
            notes = [] if self._scarce else list(self._notes)
            self._connection.executemany("insert into events values (?, ?, ?)", notes)
            newest = "select max(rowid) from events"
            self._connection.execute(f"delete from events where rowid <= ({newest}) - ?", (_MOST_EVENTS,))
        del self._notes[: len(notes)]

    def keep_reserve(self) -> None:
        """Have room in the file for changes to come, whatever else fills the disk meanwhile."""
        (free,) = self._connection.execute("pragma freelist_count").fetchone()
        if free < _RESERVE_PAGES // 2:
            with suppress(sqlite3.OperationalError):  # there is no more to be had now
                self._connection.execute("begin")
                self._connection.execute("create table reserve (room blob)")
                room = _PAGE_BYTES * (_RESERVE_PAGES - free)
                self._connection.execute("insert into reserve values (zeroblob(?))", (room,))
                self._connection.execute("drop table reserve")
                self._connection.execute("commit")
                free = _RESERVE_PAGES
            if self._connection.in_transaction:
                self._connection.execute("rollback")
        self._scarce = free < _RESERVE_PAGES // 4

    def keep_settings(self, settings: Mapping[str, str], epoch_s: float) -> float:
        """Keep the settings of a new cluster; when the cluster began, on the machine's clock.

        Raises
        ------
        HocketError
            When the cluster is there and has other settings.
        """
        known = dict(self._connection.execute("select name, value from settings"))
        wanted = {"format": _FORMAT, **settings}
        if not known:
            with self._together():
                rows = [*wanted.items(), ("epoch_s", repr(epoch_s))]
                self._connection.executemany("insert into settings values (?, ?)", rows)
            return epoch_s
        for name, value in wanted.items():
            if known.get(name) != value:
                raise HocketError(
                    f"this cluster has {name} {known.get(name)}, not {value}; give that, or another folder"
                )
        return float(known["epoch_s"])

    def keep_devices(self, devices: Mapping[str, Sequence[str]], in_use: AbstractSet[str]) -> None:
        """Keep the GPUs of each node; those of nodes ``in_use`` have to be what they were.

        Raises
        ------
        HocketError
            When jobs run on other GPUs of a node than it has now.
        """
        row = self._connection.execute("select value from settings where name = 'devices'").fetchone()
        known = {} if row is None else msgspec.json.decode(row[0], type=dict[str, list[str]])
        for node in sorted(in_use & devices.keys() & known.keys()):
            if list(devices[node]) != known[node]:
                had, has = (",".join(each) or "none" for each in (known[node], devices[node]))
                raise HocketError(
                    f"jobs run on GPUs {had} of {node}, which would have {has} now; start the manager with"
                    f" the {MASK}, --servers and --gpus-per-server that it had"
                )
        value = msgspec.json.encode({**known, **devices}).decode()
        with self._together():
            self._connection.execute("insert or replace into settings values ('devices', ?)", (value,))

    def port(self) -> int:
        """The port that a manager of this cluster listened on last; 0 where none has."""
        row = self._connection.execute("select value from settings where name = 'port'").fetchone()
        return 0 if row is None else int(row[0])

    def keep_port(self, port: int) -> None:
        """Keep where the manager listens: ranks of today look for the next one there."""
        with self._together():
            self._connection.execute("insert or replace into settings values ('port', ?)", (str(port),))

    def jobs(self) -> list[Record]:
        """All jobs, in the order in which they were submitted."""
        rows = self._connection.execute(f"select {_ALL_COLUMNS} from jobs order by number")
        return [record_of(row) for row in rows]

    def add(self, records: Sequence[Record]) -> None:
        """Keep new jobs, all or none."""
        with self._together():
            self._connection.executemany(
                f"insert into jobs ({_ALL_COLUMNS}) values ({', '.join('?' * len(_COLUMNS))})",
                [row_of(record) for record in records],
            )

    def put(self, records: Sequence[Record]) -> None:
        """Keep what has become of jobs."""
        with self._together():
            self._connection.executemany(
                f"update jobs set state = ?, {', '.join(f'{name} = ?' for name in _COLUMNS[5:])}"
                " where number = ?",
                [(row[3], *row[5:], row[0]) for row in map(row_of, records)],
            )

    def drained_nodes(self) -> set[str]:
        """The nodes on which nobody is to be placed."""
        return {name for (name,) in self._connection.execute("select node from drained")}

    def drain(self, node: str, *, on: bool) -> None:
        """Keep whether nobody is to be placed on a node."""
        change = "insert or ignore into drained values (?)" if on else "delete from drained where node = ?"
        with self._together():
            self._connection.execute(change, (node,))

    def note(self, time_s: float, job: str | None, what: str) -> None:
        """Say what happened; it is written with what is written next, as the disk is slow."""
        self._notes.append((time_s, job, what))

    def write_notes(self) -> None:
        """Write down what was noted."""
        if self._notes:
            with self._together():
                pass

    def events(self) -> list[tuple[float, str | None, str]]:
        """The events in order, each with its time in seconds and its job; of very many the newest."""
        self.write_notes()
        return list(self._connection.execute("select time_s, job, what from events order by rowid"))

    def last_event(self, job: str) -> str | None:
        """The newest event of a job; None where there is none, or none any more."""
        if noted := [what for _, name, what in self._notes if name == job]:
            return noted[-1]
        newest = "select what from events where job = ? order by rowid desc limit 1"
        row: tuple[str] | None = self._connection.execute(newest, (job,)).fetchone()
        return None if row is None else row[0]

    def events_after(
        self, number: int, job: str | None, most: int
    ) -> list[tuple[int, float, str | None, str]]:
        """The first ``most`` events behind that of a number, each with its own; of one job if given."""
        with suppress(sqlite3.Error):  # on a full disk those are told that are there
            self.write_notes()
        rows = self._connection.execute(
            "select rowid, time_s, job, what from events where rowid > ? and (? is null or job = ?)"
            " order by rowid limit ?",
            (number, job, job, most),
        )
        return list(rows)


def _lock(folder: Path) -> int:
    lock = os.open(folder / "manager.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise HocketError(
            f"{folder}: another manager runs this cluster; end it, or choose a folder"
        ) from None
    return lock


def whole(connection: sqlite3.Connection) -> bool:
    """Tell whether a cluster's database is whole, as far as a quick look tells."""
    try:
        return bool(connection.execute(_CHECK).fetchone() == ("ok",))
    except sqlite3.DatabaseError:
        return False


def read_record(connection: sqlite3.Connection, number: int) -> Record | None:
    """The job of a number; sqlite3.DatabaseError or ValueError where that cannot be read."""
    missing = _missing_columns(connection)
    read = [
        _NEW_COLUMNS[name].partition("default ")[2] or "null" if name in missing else name
        for name in _COLUMNS
    ]
    row = connection.execute(f"select {', '.join(read)} from jobs where number = ?", (number,)).fetchone()
    return None if row is None else record_of(row)


def _missing_columns(connection: sqlite3.Connection) -> list[str]:
    """The columns that an older cluster's jobs do not have."""
    there = {row[1] for row in connection.execute("pragma table_info(jobs)")}
    return [name for name in _NEW_COLUMNS if name not in there]
