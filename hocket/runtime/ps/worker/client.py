"""A worker's side of parameter servers, without a model: steps of pulls that arrive and pushes that leave.

A step is :meth:`Client.want`, then for each parameter :meth:`Client.wait` and :meth:`Client.push`, in any
order that the worker likes, and :meth:`Client.commit`. Training drives it by a model's hooks, a replay by a
clock.
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
from hocket.runtime.ps.wire.layout import Frame, cut, homes_of
from hocket.runtime.ps.wire.model_spec import Spec
from hocket.runtime.ps.wire.order_statistics import Direction, Order
from hocket.runtime.ps.wire.packing import PackedValues
from hocket.runtime.ps.wire.training_messages import Piece, Settings
from hocket.runtime.ps.wire.transport import FIRST_FRAME, STATE, TransportError
from hocket.runtime.ps.worker.join_servers import join
from hocket.runtime.ps.worker.server_connection import ServerConnection

Moved = Callable[[Direction, int, Frame, float, float], None]
"""Of a transfer: "pull" or "push", its server, its frame, and when it began and ended (perf_counter)."""

_THREADS_END_S = 1.0
_WORD_S = 5.0


class Client:
    """Worker ``worker`` of ``job``, which trains what ``spec`` describes.

    ``values()`` are its initial ones by name, and the optimizer's state as ``name/key``; worker 0's hold,
    unless servers have some already. ``changed`` guards all state. ``initial``: everybody's values at the
    start, by name; ``first_step``: how many steps of this worker count in them already. ``planned``: worker
    0's plan, once it came.

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
        moved: Moved = lambda *_: None,
    ) -> None:
        self.job, self.worker, self.spec = job, worker, spec
        self.moved = moved
        self.changed = threading.Condition()
        self.homes = homes_of(spec, job.servers)
        self.steps = 0
        self.planned: Plan | None = None
        self.order = Order()
        self._error = ""
        self._finished = self._told = False
        self._missing = [0] * len(spec.parameters)
        self._pull_of: list[list[tuple[Frame, int]]] = []
        self._push_of: list[list[tuple[int, int]]] = []
        self._next_tag = FIRST_FRAME
        self._state = Frame([Piece(k) for k in range(spec.buffers)], spec.state, STATE, "buffers")
        self._state_due = self._state_asked = False
        self.pairs: list[ServerConnection] = []
        try:
            self.initial, self.first_step = join(self, values)
            for k, row in enumerate(spec.state[: spec.buffers]):
                self._state.fill(k, self.initial[row.name])
        except TransportError as error:
            self.close()
            raise HocketError(f"worker {worker} cannot join: {error}") from None
        except HocketError:
            self.close()
            raise

    # A plan.

    def lay(self, plan: Plan, *, drawn: bool = False) -> None:
        """Cut what travels by ``plan`` from the next step on; ``drawn``: pulls in a new random order each."""
        names = [tensor.name for tensor in self.spec.parameters]
        lays = cut(plan, names, self.homes, drawn=drawn, first_tag=self._next_tag)
        with self.changed:
            self._pull_of = [[] for _ in names]
            self._push_of = [[] for _ in names]
            for pair, lay, members in zip(self.pairs, lays, self.homes.of, strict=True):
                pair.lay(lay)
                self._next_tag = max(self._next_tag, lay.first_tag + len(lay.pulls) + len(lay.pushes))
                for frame in pair.pulls:
                    for k, piece in enumerate(frame.pieces):
                        self._pull_of[members[piece.parameter]].append((frame, k))
                for rank, frame in enumerate(pair.pushes):
                    for k, piece in enumerate(frame.pieces):
                        self._push_of[members[piece.parameter]].append((rank, k))

    # A step.

    def want(self) -> None:
        """Ask every server for the pulls of the next step; what came with the last one is overwritten."""
        with self.changed:
            self._check()
            self._missing = [len(pieces) for pieces in self._pull_of]
            self._state_due = self._state_asked = bool(self.worker and self._state.pieces)
            for pair in self.pairs:
                state = self._state.buffer if self._state_due and pair.index == 0 else None
                self._guarded(pair, functools.partial(pair.want, state=state))

    def has(self, i: int) -> bool:
        """True if parameter ``i`` has arrived for this step."""
        return self._missing[i] == 0

    def wait(self, i: int) -> None:
        """Until parameter ``i`` has arrived for this step."""
        if self._missing[i] or self._error:
            server = self.homes.server[i]
            self.until(
                lambda: self._missing[i] == 0,
                f"server {server} did not send '{self.spec.parameters[i].name}'",
            )

    def wait_until(self, due: Callable[[], bool], timeout_s: float) -> bool:
        """Until ``due``, which is asked whenever something arrives, at most so long; whether it is."""
        with self.changed:
            self.changed.wait_for(lambda: bool(self._error) or due(), timeout_s)
            self._check()
            return due()

    def until(self, due: Callable[[], bool], what: str) -> None:
        """Until ``due``, which is asked whenever something arrives; else an error with ``what``."""
        started_s = time.monotonic()
        with self.changed:
            self.changed.wait_for(lambda: bool(self._error) or due(), self.job.timeout_s)
            self._check()
            if not due():
                raise HocketError(
                    f"training stopped: {what} within {time.monotonic() - started_s:.0f} s; raise the timeout"
                )

    def value(self, i: int) -> torch.Tensor:
        """The value of parameter ``i`` that has arrived, flat; good until the next :meth:`want`."""
        pieces = [frame.views[k] for frame, k in self._pull_of[i]]
        if len(pieces) == 1:
            return pieces[0]
        ordered = sorted(self._pull_of[i], key=lambda place: place[0].pieces[place[1]].part)
        return torch.cat([frame.views[k] for frame, k in ordered])

    def push(self, i: int, gradient: torch.Tensor | None) -> None:
        """The gradient of ``i`` is complete (None: not used); its push leaves when its batch is."""
        pair = self.pairs[self.homes.server[i]]
        if pair.label < 0:
            self.until(lambda: pair.label >= 0, f"server {pair.index} did not begin the step")
        for rank, k in self._push_of[i]:
            pair.fill(rank, k, gradient)

    def send_state(self, buffers: Sequence[torch.Tensor | None]) -> None:
        """Worker 0: the model's buffers as the step has left them; None: as it was sent last."""
        if self.worker == 0 and self._state.pieces:
            for k, value in enumerate(buffers):
                if value is not None:
                    self._state.fill(k, value)
            self.pairs[0].send_state(self._state.buffer.clone())

    def received_state(self) -> list[torch.Tensor] | None:
        """The buffers that go with this step's parameters; None where the worker's own hold."""
        if not self._state_asked:
            return None
        self.until(lambda: not self._state_due, "server 0 did not send the buffers")
        self._state_asked = False
        return [view.clone() for view in self._state.views]

    def norms(self, norm_type: float) -> list[float]:
        """Of each reduced gradient of this step, whose pushes are complete on all workers."""
        for pair in self.pairs:
            pair.norms = None
            pair.say(training_messages.AskNorms(repr(float(norm_type))))
        self.until(lambda: all(pair.norms is not None for pair in self.pairs), "servers did not tell norms")
        by_server = [pair.norms or [] for pair in self.pairs]
        return [by_server[s][place] for s, place in zip(self.homes.server, self.homes.place, strict=True)]

    def commit(self, settings: Settings, scale: float = 1.0) -> None:
        """Have this step's pushes count, with these settings, gradients times ``scale``."""
        self.until(lambda: all(pair.label >= 0 for pair in self.pairs), "servers did not begin the step")
        with self.changed:
            self._check()
            for pair in self.pairs:
                pair.say(training_messages.Commit(settings, repr(scale)))
            self.steps += 1

    # Beside steps.

    def optimizer_state(self) -> dict[str, Any]:
        """The optimizer's state, ``name/key``, with all that this worker has committed."""
        for pair in self.pairs:
            pair.optimizer_state = None
            pair.say(training_messages.AskState())
        self.until(
            lambda: all(pair.optimizer_state is not None for pair in self.pairs),
            "servers did not send the optimizer's state",
        )
        return {key: value for pair in self.pairs for key, value in (pair.optimizer_state or {}).items()}

    def publish(self, plan: Plan) -> None:
        """Worker 0: this plan is for everybody, from their next step on."""
        self.pairs[0].say(training_messages.PlanMessage(plan))
        with self.changed:
            self.planned = plan

    def finish(self) -> None:
        """Leave once every step counts that was committed; servers go on without this worker.

        Raises
        ------
        HocketError
            Where a step may be lost: a server has gone before, of which nobody was told, or is late.
        """
        with self.changed:
            if self._finished and not self._error:
                return
            # Pulls behind the last step come when that counts.
            self.changed.wait_for(lambda: bool(self._error) or not any(self._missing), self.job.timeout_s)
            lost = self._error
            if any(self._missing) and not lost:
                lost = f"servers did not say that the last step counts within {self.job.timeout_s:g} s"
            if not lost:
                self._finished = True
                for pair in self.pairs:
                    pair.finish()
                self.changed.wait_for(
                    lambda: bool(self._error) or all(pair.ended for pair in self.pairs), self.job.timeout_s
                )
        self.close()
        if lost and not self._told:
            self._told = True
            raise HocketError(f"training stopped: {lost}")

    def close(self) -> None:
        """End every connection; servers take this worker for lost, unless it has finished."""
        self._hang_up()
        deadline_s = time.monotonic() + _THREADS_END_S
        for pair in self.pairs:
            pair.join(deadline_s)

    def owns(self, thread: threading.Thread) -> bool:
        """True if ``thread`` is one of those that talk with servers."""
        return any(thread in pair.threads for pair in self.pairs)

    # Reports of pairs, in their threads.

    def arrived(self, pair: ServerConnection, frame: Frame) -> None:
        """A pull of ``pair`` has arrived."""
        members = self.homes.of[pair.index]
        for piece in frame.pieces:
            self._missing[members[piece.parameter]] -= 1

    def state_arrived(self) -> None:
        """The buffers have arrived."""
        self._state_due = False

    def heard(self, pair: ServerConnection, message: object) -> None:
        """``pair``'s server has said something."""
        with self.changed:
            match message:
                case training_messages.Started():
                    pair.started = message
                case training_messages.Norms(norms):
                    pair.norms = [float(norm) for norm in norms]
                case training_messages.PlanMessage(plan):
                    self.planned = plan
                case training_messages.Failed(why):
                    if not self._finished:
                        self._error = f"server {pair.index} ended it: {why}"
                    pair.ended = True
                    self._hang_up()
            self.changed.notify_all()

    def failed(self, pair: ServerConnection, why: str, *, heard: bool = False) -> None:
        """``pair``'s server is lost; the first reason is the one that is told.

        A server's reason to end it is ``heard`` on its control connection, perhaps after its others broke.
        """
        with self.changed:
            if not heard:
                self.changed.wait_for(lambda: bool(self._error) or self._finished, _WORD_S)
            if not self._finished:
                self._error = f"server {pair.index} at {pair.address} is gone ({why})"
                self._hang_up()
            pair.ended = True
            self.changed.notify_all()

    def _guarded(self, pair: ServerConnection, call: Callable[[], None]) -> None:
        try:
            call()
        except TransportError as error:
            self.failed(pair, str(error))
            self._check()

    def _check(self) -> None:
        if self._error:
            self._told = True
            self._hang_up()
            raise HocketError(f"training stopped: {self._error}")

    def _hang_up(self) -> None:
        self._finished = True
        for pair in self.pairs:
            pair.close()
