"""A worker's side of parameter servers, without a model: steps of pulls that arrive and pushes that leave.

A step is :meth:`Client.request_pulls`, then for each parameter :meth:`Client.wait_for_parameter` and
:meth:`Client.push`, in any order that the worker likes, and :meth:`Client.commit`. Training drives it by a
model's hooks, a replay by a clock.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from hocket.errors import HocketError
from hocket.graph import Plan
from hocket.launch import ServedJob
from hocket.runtime.ps.wire import training_messages
from hocket.runtime.ps.wire.layout import Frame, frame_layouts, homes_of
from hocket.runtime.ps.wire.model_spec import Spec
from hocket.runtime.ps.wire.order_statistics import Direction, OrderStatistics
from hocket.runtime.ps.wire.packing import PackedValues
from hocket.runtime.ps.wire.training_messages import Piece, Settings
from hocket.runtime.ps.wire.transport import FIRST_FRAME, STATE, TransportError
from hocket.runtime.ps.worker.join_servers import join_servers
from hocket.runtime.ps.worker.server_connection import ServerConnection

TransferCallback = Callable[[Direction, int, Frame, float, float], None]
"""Of a transfer: "pull" or "push", its server, its frame, and when it began and ended (perf_counter)."""

_THREADS_END_S = 1.0
_WORD_S = 5.0


class Client:
    """Worker ``worker`` of ``job``, which trains what ``spec`` describes.

    ``values()`` are its initial ones by name, and the optimizer's state as ``name/key``; worker 0's hold,
    unless servers have some already. ``condition`` guards all state. ``initial``: everybody's values at the
    start, by name; ``first_step``: how many steps of this worker count in them already. ``published_plan``:
    worker 0's plan, once it came.

    Raises
    ------
    HocketError
        When servers cannot be reached or refuse this worker; in every method when one is lost, or does not
        answer within the job's timeout.
    """

    def __init__(
        self,
        job: ServedJob,
        worker: int,
        spec: Spec,
        values: Callable[[], PackedValues],
        on_transfer: TransferCallback = lambda *_: None,
    ) -> None:
        self.job, self.worker, self.spec = job, worker, spec
        self.on_transfer = on_transfer
        self.condition = threading.Condition()
        self.homes = homes_of(spec, job.servers)
        self.steps = 0
        self.published_plan: Plan | None = None
        self.order = OrderStatistics()
        self._error = ""
        self._finished = self._error_raised = False
        self._missing_pieces = [0] * len(spec.parameters)
        self._pulls_of: list[list[tuple[Frame, int]]] = []
        self._pushes_of: list[list[tuple[int, int]]] = []
        self._next_tag = FIRST_FRAME
        self._buffers = Frame([Piece(k) for k in range(spec.buffers)], spec.state, STATE, "buffers")
        self._buffers_missing = self._buffers_requested = False
        self.connections: list[ServerConnection] = []
        try:
            self.initial, self.first_step = join_servers(self, values)
            for k, row in enumerate(spec.state[: spec.buffers]):
                self._buffers.fill(k, self.initial[row.name])
        except TransportError as error:
            self.close()
            raise HocketError(f"worker {worker} cannot join: {error}") from None
        except HocketError:
            self.close()
            raise

    # A plan.

    def use_plan(self, plan: Plan, *, drawn_anew: bool = False) -> None:
        """Follow ``plan`` from the next step on; ``drawn_anew``: pulls in a new random order each."""
        names = [tensor.name for tensor in self.spec.parameters]
        layouts = frame_layouts(plan, names, self.homes, drawn_anew=drawn_anew, first_tag=self._next_tag)
        with self.condition:
            self._pulls_of = [[] for _ in names]
            self._pushes_of = [[] for _ in names]
            for connection, layout, members in zip(self.connections, layouts, self.homes.of, strict=True):
                connection.use_layout(layout)
                self._next_tag = max(
                    self._next_tag, layout.first_tag + len(layout.pulls) + len(layout.pushes)
                )
                for frame in connection.pulls:
                    for k, piece in enumerate(frame.pieces):
                        self._pulls_of[members[piece.parameter]].append((frame, k))
                for rank, frame in enumerate(connection.pushes):
                    for k, piece in enumerate(frame.pieces):
                        self._pushes_of[members[piece.parameter]].append((rank, k))

    # A step.

    def request_pulls(self) -> None:
        """Ask every server for the pulls of the next step; what came with the last one is overwritten."""
        with self.condition:
            self._check()
            self._missing_pieces = [len(pieces) for pieces in self._pulls_of]
            self._buffers_missing = self._buffers_requested = bool(self.worker and self._buffers.pieces)
            for connection in self.connections:
                buffers = self._buffers.buffer if self._buffers_missing and connection.index == 0 else None
                self._call_server(connection, functools.partial(connection.request_pulls, buffers=buffers))

    def has_parameter(self, i: int) -> bool:
        """True if parameter ``i`` has arrived for this step."""
        return self._missing_pieces[i] == 0

    def wait_for_parameter(self, i: int) -> None:
        """Until parameter ``i`` has arrived for this step."""
        if self._missing_pieces[i] or self._error:
            server = self.homes.server[i]
            self.wait_or_fail(
                lambda: self._missing_pieces[i] == 0,
                f"server {server} did not send '{self.spec.parameters[i].name}'",
            )

    def wait_until(self, predicate: Callable[[], bool], timeout_s: float) -> bool:
        """Until ``predicate``, which is asked whenever something arrives, at most so long; whether it is."""
        with self.condition:
            self.condition.wait_for(lambda: bool(self._error) or predicate(), timeout_s)
            self._check()
            return predicate()

    def wait_or_fail(self, predicate: Callable[[], bool], failure: str) -> None:
        """Until ``predicate``, which is asked whenever something arrives; else an error with ``failure``."""
        started_s = time.monotonic()
        with self.condition:
            self.condition.wait_for(lambda: bool(self._error) or predicate(), self.job.timeout_s)
            self._check()
            if not predicate():
                raise HocketError(
                    f"training stopped: {failure} within {time.monotonic() - started_s:.0f} s;"
                    " raise the timeout"
                )

    def value(self, i: int) -> torch.Tensor:
        """The value of parameter ``i`` that has arrived, flat; good until the next :meth:`request_pulls`."""
        pieces = [frame.views[k] for frame, k in self._pulls_of[i]]
        if len(pieces) == 1:
            return pieces[0]
        ordered = sorted(self._pulls_of[i], key=lambda place: place[0].pieces[place[1]].part)
        return torch.cat([frame.views[k] for frame, k in ordered])

    def push(self, i: int, gradient: torch.Tensor | None) -> None:
        """The gradient of ``i`` is complete (None: not used); its push leaves when its batch is."""
        connection = self.connections[self.homes.server[i]]
        if connection.label < 0:
            self.wait_or_fail(
                lambda: connection.label >= 0, f"server {connection.index} did not begin the step"
            )
        for rank, k in self._pushes_of[i]:
            connection.fill(rank, k, gradient)

    def send_buffers(self, buffers: Sequence[torch.Tensor | None]) -> None:
        """Worker 0: the model's buffers as the step has left them; None: as it was sent last."""
        if self.worker == 0 and self._buffers.pieces:
            for k, value in enumerate(buffers):
                if value is not None:
                    self._buffers.fill(k, value)
            self.connections[0].send_buffers(self._buffers.buffer.clone())

    def received_buffers(self) -> list[torch.Tensor] | None:
        """The buffers that go with this step's parameters; None where the worker's own hold."""
        if not self._buffers_requested:
            return None
        self.wait_or_fail(lambda: not self._buffers_missing, "server 0 did not send the buffers")
        self._buffers_requested = False
        return [view.clone() for view in self._buffers.views]

    def norms(self, norm_type: float) -> list[float]:
        """Of each reduced gradient of this step, whose pushes are complete on all workers."""
        for connection in self.connections:
            connection.norms = None
            connection.send_message(training_messages.NormsRequest(repr(float(norm_type))))
        self.wait_or_fail(
            lambda: all(connection.norms is not None for connection in self.connections),
            "servers did not tell norms",
        )
        by_server = [connection.norms or [] for connection in self.connections]
        return [by_server[s][place] for s, place in zip(self.homes.server, self.homes.place, strict=True)]

    def commit(self, settings: Settings, scale: float = 1.0) -> None:
        """Have this step's pushes count, with these settings, gradients times ``scale``."""
        self.wait_or_fail(
            lambda: all(connection.label >= 0 for connection in self.connections),
            "servers did not begin the step",
        )
        with self.condition:
            self._check()
            for connection in self.connections:
                connection.send_message(training_messages.Commit(settings, repr(scale)))
            self.steps += 1

    # Beside steps.

    def optimizer_state(self) -> dict[str, Any]:
        """The optimizer's state, ``name/key``, with all that this worker has committed."""
        for connection in self.connections:
            connection.optimizer_state = None
            connection.send_message(training_messages.OptimizerStateRequest())
        self.wait_or_fail(
            lambda: all(connection.optimizer_state is not None for connection in self.connections),
            "servers did not send the optimizer's state",
        )
        return {
            key: value
            for connection in self.connections
            for key, value in (connection.optimizer_state or {}).items()
        }

    def publish(self, plan: Plan) -> None:
        """Worker 0: this plan is for everybody, from their next step on."""
        self.connections[0].send_message(training_messages.PlanMessage(plan))
        with self.condition:
            self.published_plan = plan

    def finish(self) -> None:
        """Leave once every step counts that was committed; servers go on without this worker.

        Raises
        ------
        HocketError
            Where a step may be lost: a server has gone before, of which nobody was told, or is late.
        """
        with self.condition:
            if self._finished and not self._error:
                return
            # Pulls behind the last step come when that counts.
            self.condition.wait_for(
                lambda: bool(self._error) or not any(self._missing_pieces), self.job.timeout_s
            )
            lost = self._error
            if any(self._missing_pieces) and not lost:
                lost = f"servers did not say that the last step counts within {self.job.timeout_s:g} s"
            if not lost:
                self._finished = True
                for connection in self.connections:
                    connection.finish()
                self.condition.wait_for(
                    lambda: bool(self._error) or all(connection.has_ended for connection in self.connections),
                    self.job.timeout_s,
                )
        self.close()
        if lost and not self._error_raised:
            self._error_raised = True
            raise HocketError(f"training stopped: {lost}")

    def close(self) -> None:
        """End every connection; servers take this worker for lost, unless it has finished."""
        self._close_connections()
        deadline_s = time.monotonic() + _THREADS_END_S
        for connection in self.connections:
            connection.join(deadline_s)

    def owns(self, thread: threading.Thread) -> bool:
        """True if ``thread`` is one of those that talk with servers."""
        return any(thread in connection.threads for connection in self.connections)

    # Reports of connections, in their threads.

    def handle_pull(self, connection: ServerConnection, frame: Frame) -> None:
        """A pull of ``connection`` has arrived."""
        members = self.homes.of[connection.index]
        for piece in frame.pieces:
            self._missing_pieces[members[piece.parameter]] -= 1

    def handle_buffers(self) -> None:
        """The buffers have arrived."""
        self._buffers_missing = False

    def handle_message(self, connection: ServerConnection, message: object) -> None:
        """``connection``'s server has said something."""
        with self.condition:
            match message:
                case training_messages.JoinAnswer():
                    connection.join_answer = message
                case training_messages.Norms(norms):
                    connection.norms = [float(norm) for norm in norms]
                case training_messages.PlanMessage(plan):
                    self.published_plan = plan
                case training_messages.Failed(why):
                    if not self._finished:
                        self._error = f"server {connection.index} ended it: {why}"
                    connection.has_ended = True
                    self._close_connections()
            self.condition.notify_all()

    def handle_loss(self, connection: ServerConnection, why: str, *, on_control: bool = False) -> None:
        """``connection``'s server is lost; the first reason is the one that is told.

        A server's own reason comes ``on_control``, its control connection, perhaps after its others broke.
        """
        with self.condition:
            if not on_control:
                self.condition.wait_for(lambda: bool(self._error) or self._finished, _WORD_S)
            if not self._finished:
                self._error = f"server {connection.index} at {connection.address} is gone ({why})"
                self._close_connections()
            connection.has_ended = True
            self.condition.notify_all()

    def _call_server(self, connection: ServerConnection, call: Callable[[], None]) -> None:
        try:
            call()
        except TransportError as error:
            self.handle_loss(connection, str(error))
            self._check()

    def _check(self) -> None:
        if self._error:
            self._error_raised = True
            self._close_connections()
            raise HocketError(f"training stopped: {self._error}")

    def _close_connections(self) -> None:
        self._finished = True
        for connection in self.connections:
            connection.close()
