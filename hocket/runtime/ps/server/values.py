"""The values of a server under one lock: parameters, buffers, and their checkpoint where one is kept."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import torch

from hocket.launch import ServedJob
from hocket.runtime.ps.server.checkpoint import Checkpoint
from hocket.runtime.ps.server.checkpoint_records import AppliedUpdates, Buffers, PushedStep, Update
from hocket.runtime.ps.server.shard import Gradient, Shard
from hocket.runtime.ps.wire.layout import Frame, homes_of
from hocket.runtime.ps.wire.model_spec import Spec
from hocket.runtime.ps.wire.packing import pack, unpack
from hocket.runtime.ps.wire.training_messages import Piece, Settings
from hocket.runtime.ps.wire.transport import STATE


class Values:
    """Server ``index``'s part of what ``spec`` describes.

    ``buffers``: the model's, worker 0's, as they travel; ``label``: of the step that has left them.

    Raises
    ------
    HocketError
        Where the job's checkpoint cannot be read, is of another job, or, in every method, cannot be written.
    """

    def __init__(self, job: ServedJob, index: int, spec: Spec) -> None:
        self.shard = Shard(spec, homes_of(spec, job.servers).of[index], with_state=index == 0)
        pieces = [Piece(k) for k in range(spec.buffers if index == 0 else 0)]
        self.buffers = Frame(pieces, spec.state, STATE, "buffers")
        self.label = -1
        self._lock = threading.Lock()
        self._checkpoint = Checkpoint(job, index, spec, len(self.shard.tensors)) if job.checkpoint else None

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint on the disk; None: nothing is kept."""
        return self._checkpoint

    @property
    def found_updates(self) -> AppliedUpdates | None:
        """The updates that the checkpoint held when it was opened; None where there was none."""
        return None if self._checkpoint is None else self._checkpoint.found_updates

    def steps_of(self, worker: int) -> int:
        """The number of ``worker``'s steps that are whole in what was found."""
        assert self._checkpoint is not None
        return self._checkpoint.steps_of(worker)

    def close(self) -> None:
        """Keep nothing more."""
        if self._checkpoint is not None:
            self._checkpoint.close()

    def load(self, payload: torch.Tensor) -> None:
        """Take worker 0's values; TransportError where they are not the spec's."""
        with self._lock:
            self.shard.load(*unpack(payload))
            self._fill()
            if self._checkpoint is not None:
                self._checkpoint.begin(self.shard)

    def restore(self, rounds: int) -> None:
        """Take what was found; synchronous, its first ``rounds`` rounds."""
        assert self._checkpoint is not None
        with self._lock:
            self._checkpoint.restore(self.shard, rounds)
            self._fill()
            self.label = self._checkpoint.applied_updates.buffers
            self._checkpoint.begin(self.shard)

    def _fill(self) -> None:
        for k in range(len(self.buffers.pieces)):
            self.buffers.fill(k, self.shard.state[k])

    def fill_frame(self, frame: Frame) -> None:
        """Put present values in ``frame``."""
        with self._lock:
            self.shard.fill_frame(frame)

    def pack_values(self) -> torch.Tensor:
        """All values as they are."""
        with self._lock:
            return pack(self.shard.values())

    def pack_optimizer_state(self) -> torch.Tensor:
        """The state that the optimizer keeps, packed."""
        with self._lock:
            return pack(*self.shard.optimizer_state())

    def update(
        self,
        gradients: Mapping[int, Gradient],
        pushes: Sequence[PushedStep],
        settings: Settings,
        scale: float,
    ) -> None:
        """A step of the optimizer with mean ``gradients``, of ``pushes``; see :meth:`sync_to_disk`."""
        with self._lock:
            if self._checkpoint is not None:
                names = self.shard.tensors
                used = {names[p].name: gradient for p, gradient in gradients.items() if gradient is not None}
                record = Update(
                    parameters=list(gradients), pushes=list(pushes), settings=settings, scale=repr(scale)
                )
                self._checkpoint.append(record, used)
            self.shard.update(gradients, settings, scale)

    def sync_to_disk(self) -> None:
        """Bring all updates to the disk, so that workers may be told of them."""
        if self._checkpoint is None:
            return
        self._checkpoint.sync()
        with self._lock:
            if self._checkpoint.full:
                self._checkpoint.begin(self.shard)

    def take_buffers(self, label: int, payload: torch.Tensor) -> None:
        """Worker 0's buffers as its step ``label`` has left them; they are kept when this returns."""
        self.buffers.buffer.copy_(payload)
        with self._lock:
            for value, view in zip(self.shard.state, self.buffers.views, strict=False):
                value.copy_(view.view(value.shape))
            if self._checkpoint is not None:
                rows = zip(self.shard.state_tensors, self.shard.state, self.buffers.pieces, strict=False)
                kept = {row.name: value for row, value, _ in rows}
                self._checkpoint.append(Buffers(label=label), kept)
                self._checkpoint.sync()
        self.label = label
