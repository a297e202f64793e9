"""Requests of workers to a server beside their pulls; each is answered once its grounds are there."""

from __future__ import annotations

import contextlib
from collections.abc import Collection

from hocket.launch import Rule
from hocket.runtime.ps.server.ledger import Ledger
from hocket.runtime.ps.server.update_thread import UpdateThread
from hocket.runtime.ps.server.values import Values
from hocket.runtime.ps.server.worker_connection import WorkerConnection
from hocket.runtime.ps.wire import training_messages
from hocket.runtime.ps.wire.transport import STATE, Header, Kind, TransportError


class WorkerRequests:
    """The gradients' norms, the optimizer's state, and the model's buffers, which go with a step's pulls.

    Callers hold the lock of the server's core.
    """

    def __init__(self, rule: Rule, values: Values, ledger: Ledger, updates: UpdateThread) -> None:
        self._rule, self._values, self._ledger, self._updates = rule, values, ledger, updates
        self._norms: list[tuple[WorkerConnection, float]] = []
        self._optimizer: list[WorkerConnection] = []

    def ask_norms(self, peer: WorkerConnection, norm_type: float) -> None:
        """``peer`` asks for the norms of its step's mean gradients."""
        self._norms.append((peer, norm_type))

    def ask_optimizer(self, peer: WorkerConnection) -> None:
        """``peer`` asks for the optimizer's state, with all that it has committed."""
        self._optimizer.append(peer)

    def forget(self, peer: WorkerConnection) -> None:
        """``peer`` has gone."""
        self._norms = [asked for asked in self._norms if asked[0] is not peer]
        self._optimizer = [asked for asked in self._optimizer if asked is not peer]

    def answer(self, peers: Collection[WorkerConnection]) -> None:
        """Answer what can be answered now; ``peers``: all that are there."""
        for peer in peers:
            if peer.buffers_due and self._buffers_are_new(peer):
                self._send_buffers(peer)
        everything = range(len(self._values.shard.tensors))
        for peer in [p for p in self._optimizer if self._ledger.may_pull(p.worker, everything)]:
            self._optimizer.remove(peer)
            peer.send_bulk(Kind.OPTIMIZER, self._values.pack_optimizer_state())
        for peer, norm_type in list(self._norms):
            norms = self._updates.norms(peer.label, norm_type)
            if norms is not None:
                self._norms.remove((peer, norm_type))
                with contextlib.suppress(TransportError):  # its own thread reports a loss
                    peer.connection.send(training_messages.Norms([repr(norm) for norm in norms]))

    def _buffers_are_new(self, peer: WorkerConnection) -> bool:
        if self._rule.mode != "sync" or self._rule.backup:
            return True
        return peer.label <= self._values.label + 1

    def _send_buffers(self, peer: WorkerConnection) -> None:
        peer.buffers_due = False
        if peer.worker and self._values.buffers.pieces:
            payload = self._values.buffers.buffer.clone()
            header = Header(kind=Kind.STATE, tag=STATE, length=payload.numel())
            peer.outbox.put_first(lambda: peer.transport.send(header, payload))
