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
    """The core of server ``index`` of ``job``.

    ``peers``: the workers that are there; ``finished_workers``: those that were.
    ``condition`` guards everything but ``values``, which guard themselves. ``addresses``: where all servers
    are; ``failure``: why the training ends before its time; ``join_flags``: what a launcher is told by.
    """

    def __init__(self, job: ServedJob, index: int, address: str, join_flags: JoinFlags | None = None) -> None:
        self.job, self.index = job, index
        self.condition = threading.Condition()
        self.address_of = {index: address}
        self.peers: dict[int, WorkerConnection] = {}
        self.seen_workers: set[int] = set()
        self.finished_workers: set[int] = set()
        self.spec: Spec | None = None
        self.failure = ""
        self.ledger: Ledger
        self.values: Values
        self._updates: UpdateThread
        self._has_values = self._is_restoring = False
        self._requests: WorkerRequests
        self._plan_message: training_messages.PlanMessage | None = None
        self._join_flags = join_flags

    def fail(self, why: str) -> None:
        """End the training and tell every worker why."""
        with self.condition:
            if self.failure:
                return
            self.failure = why
            for peer in self.peers.values():
                with contextlib.suppress(TransportError):
                    peer.connection.send(training_messages.Failed(why))
            self.condition.notify_all()

    def close(self) -> None:
        """Run no more updates than are due; the training is over."""
        if self.spec is not None:
            self._updates.close(self.job.timeout_s)

    @property
    def addresses(self) -> list[str]:
        """The address of every server, "" where it is not known here; server 0 knows all in the end."""
        return [self.address_of.get(k, "") for k in range(self.job.servers)]

    # Workers come.

    def spec_of(self, peer: WorkerConnection) -> Spec:
        """The model that ``peer`` brings, once it has told; all servers are there then."""
        with self.condition:
            wanted = range(self.job.servers) if self.index == 0 else [self.index]
            self._wait(
                lambda: (
                    peer.is_gone
                    or (peer.join_request is not None and all(k in self.address_of for k in wanted))
                ),
                "its model",
            )
            if peer.join_request is None:
                raise TransportError("it is gone")
            return peer.join_request.spec

    @property
    def shard(self) -> Shard:
        """The parameters, which updates change."""
        return self.values.shard

    def admit(self, peer: WorkerConnection, spec: Spec) -> training_messages.JoinAnswer:
        """Let ``peer`` take part; what it is to be told. HocketError for another model."""
        with self.condition:
            if self.peers.get(peer.worker) is not peer:
                raise TransportError("it is gone")
            self.finished_workers.discard(peer.worker)
            if self.spec is None:
                with self._fail_for_all(), servable(peer.worker):
                    self.values = Values(self.job, self.index, spec)
                found = None if self.values.found_updates is None else self.values.found_updates.steps
                self.ledger = Ledger(len(self.shard.tensors), self.job.rule, found)
                self._updates = UpdateThread(
                    self.values, self.ledger, self.condition, self._after_updates, self.fail
                )
                self._requests = WorkerRequests(self.job.rule, self.values, self.ledger, self._updates)
                self.spec = spec
                self.condition.notify_all()
            elif difference := self.spec.difference(spec):
                self.fail(f"worker {peer.worker}: {difference}")
                raise HocketError(difference)
            peer.life = self.ledger.join(peer.worker)
            if self._plan_message is not None:
                peer.connection.send(self._plan_message)
            if peer.worker == 0 and self.values.buffers.pieces:
                peer.transport.expect(STATE, torch.empty_like(self.values.buffers.buffer))
            restorable = self.values.found_updates is not None and not self._has_values
            steps = (
                self.values.steps_of(peer.worker) if restorable else self.ledger.counted_steps(peer.worker)
            )
            wanted = peer.worker == 0 and not self._has_values and not restorable
            return training_messages.JoinAnswer(self.addresses, wanted, steps)

    def go_on(self, peer: WorkerConnection, steps: int) -> None:
        """``peer`` goes on after so many steps, which all servers have; what was found is brought there."""
        with self.condition:
            if self.spec is None or peer.life == 0 or peer.label >= 0:
                raise TransportError("it said what only comes before a step")
            mine = self.values.found_updates is not None and not self._has_values and not self._is_restoring
            self._is_restoring |= mine
        if mine:
            with self._fail_for_all():
                self.values.restore(steps)
            with self.condition:
                if self.job.rule.mode == "sync":
                    self.ledger.go_back(steps)
                self._has_values = True
                self.condition.notify_all()
        with self.condition:
            self._wait(lambda: self._has_values, "worker 0's values")
            if self._join_flags is not None:
                self._join_flags.note(self.index, peer.worker)
            if not peer.is_gone:
                self.ledger.go_on(peer.worker, steps)

    @contextlib.contextmanager
    def _fail_for_all(self) -> Iterator[None]:
        """End the training for all when the checkpoint fails within."""
        try:
            yield
        except HocketError as error:
            self.fail(str(error))
            raise

    def send_values(self, peer: WorkerConnection) -> None:
        """Send ``peer`` all values as they are, once there are some."""
        with self.condition:
            self._wait(lambda: self._has_values, "worker 0's values")
        peer.send_bulk(Kind.VALUES, self.values.pack_values())

    def _wait(self, predicate: Callable[[], bool], what: str) -> None:
        if not self.condition.wait_for(lambda: bool(predicate() or self.failure), self.job.timeout_s):
            raise TransportError(f"{what} did not come within {self.job.timeout_s:g} s")
        if self.failure:
            raise TransportError(self.failure)

    # Messages of workers.

    def handle_message(self, peer: WorkerConnection, message: object) -> None:
        """``peer`` has said something; TransportError where it does not belong here."""
        with self.condition:
            self._wait(lambda: self._has_values, "worker 0's values")
            if peer.is_gone:  # what it said last may be heard after its tensors have ended
                raise TransportError("it is gone")
            spec = self.spec
            assert spec is not None
            match message:
                case training_messages.FrameLayout():
                    peer.use_layout(message)
                case training_messages.PullRequest():
                    if not self.ledger.may_request_pulls(peer.worker):
                        raise TransportError("it asked for a step before it had ended the last one")
                    self.ledger.note_pull_request(peer.worker)
                    peer.handle_pull_request()
                case training_messages.Commit(settings, scale):
                    if not self.ledger.may_commit(peer.worker):
                        raise TransportError("it ended a step that it is not in")
                    check_settings(spec, settings)
                    self._updates.take_commit(peer, settings, real(scale))
                    self._check_stuck()
                case training_messages.NormsRequest(norm_type):
                    self._requests.ask_norms(peer, real(norm_type))
                case training_messages.OptimizerStateRequest():
                    self._requests.ask_optimizer(peer)
                case training_messages.PlanMessage(plan) if peer.worker == 0:
                    check_plan(spec, plan)
                    self._plan_message = message
                    for other in self.peers.values():
                        if other is not peer:
                            with contextlib.suppress(TransportError):  # its own thread reports a loss
                                other.connection.send(message)
                case training_messages.Farewell():
                    self.handle_end(peer, farewell=True)
                case _:
                    raise TransportError(f"it said what is not for it to say now ({type(message).__name__})")
            self._requests.answer(self.peers.values())

    def handle_tensor(self, peer: WorkerConnection, header: Header, payload: torch.Tensor | None) -> None:
        """A tensor has arrived from ``peer``."""
        assert payload is not None
        if header.kind is Kind.VALUES and peer.worker == 0 and not self._has_values:
            with self._fail_for_all():
                self.values.load(payload)
            with self.condition:
                self._has_values = True
                self.condition.notify_all()
            return
        with self.condition:
            if header.kind is Kind.STATE and peer.worker == 0:
                self._handle_buffers(peer, header.label, payload)
            elif header.kind is Kind.PUSH and not peer.is_gone:
                self._updates.take_gradients(peer, header.label, peer.handle_push(header))
            elif not peer.is_gone:
                raise TransportError(f"it sent what it was not to ({header})")
            self._requests.answer(self.peers.values())

    def _handle_buffers(self, peer: WorkerConnection, label: int, payload: torch.Tensor) -> None:
        if self._updates.closed:
            return
        with self._fail_for_all():
            self.values.take_buffers(label, payload)
        if not peer.is_gone:
            peer.transport.expect(STATE, payload)
            peer.send_pulls()

    def has_buffers_of(self, peer: WorkerConnection) -> bool:
        """True if what goes with ``peer``'s last step beside its pushes is kept, so that it can be told."""
        if self.values.checkpoint is None or peer.worker or not self.values.buffers.pieces:
            return True
        return self.values.label >= peer.label

    # Messages to workers.

    def fill_frame(self, frame: Frame) -> None:
        """Put present values in ``frame``."""
        self.values.fill_frame(frame)

    def _after_updates(self, parameters: list[int]) -> None:
        # A step that has ended may be what any worker waits for.
        self._send_pulls(None if self.job.rule.staleness is not None else parameters)

    def _send_pulls(self, parameters: Iterable[int] | None = None) -> None:
        """Send what workers may pull now that ``parameters`` are newer, or of all of them."""
        for peer in self.peers.values():
            peer.send_pulls(parameters)
        self._requests.answer(self.peers.values())

    # Workers go.

    def handle_end(
        self, peer: WorkerConnection, *, farewell: bool = False, last_tensor: bool = False
    ) -> None:
        """``peer`` has said that it has finished, or its last tensor has come; once both, it leaves."""
        with self.condition:
            peer.said_bye |= farewell
            peer.data_ended |= last_tensor
            if not (peer.said_bye and peer.data_ended) or peer.is_gone:
                return
            self.finished_workers.add(peer.worker)
            self._updates.enqueue(self.ledger.leave(peer.worker, finished=True))
            self._forget(peer)
            peer.end("it has finished", hang_up=False)
            self._check_stuck()
            self._send_pulls()
            self.condition.notify_all()

    def handle_loss(self, peer: WorkerConnection, why: str) -> None:
        """``peer`` is gone without a farewell, or breaks the rules."""
        with self.condition:
            if self.peers.get(peer.worker) is not peer:
                peer.end(why)
                return
            peer.end(why)
            self._forget(peer)
            if self.spec is not None and peer.worker in self.ledger.members:
                self._updates.enqueue(self.ledger.leave(peer.worker, finished=False))
            rule = self.job.rule
            left = self.finished_workers | set(self.peers) | (set(range(rule.workers)) - self.seen_workers)
            if rule.mode == "sync" and self.spec is not None and len(left) < rule.needed:
                self.fail(f"worker {peer.worker} is gone in step {peer.label}: {why}")
            elif not self.failure:
                print(f"hocket: server {self.index}: worker {peer.worker} is gone: {why}", file=sys.stderr)
            if self._has_values:
                self._send_pulls()
            self.condition.notify_all()

    def _forget(self, peer: WorkerConnection) -> None:
        del self.peers[peer.worker]
        if self.spec is not None:
            self._requests.forget(peer)

    def _check_stuck(self) -> None:
        if self.ledger.is_stuck:
            done = ", ".join(map(str, sorted(self.finished_workers)))
            self.fail(
                f"worker {done} has finished while others go on; give every worker the same number of batches"
            )
