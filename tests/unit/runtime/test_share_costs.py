"""The costs of collectives of shares, timed on one rank: which sizes, how many at once, and their line."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch.distributed as dist

from hocket.network import MeasuredLine
from hocket.runtime.sharding import share_costs
from hocket.runtime.sharding.share_costs import Kind, measured_halves, measured_line

MB = 1 << 20


class Clock:
    """A clock that only collectives move on; ``under_way``: how many of them there are."""

    def __init__(self) -> None:
        self.now_s, self.under_way = 0.0, 0

    def perf_counter(self) -> float:
        return self.now_s


class Ending:
    """A collective that takes ``seconds`` once it is waited for."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds
        clock.under_way += 1

    def wait(self) -> None:
        self._clock.now_s += self._seconds
        self._clock.under_way -= 1


@pytest.fixture
def group() -> Iterator[dist.ProcessGroup]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    assert dist.group.WORLD is not None
    yield dist.group.WORLD
    dist.destroy_process_group()


class Link:
    """A link of 2 ms and 8 ns a byte in place of gloo's; ``sizes``: bytes of what was started, by kind."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.sizes: dict[Kind, list[int]] = {"gather": [], "scatter": [], "exchange": []}
        self.most: dict[Kind, int] = {}

    def starting(self, kind: Kind, group: dist.ProcessGroup, share: int) -> Callable[[], Ending]:
        size = 4 * share * group.size()

        def start() -> Ending:
            if size not in self.sizes[kind]:
                self.sizes[kind].append(size)
            ending = Ending(self._clock, 2e-3 + 8e-9 * size)
            self.most[kind] = max(self.most.get(kind, 0), self._clock.under_way)
            return ending

        return start


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> Link:
    clock = Clock()
    link = Link(clock)
    monkeypatch.setattr(share_costs, "_starting", link.starting)
    monkeypatch.setattr(share_costs, "time", clock)
    return link


def test_the_line_of_a_link_is_found_with_as_many_at_once_as_training_has(
    group: dist.ProcessGroup, link: Link
) -> None:
    halves = measured_halves(group, 3 * MB)
    for line in (halves.gather, halves.exchange):
        assert line is not None
        assert (line.a_s, line.b_s_per_byte) == pytest.approx((2e-3, 8e-9))
    assert halves.scatter is None
    assert link.sizes["gather"] == link.sizes["exchange"] == [64, 64 << 10, 256 << 10, MB, 4 * MB]
    assert link.most == {"gather": 1, "exchange": 2}


def test_sizes_that_take_long_are_left_out(group: dist.ProcessGroup, link: Link) -> None:
    measured_line("scatter", group, 1 << 30)
    assert link.sizes["scatter"][-1] == 16 * MB  # 64 MB would take more than half a second


def test_collectives_of_gloo_are_timed(group: dist.ProcessGroup) -> None:
    for kind in ("gather", "scatter", "exchange"):
        line = measured_line(kind, group, MB)
        assert isinstance(line, MeasuredLine)
        assert 0 < line.a_s + MB * line.b_s_per_byte < 10
