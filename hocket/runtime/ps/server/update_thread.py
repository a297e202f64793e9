"""The thread of a server that applies updates, each once all its contributions are there."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch

from hocket.errors import HocketError
from hocket.runtime.ps.server.checkpoint_records import Pushed
from hocket.runtime.ps.server.ledger import Contribution, Due, Ledger
from hocket.runtime.ps.server.shard import Gradient, mean_gradient
from hocket.runtime.ps.server.values import Values
from hocket.runtime.ps.server.worker_connection import Brought, WorkerConnection
from hocket.runtime.ps.wire.training_messages import Settings

_KEPT_LABELS = 3


class _DueUpdate(NamedTuple):
    """An update that is to run: of each parameter, what ``contributions`` brought."""

    contributions: tuple[Contribution, ...]
    brought: dict[int, list[Gradient]]
    settings: Settings
    scale: float


class UpdateThread:
    """The thread that applies updates to ``values`` when ``ledger`` has them due.

    ``changed`` guards everything: callers hold it.

    ``applied`` is called with the parameters that updates have changed, once they may be told; ``failed``
    with why no more can run.
    """

    def __init__(
        self,
        values: Values,
        ledger: Ledger,
        changed: threading.Condition,
        applied: Callable[[list[int]], None],
        failed: Callable[[str], None],
    ) -> None:
        self._values, self._ledger, self._changed = values, ledger, changed
        self._applied, self._failed = applied, failed
        self._due: deque[Due] = deque()
        self._gradients: dict[tuple[int, Contribution], tuple[Brought, WorkerConnection]] = {}
        self._commits: dict[Contribution, tuple[Settings, float]] = {}
        self._norms: dict[tuple[int, float], list[float]] = {}
        self._closed = False
        self._thread = threading.Thread(target=self._update, name="hocket-update", daemon=True)
        self._thread.start()

    def close(self, timeout_s: float) -> None:
        """Run what is due, which may take so long, and then no more; not to be called with the lock."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._failed(f"updates that are due take longer than {timeout_s:g} s; raise the timeout")
        else:
            self._values.close()

    @property
    def closed(self) -> bool:
        """True if no more is to come."""
        return self._closed

    def brought(self, peer: WorkerConnection, label: int, whole: Sequence[Brought]) -> None:
        """``peer`` has brought these gradients of its step ``label``."""
        contribution = Contribution(peer.worker, peer.life, label)
        for each in whole:
            self._gradients[each.parameter, contribution] = each, peer
        self.issue(self._ledger.arrived(peer.worker, label, [each.parameter for each in whole]))

    def committed(self, peer: WorkerConnection, settings: Settings, scale: float) -> None:
        """``peer``'s optimizer has stepped, with these settings; its gradients count times ``scale``."""
        contribution = Contribution(peer.worker, peer.life, peer.label)
        for old in [c for c in self._commits if c.worker == peer.worker and c.life == peer.life]:
            if old.label <= peer.label - _KEPT_LABELS:
                del self._commits[old]
        self._commits[contribution] = (settings, scale)
        self.issue(self._ledger.committed(peer.worker))

    def issue(self, dues: Iterable[Due]) -> None:
        """These are to run; what the ledger has dropped is not needed any more."""
        for p, contribution in self._ledger.dropped:
            self._consume(p, contribution)
        self._ledger.dropped.clear()
        self._due.extend(dues)
        if self._due:
            self._changed.notify_all()

    def norms(self, label: int, norm_type: float) -> list[float] | None:
        """The norm of each mean gradient of round ``label``; None while some are missing."""
        known = self._norms.get((label, norm_type))
        if known is not None:
            return known
        contributions = self._ledger.whole(label)
        if contributions is None:
            return None
        norms = []
        for p in range(len(self._values.shard.tensors)):
            mean = mean_gradient([self._gradients[p, c][0].gradient for c in contributions])
            norms.append(0.0 if mean is None else float(torch.linalg.vector_norm(mean, norm_type)))
        kept = {asked: known for asked, known in self._norms.items() if asked[0] == label}
        self._norms = kept | {(label, norm_type): norms}
        return norms

    def _consume(self, p: int, contribution: Contribution) -> None:
        brought, peer = self._gradients.pop((p, contribution))
        peer.consumed(brought)

    # Its thread.

    def _update(self) -> None:
        try:
            while self._apply_due_update():
                pass
        except HocketError as error:
            self._failed(str(error))
        except Exception as error:
            self._failed(f"an update failed: {error!r}")

    def _apply_due_update(self) -> bool:
        """Run what is due, once there is something; False when it is over."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._due or self._closed))
            if not self._due:
                return False
            runs = [self._next_run()]
            # The disk is waited for once for all of them.
            while self._due and self._values.checkpoint is not None:
                runs.append(self._next_run())
        for run in runs:
            gradients = {p: mean_gradient(each) for p, each in run.brought.items()}
            pushes = [Pushed(worker, label) for worker, _, label in run.contributions]
            self._values.update(gradients, pushes, run.settings, run.scale)
        self._values.sync_to_disk()
        with self._changed:
            dues = [Due(p, run.contributions) for run in runs for p in run.brought]
            self._ledger.applied(dues)
            for due in dues:
                for contribution in due.contributions:
                    self._consume(due.parameter, contribution)
            self._applied([due.parameter for due in dues])
            self._changed.notify_all()
        return True

    def _next_run(self) -> _DueUpdate:
        """The updates due next that are of the same workers, taken off the queue."""
        first = self._due[0].contributions
        brought = {}
        while self._due and self._due[0].contributions == first:
            p = self._due.popleft().parameter
            brought[p] = [self._gradients[p, c][0].gradient for c in first]
        return _DueUpdate(first, brought, *self._commits[first[0]])
