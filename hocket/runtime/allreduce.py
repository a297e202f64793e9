"""The network's side: transfers in one order on all ranks, a few on the way, beside the training thread.

Source: Caramel section 4 (transfers over the whole iteration), with ByteScheduler's queue and credit (Peng et
al. 2019): of the transfers that are ready the most urgent goes first, it waits for the few before it at most,
and the network never waits for a thread to wake.

Differs from the papers
-----------------------
* AllReduces that ranks issue in different orders sum up the wrong tensors or wait for each other for ever. So
  either the plan lists the order, or rank 0 chooses and tells the others: one small message. As Horovod does,
  it chooses of what every rank has filled, so that the network has work while one of them is late; but the
  others tell it of each bucket at once, where Horovod asks all of them again and again.
* Nothing is chosen before it can start, as what is ready then may be more urgent: the transfer that is still
  on the way keeps the network busy while the others hear of the next one.
* What rank 0 itself waits for does not wait for credit: it goes at once, on a group of its own, and nothing
  else is started before it has arrived. Slices would have to be much smaller for as little delay.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from hocket.runtime.buckets import Bucket, Layout, State, Transfer
from hocket.runtime.doorbell import Doorbell
from hocket.runtime.gate import toll_of_environment
from hocket.runtime.group import Group

CREDIT = 2  # transfers on the way: one is reduced while the next is sent
_PATIENCE_S = 2.0

Sent = Callable[[str, float, float], None]


class TransferError(Exception):
    """A transfer that failed or did not end; whose fault it is, nobody knows yet."""


@dataclass(frozen=True)
class Groups:
    """What a channel alone talks on: transfers, those that are waited for, and what rank 0 hears and says."""

    transfers: Group
    urgent: Group
    choices: Group


@dataclass(eq=False)
class _Lane:
    """Transfers that start in one order on all ranks.

    ``next``: places whose turn it is, the first one first; ``issue`` is held while one is taken and started.
    """

    group: Group
    next: deque[int] = field(default_factory=deque)
    under_way: int = 0
    issue: threading.Lock = field(default_factory=threading.Lock)


class Channel:
    """Reduces what is filled.

    ``CREDIT`` threads a lane take the next transfer, start it once its bucket is filled, and wait for its
    end. Where the plan does not list the order, rank 0 has one more that chooses, and one for each other rank
    that hears what is filled there; on the others one tells it and one hears what was chosen. ``sent`` is
    called, from the threads that transfer, with a transfer's name, start and end.
    """

    def __init__(self, groups: Groups, timeout_s: float, sent: Sent) -> None:
        self._usual, self._urgent = _Lane(groups.transfers), _Lane(groups.urgent)
        self._choices = groups.choices
        self._toll = toll_of_environment(leads=self._leads)
        self._timeout_s = timeout_s
        self._sent = sent
        self._changed = Doorbell()
        self._threads: list[threading.Thread] = []
        self._buckets: tuple[Bucket, ...] = ()
        self._order: tuple[Transfer, ...] = ()
        self._listed = True
        self._places: dict[int, list[int]] = {}
        # Places in the order: those that are filled and wait, with their round; those that rank 0 waits for.
        self._filled: dict[int, int] = {}
        self._wanted: frozenset[int] = frozenset()
        # By their first places, buckets: on rank 0 how often each rank has filled each, elsewhere what rank 0
        # is to hear.
        self._filled_by: list[Counter[int]] = [Counter() for _ in range(groups.choices.size)]
        self._untold: deque[int] = deque()
        self._stopping = self._stuck = False
        self.error: BaseException | None = None

    def start(self, layout: Layout) -> None:
        """Send along ``layout``, over and over, until :meth:`stop`."""
        assert not self._threads
        self._stopping = False
        self._toll.lay(layout)
        self._order, self._listed = layout.transfers, layout.plan.issue != "ready"
        self._places = {}
        for place, transfer in enumerate(self._order):
            self._places.setdefault(id(transfer.bucket), []).append(place)
        self._usual.next = deque(range(len(self._order)) if self._listed else ())
        self._urgent.next = deque()
        lanes = [self._usual] if self._listed else [self._usual, self._urgent]
        work = [functools.partial(self._transfer, lane) for lane in lanes for _ in range(CREDIT)]
        self._threads = [
            threading.Thread(target=self._run, args=[each], name=f"hocket-transfers-{k}", daemon=True)
            for k, each in enumerate(work)
        ]
        self._buckets = layout.buckets
        self._filled_by = [Counter() for _ in self._filled_by]
        self._untold.clear()
        if not self._listed:
            together = [self._hear, self._tell]
            if self._leads:
                others = range(1, self._choices.size)
                together = [self._choose, *(functools.partial(self._listen, rank) for rank in others)]
            self._threads += [
                threading.Thread(target=self._run, args=[each], name=f"hocket-choices-{k}", daemon=True)
                for k, each in enumerate(together)
            ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the threads once what can go has arrived, or failed: other ranks wait for it, too."""
        with self._changed:
            # Where a backward pass ended halfway, what it filled may be what others never fill.
            halfway = len({bucket.rounds for bucket in self._buckets}) > 1
            self._changed.wait_for(
                lambda: self.error is not None or not (self._under_way() or self._may_go()),
                _PATIENCE_S if halfway else self._timeout_s,
            )
            self._changed.wait_for(lambda: self.error is not None or not self._under_way(), self._timeout_s)
            self._stopping = True
            self._changed.ring()
        # There, too, threads may wait for a word that never comes.
        given_up_s = time.monotonic() + _PATIENCE_S
        for thread in self._threads:
            patient = not thread.name.startswith("hocket-choices")
            thread.join(timeout=self._timeout_s if patient else max(0.0, given_up_s - time.monotonic()))
        self._stuck |= any(thread.is_alive() for thread in self._threads)
        self._threads = []

    @property
    def quiet(self) -> bool:
        """Whether a channel that was stopped has nothing on any group any more."""
        return self.error is None and not self._stuck

    def send(self, bucket: Bucket) -> None:
        """``bucket`` is filled: reduce it when its turn comes."""
        self._toll.filled()
        with self._changed:
            bucket.state = State.SENT
            places = self._places.get(id(bucket), ())
            bucket.missing = len(places)
            bucket.rounds += 1
            for place in places:
                self._filled[place] = bucket.rounds
            if places and not self._listed and not self._leads:
                self._untold.append(places[0])
            self._changed.ring()

    def wait(self, bucket: Bucket) -> None:
        """Until ``bucket`` has arrived.

        Raises
        ------
        TransferError
            When a transfer failed or did not end in time.
        """
        with self._changed:
            before, self._wanted = self._wanted, frozenset(self._places.get(id(bucket), ()))
            self._changed.ring()
            try:
                done = self._changed.wait_for(
                    lambda: self.error is not None or not bucket.missing, self._timeout_s
                )
            finally:  # an interrupt must not leave others waiting for what nobody waits for here
                self._wanted = before
        if self.error is not None:
            raise TransferError(str(self.error) or repr(self.error)) from self.error
        if not done:
            raise TransferError(f"'{bucket.names[0]}' did not arrive within {self._timeout_s:g} s")

    def at_its_turn(self, work: Callable[[], object]) -> Callable[[], None]:
        """``work``, once this rank may compute its next step."""
        return functools.partial(self._toll.step, work)

    def arrived(self, bucket: Bucket) -> bool:
        """Whether a bucket that was sent could be used without waiting."""
        return bucket.missing == 0

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            with self._changed:
                self.error = self.error or error
                self._changed.ring()

    def _transfer(self, lane: _Lane) -> None:
        while (taken := self._take(lane)) is not None:
            transfer, work, started = taken
            work.wait()
            self._sent(transfer.name, started, time.perf_counter())
            self._toll.arrived()
            with self._changed:
                transfer.bucket.missing -= 1
                lane.under_way -= 1
                self._changed.ring()

    def _take(self, lane: _Lane) -> tuple[Transfer, dist.Work, float] | None:
        """Start the next transfer of ``lane``; None when there will be none."""
        with lane.issue:
            with self._changed:
                if not self._until(
                    lambda: bool(lane.next) and lane.next[0] in self._filled and not self._held(lane)
                ):
                    return None
                place = lane.next.popleft()
                if self._listed:
                    lane.next.append(place)
                del self._filled[place]
                lane.under_way += 1
                self._changed.ring()
            self._toll.leaves(self._order[place])
            started = time.perf_counter()
            return self._order[place], lane.group.reduce(self._order[place].tensor), started

    def _held(self, lane: _Lane) -> bool:
        """Whether rank 0 leaves the network to what it waits for, of which a part may be in either lane."""
        if lane is not self._usual or not self._leads or (lane.next and lane.next[0] in self._wanted):
            return False
        return bool(self._urgent.next or self._urgent.under_way)

    def _choose(self) -> None:
        """Rank 0: choose what goes next, and have the others hear it."""
        message = torch.zeros(2, dtype=torch.int64)
        said: dist.Work | None = None
        while True:
            with self._changed:
                if not self._until(lambda: bool(self._ready()) and self._may_choose()):
                    return
                lane, place = self._choice()
                lane.next.append(place)
                self._changed.ring()
            if said is not None:
                said.wait()
            message.copy_(torch.tensor([place, int(lane is self._urgent)]))
            said = self._choices.broadcast(message)

    def _hear(self) -> None:
        """Other ranks: take rank 0's choices."""
        message = torch.zeros(2, dtype=torch.int64)
        while True:
            with self._changed:
                # As long as something is filled that was not chosen, rank 0 is going to choose.
                if not self._until(lambda: bool(self._open())):
                    return
            self._choices.broadcast(message).wait()
            place, urgent = message.tolist()
            with self._changed:
                (self._urgent if urgent else self._usual).next.append(place)
                self._changed.ring()

    def _tell(self) -> None:
        """Other ranks: tell rank 0 what is filled."""
        while True:
            with self._changed:
                if not self._until(lambda: bool(self._untold)):
                    return
                place = self._untold.popleft()
            self._choices.send(torch.tensor([place]), 0).wait()

    def _listen(self, rank: int) -> None:
        """Rank 0: hear what ``rank`` has filled, while something waits for it; gone, it fails who listens."""
        heard = torch.zeros(1, dtype=torch.int64)
        while True:
            with self._changed:
                if not self._until(lambda: any(not self._filled_on(rank, place) for place in self._open())):
                    return
            self._choices.receive(heard, rank).wait()
            with self._changed:
                self._filled_by[rank][int(heard)] += 1
                self._changed.ring()

    def _may_choose(self) -> bool:
        if self._wanted & self._ready():
            return True
        return not self._held(self._usual) and self._usual.under_way + len(self._usual.next) < CREDIT

    def _choice(self) -> tuple[_Lane, int]:
        """What is waited for, else the first listed place that is ready, and its lane."""
        # All of a round before the next one: others may wait for it, and have nothing else to send.
        wanted = self._wanted & self._ready()
        place = min(wanted or self._ready(), key=lambda place: (self._filled[place], place))
        return (self._urgent if wanted else self._usual), place

    def _open(self) -> set[int]:
        """Places that are filled and were not chosen."""
        return self._filled.keys() - self._usual.next - set(self._urgent.next)

    def _ready(self) -> set[int]:
        """Rank 0: those of them that every rank has filled."""
        others = range(1, self._choices.size)
        return {place for place in self._open() if all(self._filled_on(rank, place) for rank in others)}

    def _filled_on(self, rank: int, place: int) -> bool:
        """Rank 0: whether ``rank`` has filled the bucket of a filled ``place`` as often as this one."""
        first = self._places[id(self._order[place].bucket)][0]
        return self._filled_by[rank][first] >= self._filled[place]

    def _until(self, due: Callable[[], bool]) -> bool:
        """Wait, in the lock, for ``due``; False when there is nothing to wait for any more."""
        self._changed.wait_for(lambda: self._stopping or self.error is not None or due())
        return not self._stopping and self.error is None

    def _under_way(self) -> int:
        return self._usual.under_way + self._urgent.under_way

    def _may_go(self) -> bool:
        """Whether something is filled whose turn has come or can come."""
        turns = [lane.next[0] for lane in (self._usual, self._urgent) if lane.next]
        return any(place in self._filled for place in turns) if turns else bool(self._filled)

    @property
    def _leads(self) -> bool:
        return self._choices.rank == 0
