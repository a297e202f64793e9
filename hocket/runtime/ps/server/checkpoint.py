"""A server's work on disk: an update is written down before a worker is told that it counts.

A generation is a file: all values as they were when it began, then every update since, in the order in which
they were applied. An update is appended and forced to the disk before the pulls that wait for it are answered
(a write-ahead log), so what a worker has been told of its own steps outlives the server's process, and its
machine's power. When updates have come to as many bytes as the values, the next generation begins.

Servers need not have come equally far. Synchronous ones go back to the last round that all of them have,
which is at most one behind; that is why two generations are kept, two rounds apart at least. Asynchronous
ones keep everything, and do not count again what a worker repeats.

The cost: a server writes what it applies (synchronous: a mean gradient a step; asynchronous: each push),
which is at most what it receives; in the long run at most as much again for values, during which it stands
still; and it waits for the disk once for all updates that are due together. On disk are two generations, each
of at most twice the values, or of the values and two rounds.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import torch

from hocket.errors import HocketError
from hocket.launch import ServedJob
from hocket.runtime.ps.server.checkpoint_records import (
    AppliedUpdates,
    Buffers,
    CheckpointIdentity,
    Snapshot,
    Update,
    read_records,
    unpack_record,
    write_record,
)
from hocket.runtime.ps.server.shard import Shard
from hocket.runtime.ps.wire.model_spec import Spec
from hocket.runtime.ps.wire.packing import unpack
from hocket.runtime.ps.wire.transport import TransportError

_ROUNDS_APART = 2
_KEPT = 2


class Checkpoint:
    """The checkpoint of server ``index`` of ``job``.

    ``found_updates``: what its files held when it was opened, None where none did.

    For one thread at a time, but for :meth:`sync`.

    Raises
    ------
    HocketError
        For files of another job, damaged ones, those that another server is writing, and in every method
        where they cannot be written.
    """

    def __init__(self, job: ServedJob, index: int, spec: Spec, num_parameters: int) -> None:
        self._folder = Path(job.checkpoint)
        self._name = f"server-{index}"
        self._identity = CheckpointIdentity(index, job.servers, job.rule.workers, job.rule.mode)
        self._synchronous = job.rule.mode == "sync"
        # With backup workers, worker 0 may be in none of many rounds.
        self._with_buffers = bool(spec.buffers) and index == 0 and not job.rule.backup
        self._spec = spec
        self._file: BinaryIO | None = None
        self._values_bytes = self._log_bytes = self._first_round = 0
        self.applied_updates = AppliedUpdates(
            versions=[0] * num_parameters, steps=[[0] * num_parameters for _ in range(job.rule.workers)]
        )
        self.found_updates: AppliedUpdates | None = None
        with contextlib.ExitStack() as unless_refused:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._lock = unless_refused.enter_context((self._folder / f"{self._name}.lock").open("wb"))
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                numbers = self._numbers()
                if numbers:
                    self.found_updates = self._updates_in(numbers[-1])
            except BlockingIOError:
                raise HocketError(
                    f"{self._folder}: another job keeps its checkpoint there; give each a folder of its own"
                ) from None
            except OSError as error:
                raise self._unusable(error) from None
            unless_refused.pop_all()

    def close(self) -> None:
        """Write no more; another server may."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # a write that did not fit has been reported
                self._file.close()
        self._lock.close()

    def steps_of(self, worker: int) -> int:
        """The number of ``worker``'s steps that are whole in what was found: it goes on with the next one."""
        assert self.found_updates is not None
        steps = min(
            self.found_updates.versions if self._synchronous else self.found_updates.steps[worker], default=0
        )
        if self._with_buffers and (self._synchronous or worker == 0):
            steps = min(steps, self.found_updates.buffers + 1)
        return steps

    def restore(self, shard: Shard, rounds: int) -> None:
        """Bring ``shard`` to what was found, or, if it is synchronous, to its first ``rounds`` rounds."""
        most = rounds if self._synchronous else None
        try:
            for number in reversed(self._numbers()):
                records = read_records(self._path(number))
                whole, values = self._first_record(number, records)
                if most is None or max(whole.applied.versions, default=0) <= most:
                    break
            else:
                raise HocketError(
                    f"{self._folder}: {self._name} has gone on from step {rounds}, where others stand;"
                    " give back the files that belong together"
                )
            shard.load(values, whole.others)
            self.applied_updates = whole.applied
            for data in records:
                record = unpack_record(self._path(number), data)
                if isinstance(record, Snapshot) or not self._is_before(record, most):
                    continue
                tensors, _ = unpack(data)
                if isinstance(record, Buffers):
                    shard.load_state(tensors)
                else:
                    gradients = {p: tensors.get(shard.tensors[p].name) for p in record.parameters}
                    shard.update(gradients, record.settings, float(record.scale))
                self.applied_updates.note(record)
        except OSError as error:
            raise self._unusable(error) from None
        except TransportError as error:
            raise HocketError(f"{self._folder}: the files of {self._name} are damaged: {error}") from None

    def begin(self, shard: Shard) -> None:
        """Begin a generation with ``shard`` as it is."""
        tensors, others = shard.optimizer_state()
        whole = Snapshot(about=self._identity, spec=self._spec, applied=self.applied_updates, others=others)
        try:
            numbers = self._numbers()
            number = numbers[-1] + 1 if numbers else 0
            unfinished = self._folder / f".{self._name}"
            # Nobody reads it before it is renamed, and it is appended to afterwards.
            file = unfinished.open("wb")
            if self._file is not None:
                self._file.close()
            self._file = file
            self._values_bytes = write_record(file, whole, shard.values() | tensors)
            self._log_bytes, self._first_round = 0, min(self.applied_updates.versions, default=0)
            self.sync()
            os.replace(unfinished, self._path(number))
            folder = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
            for old in numbers[: 1 - _KEPT]:
                self._path(old).unlink()
        except OSError as error:
            raise self._unusable(error) from None

    def append(self, record: Update | Buffers, tensors: Mapping[str, torch.Tensor]) -> None:
        """Write ``record`` down; it is there to stay after the next :meth:`sync`."""
        assert self._file is not None
        try:
            self._log_bytes += write_record(self._file, record, tensors)
        except OSError as error:
            raise self._unusable(error) from None
        self.applied_updates.note(record)

    def sync(self) -> None:
        """Return when everything that was written is on the disk."""
        assert self._file is not None
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._unusable(error) from None

    @property
    def full(self) -> bool:
        """True if the next generation is to begin."""
        rounds = min(self.applied_updates.versions, default=0) - self._first_round
        return self._log_bytes >= self._values_bytes and rounds >= _ROUNDS_APART

    # Files that are there.

    def _path(self, number: int) -> Path:
        return self._folder / f"{self._name}-{number:08d}.checkpoint"

    def _numbers(self) -> list[int]:
        found = self._folder.glob(f"{self._name}-*.checkpoint")
        return sorted(int(path.stem.removeprefix(f"{self._name}-")) for path in found)

    def _updates_in(self, number: int) -> AppliedUpdates:
        """The updates that generation ``number`` has applied."""
        records = read_records(self._path(number))
        whole, _ = self._first_record(number, records)
        for data in records:
            record = unpack_record(self._path(number), data)
            if not isinstance(record, Snapshot):
                whole.applied.note(record)
        return whole.applied

    def _first_record(
        self, number: int, records: Iterator[torch.Tensor]
    ) -> tuple[Snapshot, dict[str, torch.Tensor]]:
        data = next(records, None)
        whole = None if data is None else unpack_record(self._path(number), data)
        if data is None or not isinstance(whole, Snapshot):
            raise HocketError(
                f"{self._path(number)}: is damaged; give back a whole one, or begin in an empty folder"
            )
        for key, held, wanted in zip(CheckpointIdentity._fields, whole.about, self._identity, strict=True):
            if held != wanted:
                raise HocketError(
                    f"{self._folder}: holds a job with {key} {held}, not {wanted};"
                    " go on with the same, or give another folder"
                )
        if difference := whole.spec.difference(self._spec):
            raise HocketError(f"{self._folder}: holds another model: {difference}")
        return whole, unpack(data)[0]

    @staticmethod
    def _is_before(record: Update | Buffers, rounds: int | None) -> bool:
        label = record.label if isinstance(record, Buffers) else record.pushes[0].label
        return rounds is None or label < rounds

    def _unusable(self, error: OSError) -> HocketError:
        return HocketError(
            f"{self._folder}: no checkpoint can be kept there ({error.strerror or error});"
            " give a folder that can be written, with room for four times the values and their optimizer"
        )
