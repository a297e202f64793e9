"""Which transfer goes next: the plan's order, or rank 0's choice, and nothing before its bucket is filled."""

from __future__ import annotations

import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Queue
from typing import Any, cast

import pytest
import torch

from hocket.graph import Plan, Reduction
from hocket.runtime.lazy.parameter import await_updates
from hocket.runtime.transfers.bucket_memory import BucketMemory
from hocket.runtime.transfers.channel import Channel, TransferError
from hocket.runtime.transfers.channel_groups import ChannelGroups
from hocket.runtime.transfers.gloo_group import GlooGroup
from hocket.runtime.transfers.plan_layout import Layout, lay_out
from hocket.runtime.transfers.queue import CREDIT

LIMIT_S = 20.0
URGENT = 100  # added to a place: in the lane of what is waited for
NAMES = ("a", "b", "c", "d", "e")


@dataclass
class Work:
    """A transfer that ends when somebody says so."""

    ended: threading.Event = field(default_factory=threading.Event)
    failure: str = ""

    def wait(self) -> None:
        assert self.ended.wait(LIMIT_S)
        if self.failure:
            raise RuntimeError(self.failure)


@dataclass
class Heard:
    """A choice of rank 0's that comes when somebody waits for it."""

    tensor: torch.Tensor
    told: Queue[int]

    def wait(self) -> None:
        place = self.told.get(timeout=LIMIT_S)
        self.tensor.copy_(torch.tensor([place % URGENT, place // URGENT]))


@dataclass
class Received:
    """What another rank has filled, once it says so."""

    tensor: torch.Tensor
    told: Queue[int]

    def wait(self) -> None:
        self.tensor.fill_(self.told.get(timeout=LIMIT_S))


@dataclass
class Network:
    """Stands in for all groups: what was started, what rank 0 said, and what it is to have said.

    ``told``: what this rank told rank 0 that it has filled; ``to_receive``: what others tell rank 0, by rank.
    """

    rank: int
    size: int = 1
    started: Queue[tuple[str, Work]] = field(default_factory=Queue)
    said: list[int] = field(default_factory=list)
    to_hear: Queue[int] = field(default_factory=Queue)
    told: Queue[int] = field(default_factory=Queue)
    to_receive: dict[int, Queue[int]] = field(default_factory=lambda: defaultdict(Queue))
    name_of: Callable[[torch.Tensor], str] = lambda _: ""
    abandoned: bool = False

    def reduce(self, tensor: torch.Tensor) -> Work:
        return self._start(self.name_of(tensor))

    def sum_shares(self, tensor: torch.Tensor) -> Work:
        return self._start(f"{self.name_of(tensor)} (scatter)")

    def gather_shares(self, tensor: torch.Tensor) -> Work:
        return self._start(f"{self.name_of(tensor)} (gather)")

    def _start(self, name: str) -> Work:
        work = Work()
        self.started.put((name, work))
        return work

    def broadcast(self, tensor: torch.Tensor) -> Work | Heard:
        if self.rank > 0:
            return Heard(tensor, self.to_hear)
        place, urgent = tensor.tolist()
        self.said.append(place + URGENT * urgent)
        work = Work()
        work.ended.set()
        return work

    def send(self, tensor: torch.Tensor, rank: int) -> Work:
        assert (self.rank > 0, rank) == (True, 0)
        self.told.put(int(tensor))
        work = Work()
        work.ended.set()
        return work

    def receive(self, tensor: torch.Tensor, rank: int) -> Received:
        return Received(tensor, self.to_receive[rank])

    def abandon(self) -> None:
        self.abandoned = True

    def next(self) -> tuple[str, Work]:
        return self.started.get(timeout=LIMIT_S)

    def end_next(self, number: int) -> list[str]:
        """End as many transfers, each when it has started; their names."""
        names = []
        for _ in range(number):
            name, work = self.next()
            names.append(name)
            work.ended.set()
        return names

    def wait_until_said(self, number: int) -> None:
        end = time.monotonic() + LIMIT_S
        while len(self.said) < number:
            assert time.monotonic() < end
            time.sleep(0.001)

    def quiet(self) -> bool:
        """Whether nothing more is started, as far as a moment shows."""
        threading.Event().wait(0.05)
        return self.started.empty()


@contextmanager
def sending(
    issue: str, rank: int = 0, size: int = 1, reductions: Sequence[Reduction] = (), *, share: bool = False
) -> Iterator[tuple[Network, Channel, Layout]]:
    plan = Plan(
        policy="test",
        model="test",
        architecture="allreduce",
        reductions=tuple(reductions or (Reduction(parameters=(name,), window="forward") for name in NAMES)),
        compute_order=None,
        issue=cast(Any, issue),
    )
    names = {name for reduction in plan.reductions for name in reduction.parameters}
    parameters = {name: torch.nn.Parameter(torch.zeros(3)) for name in sorted(names)}
    layout = lay_out(plan, parameters, num_ranks=size)
    for bucket in layout.buckets:
        bucket.allocate()
    network = Network(rank, size)
    by_memory = {transfer.tensor.data_ptr(): transfer.name.split(" (")[0] for transfer in layout.transfers}
    network.name_of = lambda tensor: by_memory.get(tensor.data_ptr(), "norm")
    group = cast(GlooGroup, network)
    groups = ChannelGroups(group, None if share else group, group, make_norms=lambda: group)
    channel = Channel(groups, LIMIT_S, lambda *_: None)
    channel.start(layout)
    yield network, channel, layout
    channel.stop()


def fill(channel: Channel, layout: Layout, names: Sequence[str]) -> None:
    of = {bucket.names[0]: bucket for bucket in layout.buckets}
    for name in names:
        channel.submit(of[name])


def occupy(network: Network, channel: Channel, layout: Layout, names: str) -> list[Work]:
    """Fill the buckets of as many names as there is credit; their transfers, which have started."""
    assert len(names) == CREDIT
    fill(channel, layout, names)
    return [network.next()[1] for _ in names]


def end(works: Sequence[Work]) -> None:
    for work in works:
        work.ended.set()


def test_the_size_of_a_transfer_is_known_while_its_parameter_awaits_an_update() -> None:
    plan = Plan(
        policy="test",
        model="test",
        architecture="allreduce",
        reductions=(Reduction(parameters=("a",)), Reduction(parameters=("b",))),
        compute_order=None,
    )
    parameters = {name: torch.nn.Parameter(torch.zeros(3)) for name in "ab"}
    layout = lay_out(plan, parameters, {parameters["b"]})
    before = [transfer.num_bytes for transfer in layout.transfers]

    def refuse() -> None:
        raise AssertionError("an update was asked for")

    for p in parameters.values():
        assert await_updates((p,), refuse)
    assert [transfer.num_bytes for transfer in layout.transfers] == before
    assert before[1] == 12


def test_the_size_of_a_transfer_is_that_of_the_type_in_which_it_travels() -> None:
    plan = Plan(
        policy="test",
        model="test",
        architecture="allreduce",
        reductions=(Reduction(parameters=("a", "b", "c")),),
        compute_order=None,
    )
    types = {"a": torch.float32, "b": torch.float64, "c": torch.bfloat16}
    parameters = {name: torch.nn.Parameter(torch.zeros(64, dtype=t)) for name, t in types.items()}
    sizes = [
        {t.name: t.num_bytes for t in lay_out(plan, parameters, gradient_dtype=dtype).transfers}
        for dtype in (None, torch.bfloat16)
    ]
    # Behind the gradients is a flag.
    assert sizes == [{"a": 65 * 4, "b": 65 * 8, "c": 65 * 2}, {"a": 65 * 2, "b": 65 * 2, "c": 65 * 2}]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("num_ranks", [2, 257, 100_000])
def test_flags_tell_of_one_rank_and_of_all_in_short_types(dtype: torch.dtype, num_ranks: int) -> None:
    parameters = [torch.nn.Parameter(torch.zeros(3)) for _ in range(2)]
    memory = BucketMemory(parameters, [(0, 34)])
    memory.used_flags[0] = 1
    memory.views[1].fill_(1.0)
    memory.shorten(dtype, num_ranks)
    (piece,) = memory.pieces
    assert piece.dtype is dtype
    piece[32:] += piece[32:]  # a rank that used it, too
    memory.lengthen()
    assert memory.used_flags.bool().tolist() == [True, False]
    assert memory.used_flags[0] > 0
    assert memory.views[1].tolist() == [torch.tensor(1.0, dtype=dtype).div_(num_ranks).item()] * 3
    assert memory.pieces[0].dtype is torch.float32


def test_a_listed_order_waits_for_its_next() -> None:
    with sending("listed") as (network, channel, layout):
        fill(channel, layout, "bcde")
        assert network.quiet()
        fill(channel, layout, "a")
        assert network.end_next(len(NAMES)) == list(NAMES)


def halved(names: str, whole: str = "") -> list[Reduction]:
    return [Reduction(parameters=(name,), window="forward", halves=name not in whole) for name in names]


def test_listed_gathers_go_behind_all_sums_and_the_norm_waits_for_those_alone() -> None:
    with sending("listed", size=2, reductions=halved("abc", whole="b")) as (network, channel, layout):
        fill(channel, layout, "cba")
        assert network.end_next(3) == ["a (scatter)", "b", "c (scatter)"]
        works = dict(network.next() for _ in range(3))
        assert sorted(works) == ["a (gather)", "c (gather)", "norm"]
        assert not channel.knows_norms(layout.buckets[0])
        works["norm"].ended.set()
        channel.wait_for_norms(layout.buckets[0])
        assert channel.norm(layout.buckets[0], 0, 2.0) == 0.0
        assert channel.has_arrived(layout.buckets[1])
        assert not channel.has_arrived(layout.buckets[0])
        end([works["a (gather)"], works["c (gather)"]])
        for bucket in layout.buckets:
            channel.wait(bucket)


def test_a_gather_is_chosen_once_its_sum_has_arrived_and_no_rank_tells_of_it() -> None:
    with sending("ready", size=2, reductions=halved("abc")) as (network, channel, layout):
        fill(channel, layout, "abc")
        network.to_receive[1].put(1)
        network.to_receive[1].put(2)
        (first, work), (second, other) = network.next(), network.next()
        assert [first, second] == ["b (scatter)", "c (scatter)"]
        work.ended.set()
        name, gather = network.next()
        assert name == "b (gather)"
        network.to_receive[1].put(0)  # the other rank is late, and its sum goes before gathers
        assert network.quiet()
        other.ended.set()
        name, late = network.next()
        assert name == "a (scatter)"
        late.ended.set()
        network.wait_until_said(5)  # there is credit for one more gather
        gather.ended.set()
        assert sorted(network.end_next(3)) == ["a (gather)", "c (gather)", "norm"]
        network.wait_until_said(6)
        assert network.said == [1, 2, 4, 0, 3, 5]


def test_a_gather_that_is_chosen_waits_for_its_own_sum() -> None:
    with sending("ready", rank=1, size=2, reductions=halved("ab")) as (network, channel, layout):
        fill(channel, layout, "ab")
        for place in (0, 2, 1):
            network.to_hear.put(place)
        name, work = network.next()
        assert name == "a (scatter)"
        assert network.quiet()  # the next one's turn is the gather's
        work.ended.set()
        assert network.end_next(2) == ["a (gather)", "b (scatter)"]
        network.to_hear.put(3)
        assert sorted(network.end_next(2)) == ["b (gather)", "norm"]


def test_of_what_is_ready_the_first_listed_goes_once_there_is_credit() -> None:
    with sending("ready") as (network, channel, layout):
        under_way = occupy(network, channel, layout, "de")
        for name in "cba":
            fill(channel, layout, name)
            assert network.quiet()
        assert len(network.said) == CREDIT  # something may come before what cannot start yet
        end(under_way)
        assert sorted(network.end_next(CREDIT)) == ["a", "b"]
        assert network.end_next(1) == ["c"]
        network.wait_until_said(5)
        assert network.said[2:] == [0, 1, 2]
        for bucket in layout.buckets:
            channel.wait(bucket)
            assert channel.has_arrived(bucket)


def test_a_round_goes_whole_before_the_next_one() -> None:
    with sending("ready") as (network, channel, layout):
        fill(channel, layout, "a")
        network.next()[1].ended.set()
        channel.wait(layout.buckets[0])
        under_way = occupy(network, channel, layout, "de")
        # The second round of the first, while "b" and "c" are of the first round.
        fill(channel, layout, "cba")
        end(under_way)
        assert sorted(network.end_next(CREDIT)) == ["b", "c"]
        assert network.end_next(1) == ["a"]
        network.wait_until_said(6)
        assert network.said[3:] == [1, 2, 0]


def test_a_rank_that_stops_halfway_waits_for_nothing_that_cannot_come() -> None:
    with sending("ready", rank=1) as (network, channel, layout):
        fill(channel, layout, "ae")
        network.to_hear.put(3)  # which is never filled
        network.to_hear.put(4)
        assert network.quiet()
        began = time.monotonic()
        channel.stop()
        assert time.monotonic() - began < LIMIT_S / 2
        network.to_hear.put(0)


def test_what_is_waited_for_goes_at_once_and_alone() -> None:
    with sending("ready") as (network, channel, layout):
        under_way = occupy(network, channel, layout, "ab")
        fill(channel, layout, "de")
        waiting = threading.Thread(target=channel.wait, args=[layout.buckets[4]])
        waiting.start()
        name, urgent = network.next()
        assert name == "e"
        network.wait_until_said(3)
        assert network.said[2] == 4 + URGENT
        end(under_way)
        assert network.quiet()  # the network is left to it
        fill(channel, layout, "c")
        assert network.quiet()
        assert len(network.said) == 3  # and what follows it is open
        urgent.ended.set()
        waiting.join(LIMIT_S)
        assert not waiting.is_alive()
        network.wait_until_said(5)
        assert network.said[3:] == [2, 3]
        assert sorted(network.end_next(2)) == ["c", "d"]


def test_what_is_waited_for_goes_next_where_all_share_a_group() -> None:
    with sending("ready", share=True) as (network, channel, layout):
        first, second = occupy(network, channel, layout, "ab")
        fill(channel, layout, "cde")
        waiting = threading.Thread(target=channel.wait, args=[layout.buckets[4]])
        waiting.start()
        assert network.quiet()  # there is no credit
        end([first])
        name, awaited = network.next()
        assert name == "e"
        end([second])
        assert network.end_next(1) == ["c"]
        assert network.end_next(1) == ["d"]
        network.wait_until_said(5)
        assert network.said == [0, 1, 4, 2, 3]
        end([awaited])
        waiting.join(LIMIT_S)
        assert not waiting.is_alive()


def test_other_ranks_take_one_order_where_all_share_a_group() -> None:
    with sending("ready", rank=1, share=True) as (network, channel, layout):
        fill(channel, layout, "abcd")
        for place in (3, 0, 2, 1):
            network.to_hear.put(place)
        assert [network.end_next(1)[0] for _ in range(4)] == ["d", "a", "c", "b"]


def test_streams_wait_no_longer_for_a_rank_that_is_gone_where_all_share_a_group() -> None:
    with sending("ready", share=True) as (network, channel, layout):
        works = occupy(network, channel, layout, "ab")
        channel.fail("rank 1 is gone")
        assert network.abandoned
        with pytest.raises(TransferError, match="rank 1 is gone"):
            channel.wait(layout.buckets[0])
        end(works)


def test_a_wait_that_is_interrupted_holds_nothing_up() -> None:
    class Interrupt(BaseException):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupt

    with sending("ready") as (network, channel, layout):
        under_way = occupy(network, channel, layout, "ab")
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(Interrupt):
                channel.wait(layout.buckets[0])
        finally:
            signal.signal(signal.SIGALRM, before)
        end(under_way)
        channel.wait(layout.buckets[0])
        # The same bucket again: nobody waits for it now.
        fill(channel, layout, "a")
        network.next()[1].ended.set()
        network.wait_until_said(3)
        assert network.said[-1] == 0


def test_other_ranks_start_what_rank_0_waits_for() -> None:
    with sending("ready", rank=1) as (network, channel, layout):
        fill(channel, layout, "abcd")
        for place in (0, 1, 2, 3 + URGENT):
            network.to_hear.put(place)
        works = dict(network.next() for _ in range(CREDIT + 1))
        assert set(works) == {"a", "b", "d"}
        end(list(works.values()))
        name, work = network.next()
        assert name == "c"
        work.ended.set()


def test_other_ranks_follow_and_wait_until_it_is_filled() -> None:
    with sending("ready", rank=1) as (network, channel, layout):
        fill(channel, layout, "ae")
        network.to_hear.put(3)
        assert network.quiet()
        fill(channel, layout, "d")
        name, work = network.next()
        assert name == "d"
        work.ended.set()
        for place, name in ((4, "e"), (0, "a")):
            network.to_hear.put(place)
            sent, work = network.next()
            assert sent == name
            work.ended.set()


def test_rank_0_chooses_of_what_every_rank_has_filled() -> None:
    with sending("ready", size=3) as (network, channel, layout):
        fill(channel, layout, "abc")
        network.to_receive[1].put(0)
        for rank in (1, 2):
            network.to_receive[rank].put(2)
        assert network.end_next(1) == ["c"]
        assert network.quiet()
        waiting = threading.Thread(target=channel.wait, args=[layout.buckets[1]])
        waiting.start()
        assert network.quiet()  # not what it waits for, either
        for rank, place in ((1, 1), (2, 0), (2, 1)):
            network.to_receive[rank].put(place)
        assert sorted(network.end_next(2)) == ["a", "b"]
        waiting.join(LIMIT_S)
        assert not waiting.is_alive()
        # The next round is another one: what was heard of the last does not count, and of one rank not twice.
        fill(channel, layout, "c")
        network.to_receive[2].put(2)
        assert network.quiet()
        network.to_receive[1].put(2)
        assert network.end_next(1) == ["c"]


def test_a_channel_waits_briefly_for_what_others_may_never_fill() -> None:
    with sending("ready", size=2) as (network, channel, layout):
        fill(channel, layout, "ab")
        network.to_receive[1].put(0)
        assert network.end_next(1) == ["a"]
        began = time.monotonic()
        channel.stop()
        assert time.monotonic() - began < LIMIT_S / 2
        assert not channel.quiet
        network.to_receive[1].put(1)


def test_slices_of_a_bucket_are_told_once() -> None:
    slices = [Reduction(parameters=("w",), window="forward", slice=(k, k + 1, 3)) for k in range(3)]
    with sending("ready", size=2, reductions=slices) as (network, channel, layout):
        channel.submit(layout.buckets[0])
        assert network.quiet()
        network.to_receive[1].put(0)
        assert len(network.end_next(3)) == 3
    with sending("ready", rank=1, reductions=slices) as (network, channel, layout):
        channel.submit(layout.buckets[0])
        assert network.told.get(timeout=LIMIT_S) == 0
        for place in range(3):
            network.to_hear.put(place)
        assert len(network.end_next(3)) == 3
        assert network.told.empty()


def test_other_ranks_tell_what_they_have_filled() -> None:
    with sending("ready", rank=1) as (network, channel, layout):
        fill(channel, layout, "ca")
        assert [network.told.get(timeout=LIMIT_S) for _ in range(2)] == [2, 0]
        for place in (0, 2):
            network.to_hear.put(place)
        assert sorted(network.end_next(2)) == ["a", "c"]
    with sending("listed", rank=1) as (network, channel, layout):
        fill(channel, layout, "ab")
        assert network.end_next(2) == ["a", "b"]
        assert network.told.empty()  # who lists the order does not ask


def test_a_channel_that_heard_all_it_waited_for_stops_at_once() -> None:
    with sending("ready", size=2) as (network, channel, layout):
        fill(channel, layout, "a")
        assert network.quiet()
        network.to_receive[1].put(0)
        assert network.end_next(1) == ["a"]
        channel.wait(layout.buckets[0])
        began = time.monotonic()
        channel.stop()
        assert time.monotonic() - began < LIMIT_S / 2
        assert channel.quiet


def test_a_transfer_that_fails_fails_who_waits() -> None:
    with sending("ready") as (network, channel, layout):
        fill(channel, layout, "a")
        _, work = network.next()
        work.failure = "closed"
        work.ended.set()
        with pytest.raises(TransferError, match="closed"):
            channel.wait(layout.buckets[0])
        assert not channel.has_arrived(layout.buckets[0])
