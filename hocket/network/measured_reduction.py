"""Collectives as they were timed on a network: all-reduces, all-gathers and reduce-scatters."""

from __future__ import annotations

from dataclasses import dataclass

from hocket.errors import HocketError
from hocket.network.ranges import MOST_STARTUP_S, check_cost
from hocket.network.units import MOST_S_PER_BYTE


@dataclass(frozen=True, kw_only=True)
class MeasuredLine:
    """The seconds of a collective as it was timed: a + b d for d bytes, those of all shares together.

    Parameters
    ----------
    a_s
        Seconds that each takes whatever its size, 0 or from 1e-18 to 3600.
    b_s_per_byte
        Seconds per byte, 0 or from 1e-18 to 1.

    Raises
    ------
    HocketError
        When a value is out of its range.

    Examples
    --------
    >>> import hocket
    >>> hocket.MeasuredLine(a_s=2e-4, b_s_per_byte=5e-10).a_s
    0.0002
    """

    a_s: float
    b_s_per_byte: float

    def __post_init__(self) -> None:
        check_cost(self.a_s, "a collective's a", "s", MOST_STARTUP_S, "6e-4")
        check_cost(self.b_s_per_byte, "a collective's b", "s/byte", MOST_S_PER_BYTE, "8e-10")


@dataclass(frozen=True, kw_only=True)
class MeasuredHalves:
    """All-gathers and reduce-scatters as they were timed; each is a :class:`hocket.MeasuredLine`.

    Parameters
    ----------
    gather
        The library's all-gather.
    scatter
        Its reduce-scatter; gloo's sends what an all-reduce sends. None: not measured.
    exchange
        One of two all-to-alls at once, with which workers that add up shares themselves send half of that;
        None: not measured.

    Raises
    ------
    HocketError
        When one is no MeasuredLine.

    Examples
    --------
    >>> import hocket
    >>> halves = hocket.MeasuredHalves(gather=hocket.MeasuredLine(a_s=2e-4, b_s_per_byte=5e-10))
    >>> reduction = hocket.MeasuredReduction(workers=2, a_s=6e-4, b_s_per_byte=8e-10, halves=halves)
    >>> hocket.Network(num_workers=4, reduction=reduction).reduction.halves.exchange is None
    True
    """

    gather: MeasuredLine
    scatter: MeasuredLine | None = None
    exchange: MeasuredLine | None = None

    def __post_init__(self) -> None:
        for name, line in vars(self).items():
            if not isinstance(line, MeasuredLine) and (line is not None or name == "gather"):
                raise HocketError(f"{name} {line!r} is not a MeasuredLine")


@dataclass(frozen=True, kw_only=True)
class MeasuredReduction:
    """An AllReduce as it was timed: d bytes take a + b d, and a + k b d + (k-1) eta d with k of them at once.

    Source: Wang et al., "Communication Contention Aware Scheduling of Multiple Deep Learning Training Jobs"
    (2020), section III.

    Parameters
    ----------
    workers
        The number of workers that it was timed between, at least 2.
    a_s
        Seconds that each takes whatever its size, 0 or from 1e-18 to 3600.
    b_s_per_byte, eta_s_per_byte
        Seconds per byte, and what each further one at the same time adds, 0 or from 1e-18 to 1.
    processor_s
        Seconds of a worker's processors that each takes whatever its size, 0 or from 1e-18 to 3600; None:
        they were not measured.
    halves
        All-gathers and reduce-scatters as they were timed between the same workers, a
        :class:`hocket.MeasuredHalves`; None: they take half of an AllReduce each.

    Raises
    ------
    HocketError
        When a value is out of its range.

    Examples
    --------
    >>> import hocket
    >>> timed = hocket.MeasuredReduction(workers=2, a_s=6e-4, b_s_per_byte=8e-10)
    >>> hocket.Network(num_workers=4, reduction=timed).reduction.workers
    2
    """

    workers: int
    a_s: float
    b_s_per_byte: float
    eta_s_per_byte: float = 0.0
    processor_s: float | None = None
    halves: MeasuredHalves | None = None

    def __post_init__(self) -> None:
        if isinstance(self.workers, bool) or not isinstance(self.workers, int) or self.workers < 2:
            raise HocketError(f"an all-reduce measured with {self.workers!r} workers; it takes 2 or more")
        check_cost(self.a_s, "an all-reduce's a", "s", MOST_STARTUP_S, "6e-4")
        check_cost(self.b_s_per_byte, "an all-reduce's b", "s/byte", MOST_S_PER_BYTE, "8e-10")
        check_cost(self.eta_s_per_byte, "an all-reduce's eta", "s/byte", MOST_S_PER_BYTE, "2e-10")
        if self.processor_s is not None:
            check_cost(self.processor_s, "an all-reduce's processor time", "s", MOST_STARTUP_S, "5e-4")
        if self.halves is not None and not isinstance(self.halves, MeasuredHalves):
            raise HocketError(f"halves {self.halves!r} are not MeasuredHalves")
