"""The network's side: transfers in one order on all ranks, a few on the way, beside the training thread.

Source: Caramel section 4 (transfers over the whole iteration), with ByteScheduler's queue and credit (Peng et
al. 2019): of the transfers that are ready the most urgent goes first, it waits for the few before it at most,
and the network never waits for a thread to wake.

Differs from the papers
-----------------------
AllReduces that ranks issue in different orders sum up the wrong tensors or wait for each other for ever. So
either the plan lists the order, or rank 0 chooses and tells the others
(:mod:`hocket.runtime.transfers.coordinator`).
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from hocket.runtime.transfers.buckets import Bucket, BucketState, BucketTransfer
from hocket.runtime.transfers.channel_groups import ChannelGroups
from hocket.runtime.transfers.cluster_gate import counter_of_environment
from hocket.runtime.transfers.coordinator import Coordinator
from hocket.runtime.transfers.gloo_group import GlooGroup
from hocket.runtime.transfers.norms import USUAL_ORDERS, GradientNorms
from hocket.runtime.transfers.plan_layout import Layout
from hocket.runtime.transfers.queue import CREDIT, Queue, TransferLane
from hocket.runtime.transfers.sparse_sums import Sum
from hocket.runtime.transfers.training_device import PROCESSORS, Event, TrainingDevice
from hocket.runtime.transfers.transfer_group import StartedCollective

_PATIENCE_S = 2.0

TransferCallback = Callable[[str, Event, Event], None]


class TransferError(Exception):
    """A transfer that failed or did not end; whose fault it is, nobody knows yet."""


class Channel:
    """Reduces what is filled.

    ``CREDIT`` threads a lane take the next transfer, start it once its bucket is filled, and wait for its
    end; where the plan does not list the order, there are the threads of :class:`Coordinator` besides. One
    waits for gradients of which ``device`` has been asked. ``on_transfer`` is called, from the threads that
    transfer, with a transfer's name, and the marks of its start and end.
    """

    def __init__(
        self,
        groups: ChannelGroups,
        timeout_s: float,
        on_transfer: TransferCallback,
        device: TrainingDevice = PROCESSORS,
    ) -> None:
        leads = groups.choices.rank == 0
        self._device, self._groups = device, groups
        self._queue = Queue(groups.transfers, groups.urgent, leads=leads)
        self._condition = self._queue.condition
        self._coordinator = Coordinator(self._queue, groups.choices)
        self._gate_counter = counter_of_environment(leads=leads)
        self._timeout_s = timeout_s
        self._on_transfer = on_transfer
        self._threads: list[threading.Thread] = []
        self._buckets: tuple[Bucket, ...] = ()
        self._stuck = self._hopeless = False
        self._norm_group: GlooGroup | None = None
        self._norms: GradientNorms | None = None

    @property
    def error(self) -> BaseException | None:
        """The exception that a thread failed with, after which nothing is sent; None while all run."""
        return self._queue.error

    def start(self, layout: Layout, orders: Sequence[float] = USUAL_ORDERS) -> None:
        """Send along ``layout``, over and over, until :meth:`stop`.

        ``orders``: of norms that are to be known early, where it has halves.
        """
        assert not self._threads
        self._gate_counter.reset(layout)
        self._queue.reset(layout)
        self._buckets = layout.buckets
        transferring: list[Callable[[], None]] = [
            functools.partial(self._transfer, lane) for lane in self._queue.lanes for _ in range(CREDIT)
        ]
        if self._device.record() is not None:
            transferring.append(self._wait_for_gradients)
        self._norms = self._make_norms(layout, orders) if layout.has_halves else None
        if self._norms is not None:
            # It is the host's own, and no moments of a device are known here.
            on_transfer = self._on_transfer if self._device.record() is None else lambda *_: None
            transferring.append(functools.partial(self._norms.sum_up, self._queue, on_transfer))
        choosing = [] if self._queue.lists_order else self._coordinator.begin()
        self._threads = [
            threading.Thread(target=self._queue.run, args=[work], name=f"hocket-{kind}-{k}", daemon=True)
            for kind, works in (("transfers", transferring), ("choices", choosing))
            for k, work in enumerate(works)
        ]
        for thread in self._threads:
            thread.start()

    def _make_norms(self, layout: Layout, orders: Sequence[float]) -> GradientNorms:
        if self._norm_group is None:
            assert self._groups.make_norms is not None
            self._norm_group = self._groups.make_norms()
        return GradientNorms(layout, self._norm_group, orders)

    def fail(self, line: str) -> None:
        """Make waiting threads fail, as what is on its way never arrives."""
        with self._condition:
            self._hopeless = True
            self._queue.error = self._queue.error or TransferError(line)
            self._condition.notify()
        if self._queue.urgent is None:  # streams, too, wait for what never arrives
            self._groups.transfers.abandon()

    def stop(self) -> None:
        """End the threads once what can go has arrived, or failed: other ranks wait for it, too."""
        queue = self._queue
        with self._condition:
            # Where a backward pass ended halfway, what it filled may be what others never fill.
            halfway = len({bucket.rounds for bucket in self._buckets}) > 1
            self._condition.wait_for(
                lambda: queue.error is not None or not (self._under_way() or queue.may_go()),
                _PATIENCE_S if halfway else self._timeout_s,
            )
            self._condition.wait_for(
                lambda: queue.error is not None or not self._under_way(), self._timeout_s
            )
            queue.stopping = True
            self._condition.notify()
        # There, too, threads may wait for a word that never comes.
        given_up_s = time.monotonic() + _PATIENCE_S
        for thread in self._threads:
            patient = not (self._hopeless or thread.name.startswith("hocket-choices"))
            thread.join(timeout=self._timeout_s if patient else max(0.0, given_up_s - time.monotonic()))
        self._stuck |= any(thread.is_alive() for thread in self._threads)
        self._threads = []

    def _under_way(self) -> bool:
        return bool(self._queue.under_way()) or (self._norms is not None and self._norms.under_way)

    @property
    def quiet(self) -> bool:
        """True if a channel that was stopped has nothing on any group any more."""
        return self.error is None and not self._stuck

    def submit(self, bucket: Bucket) -> None:
        """``bucket`` is filled: reduce it when its turn comes."""
        self._gate_counter.count_filled()
        with self._condition:
            bucket.state = BucketState.SENT
            bucket.missing_transfers = len(self._queue.places(bucket))
            bucket.rounds += 1
            if bucket.last_use is None:
                self._add_filled(bucket)
            else:
                self._queue.unready_buckets.append(bucket)
            self._condition.notify()

    def _add_filled(self, bucket: Bucket) -> None:
        """Let ``bucket``, whose gradients are there, be chosen; in the lock."""
        self._queue.fill(bucket)
        if not self._queue.lists_order:
            self._coordinator.add_filled(bucket)

    def wait(self, bucket: Bucket) -> None:
        """Until ``bucket`` has arrived, or it is known at which events it has.

        Raises
        ------
        TransferError
            When a transfer failed or did not end in time.
        """
        places = self._queue.places(bucket)
        self._wait_for_places(lambda: not bucket.missing_transfers, places, f"'{bucket.names[0]}'")

    def knows_norms(self, bucket: Bucket) -> bool:
        """Tell whether the norms of the round in which ``bucket`` was sent are here."""
        return self._norms is not None and self._norms.are_known(bucket)

    def wait_for_norms(self, bucket: Bucket) -> None:
        """Until they are.

        Raises
        ------
        TransferError
            As :meth:`wait`.
        """
        places = self._queue.places_of_sums()
        self._wait_for_places(lambda: self.knows_norms(bucket), places, "the norm of all gradients")

    @property
    def norm_orders(self) -> Sequence[float]:
        """The orders of norms that are known before gradients arrive; none without halves."""
        return () if self._norms is None else self._norms.orders

    def norm(self, bucket: Bucket, index: int, order: float) -> float:
        """The norm of a gradient of ``bucket``; they are here."""
        assert self._norms is not None
        return self._norms.norm(bucket, index, order)

    def _wait_for_places(self, arrived: Callable[[], bool], places: Iterable[int], name: str) -> None:
        """Until what these ``places`` bring has ``arrived``."""
        queue = self._queue
        with self._condition:
            before, queue.awaited_places = queue.awaited_places, frozenset(places)
            self._condition.notify()
            try:
                done = self._condition.wait_for(lambda: queue.error is not None or arrived(), self._timeout_s)
            finally:  # an interrupt must not leave others waiting for what nobody waits for here
                queue.awaited_places = before
        if queue.error is not None:
            raise TransferError(str(queue.error) or repr(queue.error)) from queue.error
        if not done:
            raise TransferError(f"{name} did not arrive within {self._timeout_s:g} s")

    def at_its_turn(self, work: Callable[[], object]) -> Callable[[], None]:
        """``work``, once this rank may compute its next step."""
        return functools.partial(self._gate_counter.step, work)

    def has_arrived(self, bucket: Bucket) -> bool:
        """True if a bucket that was sent could be used without waiting."""
        return bucket.missing_transfers == 0 and all(map(self._device.has_passed, bucket.arrivals))

    def _wait_for_gradients(self) -> None:
        """Wait for gradients on their way into buckets, one after the other: so they were asked for."""
        unready = self._queue.unready_buckets
        while True:
            with self._condition:
                if not self._queue.wait_until(lambda: bool(unready)):
                    return
                bucket = unready[0]
            self._device.wait(bucket.last_use)
            with self._condition:
                self._add_filled(unready.popleft())
                self._condition.notify()

    def _transfer(self, lane: TransferLane) -> None:
        with self._device.own_stream():
            while (taken := self._send_next(lane)) is not None:
                transfer, work, started = taken
                work.wait()
                ended = self._device.mark()
                powers = None if self._norms is None else self._norms.fetch_powers(transfer)
                arrival = self._device.record()
                if arrival is not None:  # the training thread goes on, with work that follows it
                    with self._condition:
                        transfer.bucket.arrivals.append(arrival)
                        transfer.bucket.missing_transfers -= 1
                        self._condition.notify()
                    self._device.wait(arrival)
                self._on_transfer(transfer.name, started, ended)
                self._gate_counter.count_arrival()
                with self._condition:
                    if self._norms is not None and powers is not None:
                        self._norms.add(powers)
                    self._queue.fill_behind(transfer)
                    if arrival is None:
                        transfer.bucket.missing_transfers -= 1
                    lane.under_way -= 1
                    self._condition.notify()

    def _send_next(self, lane: TransferLane) -> tuple[BucketTransfer, StartedCollective | Sum, Event] | None:
        """Start the next transfer of ``lane``; None when there will be none."""
        queue = self._queue
        with lane.start_lock:
            with self._condition:
                if not queue.wait_until(
                    lambda: (
                        bool(lane.next) and lane.next[0] in queue.filled_places and not queue.must_wait(lane)
                    )
                ):
                    return None
                place = lane.next.popleft()
                if queue.lists_order:
                    lane.next.append(place)
                del queue.filled_places[place]
                lane.under_way += 1
                self._condition.notify()
            transfer = queue.order[place]
            self._gate_counter.wait_to_start(transfer)
            started = self._device.mark()
            return transfer, transfer.start(lane.group), started
