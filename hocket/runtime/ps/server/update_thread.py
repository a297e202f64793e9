"""The thread of a server that applies updates, each once all its contributions are there."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch

from hocket.errors import HocketError
from hocket.runtime.ps.server.checkpoint_records import PushedStep
from hocket.runtime.ps.server.ledger import Contribution, DueUpdate, Ledger
from hocket.runtime.ps.server.shard import Gradient, mean_gradient
from hocket.runtime.ps.server.values import Values
from hocket.runtime.ps.server.worker_connection import ReceivedGradient, WorkerConnection
from hocket.runtime.ps.wire.training_messages import Settings

_KEPT_LABELS = 3


class _UpdateRun(NamedTuple):
    """An update that is to run: of each parameter, what ``contributions`` brought."""

    contributions: tuple[Contribution, ...]
    gradients: dict[int, list[Gradient]]
    settings: Settings
    scale: float


class UpdateThread:
    """The thread that applies updates to ``values`` when ``ledger`` has them due.

    ``condition`` guards everything: callers hold it.

    ``on_updates`` is called with the parameters that updates have changed, once they may be told;
    ``on_failure`` with why no more can run.
    """

    def __init__(
        self,
        values: Values,
        ledger: Ledger,
        condition: threading.Condition,
        on_updates: Callable[[list[int]], None],
        on_failure: Callable[[str], None],
    ) -> None:
        self._values, self._ledger, self._condition = values, ledger, condition
        self._on_updates, self._on_failure = on_updates, on_failure
        self._due_updates: deque[DueUpdate] = deque()
        self._gradients: dict[tuple[int, Contribution], tuple[ReceivedGradient, WorkerConnection]] = {}
        self._commits: dict[Contribution, tuple[Settings, float]] = {}
        self._norms: dict[tuple[int, float], list[float]] = {}
        self._closed = False
        self._thread = threading.Thread(target=self._update, name="hocket-update", daemon=True)
        self._thread.start()

    def close(self, timeout_s: float) -> None:
        """Run what is due, which may take so long, and then no more; not to be called with the lock."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._on_failure(f"updates that are due take longer than {timeout_s:g} s; raise the timeout")
        else:
            self._values.close()

    @property
    def closed(self) -> bool:
        """True if no more is to come."""
        return self._closed

    def take_gradients(
        self, peer: WorkerConnection, label: int, received: Sequence[ReceivedGradient]
    ) -> None:
        """``peer`` has brought these gradients of its step ``label``."""
        contribution = Contribution(peer.worker, peer.life, label)
        for each in received:
            self._gradients[each.parameter, contribution] = each, peer
        self.enqueue(self._ledger.note_gradients(peer.worker, label, [each.parameter for each in received]))

    def take_commit(self, peer: WorkerConnection, settings: Settings, scale: float) -> None:
        """``peer``'s optimizer has stepped, with these settings; its gradients count times ``scale``."""
        contribution = Contribution(peer.worker, peer.life, peer.label)
        for old in [c for c in self._commits if c.worker == peer.worker and c.life == peer.life]:
            if old.label <= peer.label - _KEPT_LABELS:
                del self._commits[old]
        self._commits[contribution] = (settings, scale)
        self.enqueue(self._ledger.note_commit(peer.worker))

    def enqueue(self, updates: Iterable[DueUpdate]) -> None:
        """These are to run; what the ledger has dropped is not needed any more."""
        for p, contribution in self._ledger.dropped_contributions:
            self._release_gradient(p, contribution)
        self._ledger.dropped_contributions.clear()
        self._due_updates.extend(updates)
        if self._due_updates:
            self._condition.notify_all()

    def norms(self, label: int, norm_type: float) -> list[float] | None:
        """The norm of each mean gradient of round ``label``; None while some are missing."""
        known = self._norms.get((label, norm_type))
        if known is not None:
            return known
        contributions = self._ledger.round_contributions(label)
        if contributions is None:
            return None
        norms = []
        for p in range(len(self._values.shard.tensors)):
            mean = mean_gradient([self._gradients[p, c][0].gradient for c in contributions])
            norms.append(0.0 if mean is None else float(torch.linalg.vector_norm(mean, norm_type)))
        kept = {asked: known for asked, known in self._norms.items() if asked[0] == label}
        self._norms = kept | {(label, norm_type): norms}
        return norms

    def _release_gradient(self, p: int, contribution: Contribution) -> None:
        received, peer = self._gradients.pop((p, contribution))
        peer.release_gradient(received)

    # Its thread.

    def _update(self) -> None:
        try:
            while self._apply_due_update():
                pass
        except HocketError as error:
            self._on_failure(str(error))
        except Exception as error:
            self._on_failure(f"an update failed: {error!r}")

    def _apply_due_update(self) -> bool:
        """Run what is due, once there is something; False when it is over."""
        with self._condition:
            self._condition.wait_for(lambda: bool(self._due_updates or self._closed))
            if not self._due_updates:
                return False
            runs = [self._next_run()]
            # The disk is waited for once for all of them.
            while self._due_updates and self._values.checkpoint is not None:
                runs.append(self._next_run())
        for run in runs:
            gradients = {p: mean_gradient(each) for p, each in run.gradients.items()}
            pushes = [PushedStep(worker, label) for worker, _, label in run.contributions]
            self._values.update(gradients, pushes, run.settings, run.scale)
        self._values.sync_to_disk()
        with self._condition:
            updates = [DueUpdate(p, run.contributions) for run in runs for p in run.gradients]
            self._ledger.note_updates(updates)
            for due in updates:
                for contribution in due.contributions:
                    self._release_gradient(due.parameter, contribution)
            self._on_updates([due.parameter for due in updates])
            self._condition.notify_all()
        return True

    def _next_run(self) -> _UpdateRun:
        """The updates due next that are of the same workers, taken off the queue."""
        first = self._due_updates[0].contributions
        gradients = {}
        while self._due_updates and self._due_updates[0].contributions == first:
            p = self._due_updates.popleft().parameter
            gradients[p] = [self._gradients[p, c][0].gradient for c in first]
        return _UpdateRun(first, gradients, *self._commits[first[0]])
