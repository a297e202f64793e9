"""The core of a server: what workers say to it and are told, what they push and what they pull."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterable, Iterator

import torch

from hocket.errors import HocketError
from hocket.launch import ServedJob
from hocket.launch.join_flags import JoinFlags
from hocket.runtime.ps.server.ledger import Ledger
from hocket.runtime.ps.server.message_checks import check_plan, check_settings, real, servable
from hocket.runtime.ps.server.shard import Shard
from hocket.runtime.ps.server.update_thread import UpdateThread
from hocket.runtime.ps.server.values import Values
from hocket.runtime.ps.server.worker_connection import WorkerConnection
from hocket.runtime.ps.server.worker_requests import WorkerRequests
from hocket.runtime.ps.wire import training_messages
from hocket.runtime.ps.wire.layout import Frame
from hocket.runtime.ps.wire.model_spec import Spec
from hocket.runtime.ps.wire.transport import STATE, Header, Kind, TransportError


class ServerCore:
    """Of server ``index`` of ``job``; ``peers``: the workers that are there, ``finished``: those that were.

    ``changed`` guards everything but ``values``, which guard themselves. ``addresses``: where all
    servers are; ``failure``: why the training ends before its time; ``joined``: what a launcher is told by.
    """

    def __init__(self, job: ServedJob, index: int, address: str, joined: JoinFlags | None = None) -> None:
        self.job, self.index = job, index
        self.changed = threading.Condition()
        self.told = {index: address}
        self.peers: dict[int, WorkerConnection] = {}
        self.seen: set[int] = set()
        self.finished: set[int] = set()
        self.spec: Spec | None = None
        self.failure = ""
        self.ledger: Ledger
        self.values: Values
        self._updates: UpdateThread
        self._loaded = self._restoring = False
        self._questions: WorkerRequests
        self._plan: training_messages.PlanMessage | None = None
        self._joined = joined

    def fail(self, why: str) -> None:
        """End the training and tell every worker why."""
        with self.changed:
            if self.failure:
                return
            self.failure = why
            for peer in self.peers.values():
                with contextlib.suppress(TransportError):
                    peer.connection.send(training_messages.Failed(why))
            self.changed.notify_all()

    def close(self) -> None:
        """Run no more updates than are due; the training is over."""
        if self.spec is not None:
            self._updates.close(self.job.timeout_s)

    @property
    def addresses(self) -> list[str]:
        """The address of every server, "" where it is not known here; server 0 knows all in the end."""
        return [self.told.get(k, "") for k in range(self.job.servers)]

    # Workers come.

    def spec_of(self, peer: WorkerConnection) -> Spec:
        """The model that ``peer`` brings, once it has told; all servers are there then."""
        with self.changed:
            wanted = range(self.job.servers) if self.index == 0 else [self.index]
            self._wait(
                lambda: peer.gone or (peer.begin is not None and all(k in self.told for k in wanted)),
                "its model",
            )
            if peer.begin is None:
                raise TransportError("it is gone")
            return peer.begin.spec

    @property
    def shard(self) -> Shard:
        """The parameters, which updates change."""
        return self.values.shard

    def admit(self, peer: WorkerConnection, spec: Spec) -> training_messages.Started:
        """Let ``peer`` take part; what it is to be told. HocketError for another model."""
        with self.changed:
            if self.peers.get(peer.worker) is not peer:
                raise TransportError("it is gone")
            self.finished.discard(peer.worker)
            if self.spec is None:
                with self._failing(), servable(peer.worker):
                    self.values = Values(self.job, self.index, spec)
                found = None if self.values.found is None else self.values.found.steps
                self.ledger = Ledger(len(self.shard.tensors), self.job.rule, found)
                self._updates = UpdateThread(self.values, self.ledger, self.changed, self._applied, self.fail)
                self._questions = WorkerRequests(self.job.rule, self.values, self.ledger, self._updates)
                self.spec = spec
                self.changed.notify_all()
            elif difference := self.spec.difference(spec):
                self.fail(f"worker {peer.worker}: {difference}")
                raise HocketError(difference)
            peer.life = self.ledger.join(peer.worker)
            if self._plan is not None:
                peer.connection.send(self._plan)
            if peer.worker == 0 and self.values.buffers.pieces:
                peer.transport.expect(STATE, torch.empty_like(self.values.buffers.buffer))
            restorable = self.values.found is not None and not self._loaded
            steps = self.values.steps_of(peer.worker) if restorable else self.ledger.counted(peer.worker)
            wanted = peer.worker == 0 and not self._loaded and not restorable
            return training_messages.Started(self.addresses, wanted, steps)

    def go_on(self, peer: WorkerConnection, steps: int) -> None:
        """``peer`` goes on after so many steps, which all servers have; what was found is brought there."""
        with self.changed:
            if self.spec is None or peer.life == 0 or peer.label >= 0:
                raise TransportError("it said what only comes before a step")
            mine = self.values.found is not None and not self._loaded and not self._restoring
            self._restoring |= mine
        if mine:
            with self._failing():
                self.values.restore(steps)
            with self.changed:
                if self.job.rule.mode == "sync":
                    self.ledger.go_back(steps)
                self._loaded = True
                self.changed.notify_all()
        with self.changed:
            self._wait(lambda: self._loaded, "worker 0's values")
            if self._joined is not None:
                self._joined.note(self.index, peer.worker)
            if not peer.gone:
                self.ledger.go_on(peer.worker, steps)

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """End the training for all when the checkpoint fails within."""
        try:
            yield
        except HocketError as error:
            self.fail(str(error))
            raise

    def send_values(self, peer: WorkerConnection) -> None:
        """Send ``peer`` all values as they are, once there are some."""
        with self.changed:
            self._wait(lambda: self._loaded, "worker 0's values")
        peer.send_bulk(Kind.VALUES, self.values.packed())

    def _wait(self, due: Callable[[], bool], what: str) -> None:
        if not self.changed.wait_for(lambda: bool(due() or self.failure), self.job.timeout_s):
            raise TransportError(f"{what} did not come within {self.job.timeout_s:g} s")
        if self.failure:
            raise TransportError(self.failure)

    # Messages of workers.

    def heard(self, peer: WorkerConnection, message: object) -> None:
        """``peer`` has said something; TransportError where it does not belong here."""
        with self.changed:
            self._wait(lambda: self._loaded, "worker 0's values")
            if peer.gone:  # what it said last may be heard after its tensors have ended
                raise TransportError("it is gone")
            spec = self.spec
            assert spec is not None
            match message:
                case training_messages.Lay():
                    peer.lay(message)
                case training_messages.Want():
                    if not self.ledger.may_want(peer.worker):
                        raise TransportError("it asked for a step before it had ended the last one")
                    self.ledger.want(peer.worker)
                    peer.want()
                case training_messages.Commit(settings, scale):
                    if not self.ledger.may_commit(peer.worker):
                        raise TransportError("it ended a step that it is not in")
                    check_settings(spec, settings)
                    self._updates.committed(peer, settings, real(scale))
                    self._check_stuck()
                case training_messages.AskNorms(norm_type):
                    self._questions.ask_norms(peer, real(norm_type))
                case training_messages.AskState():
                    self._questions.ask_optimizer(peer)
                case training_messages.PlanMessage(plan) if peer.worker == 0:
                    check_plan(spec, plan)
                    self._plan = message
                    for other in self.peers.values():
                        if other is not peer:
                            with contextlib.suppress(TransportError):  # its own thread reports a loss
                                other.connection.send(message)
                case training_messages.Bye():
                    self.ended(peer, said=True)
                case _:
                    raise TransportError(f"it said what is not for it to say now ({type(message).__name__})")
            self._questions.answer(self.peers.values())

    def took(self, peer: WorkerConnection, header: Header, payload: torch.Tensor | None) -> None:
        """A tensor has arrived from ``peer``."""
        assert payload is not None
        if header.kind is Kind.VALUES and peer.worker == 0 and not self._loaded:
            with self._failing():
                self.values.load(payload)
            with self.changed:
                self._loaded = True
                self.changed.notify_all()
            return
        with self.changed:
            if header.kind is Kind.STATE and peer.worker == 0:
                self._took_state(peer, header.label, payload)
            elif header.kind is Kind.PUSH and not peer.gone:
                self._updates.brought(peer, header.label, peer.pushed(header))
            elif not peer.gone:
                raise TransportError(f"it sent what it was not to ({header})")
            self._questions.answer(self.peers.values())

    def _took_state(self, peer: WorkerConnection, label: int, payload: torch.Tensor) -> None:
        if self._updates.closed:
            return
        with self._failing():
            self.values.take_buffers(label, payload)
        if not peer.gone:
            peer.transport.expect(STATE, payload)
            peer.answer()

    def has_state_of(self, peer: WorkerConnection) -> bool:
        """True if what goes with ``peer``'s last step beside its pushes is kept, so that it can be told."""
        if self.values.checkpoint is None or peer.worker or not self.values.buffers.pieces:
            return True
        return self.values.label >= peer.label

    # Messages to workers.

    def read(self, frame: Frame) -> None:
        """Put present values in ``frame``."""
        self.values.read(frame)

    def _applied(self, parameters: list[int]) -> None:
        # A step that has ended may be what any worker waits for.
        self._answer(None if self.job.rule.staleness is not None else parameters)

    def _answer(self, parameters: Iterable[int] | None = None) -> None:
        """Send what workers may pull now that ``parameters`` are newer, or of all of them."""
        for peer in self.peers.values():
            peer.answer(parameters)
        self._questions.answer(self.peers.values())

    # Workers go.

    def ended(self, peer: WorkerConnection, *, said: bool = False, data: bool = False) -> None:
        """``peer`` has said that it has finished, or its last tensor has come; once both, it leaves."""
        with self.changed:
            peer.said_bye |= said
            peer.data_ended |= data
            if not (peer.said_bye and peer.data_ended) or peer.gone:
                return
            self.finished.add(peer.worker)
            self._updates.issue(self.ledger.leave(peer.worker, finished=True))
            self._forget(peer)
            peer.end("it has finished", hang_up=False)
            self._check_stuck()
            self._answer()
            self.changed.notify_all()

    def lost(self, peer: WorkerConnection, why: str) -> None:
        """``peer`` is gone without a farewell, or breaks the rules."""
        with self.changed:
            if self.peers.get(peer.worker) is not peer:
                peer.end(why)
                return
            peer.end(why)
            self._forget(peer)
            if self.spec is not None and peer.worker in self.ledger.members:
                self._updates.issue(self.ledger.leave(peer.worker, finished=False))
            rule = self.job.rule
            left = self.finished | set(self.peers) | (set(range(rule.workers)) - self.seen)
            if rule.mode == "sync" and self.spec is not None and len(left) < rule.needed:
                self.fail(f"worker {peer.worker} is gone in step {peer.label}: {why}")
            elif not self.failure:
                print(f"hocket: server {self.index}: worker {peer.worker} is gone: {why}", file=sys.stderr)
            if self._loaded:
                self._answer()
            self.changed.notify_all()

    def _forget(self, peer: WorkerConnection) -> None:
        del self.peers[peer.worker]
        if self.spec is not None:
            self._questions.forget(peer)

    def _check_stuck(self) -> None:
        if self.ledger.stuck:
            done = ", ".join(map(str, sorted(self.finished)))
            self.fail(
                f"worker {done} has finished while others go on; give every worker the same number of batches"
            )
