"""The network of one job: how fast each interface is, what a transfer costs to start, who takes part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from hocket.errors import HocketError, UnknownNameError
from hocket.network.gpu_nodes import Nodes
from hocket.network.measured_reduction import MeasuredReduction
from hocket.network.ranges import MOST_STARTUP_S, check_bandwidth, check_cost
from hocket.network.units import MOST_BYTES, MOST_S_PER_BYTE
from hocket.notebook import ObjectSummary, Summarized
from hocket.text import counted, duration_text, scaled_text

Pattern = Literal["ring", "halving-doubling", "shuffle", "tree"]
PATTERNS: tuple[Pattern, ...] = get_args(Pattern)
PatternChoice = Literal["ring", "halving-doubling", "shuffle", "tree", "cheapest"]
_CHOICES: tuple[PatternChoice, ...] = get_args(PatternChoice)
_MOST = 1_000_000
USUAL_STARTUP_S = 10e-6
"""Assumed for a message of a collective between machines where nobody says: less over InfiniBand, more over
TCP."""


@dataclass(frozen=True, repr=False, kw_only=True)
class Network(Summarized):
    """Workers and servers with one full-duplex interface each, on a switch that never blocks.

    Parameters
    ----------
    bandwidth_bps
        Bits per second of every interface, in each direction; from 1 to 1e18.
    startup_s
        Seconds before the first byte of each transfer, 0 or from 1e-18 to 3600; the interface is free for
        others meanwhile.
    num_workers, num_servers
        Numbers of machines that compute, and of parameter servers (AllReduce has none); from 1 to 1000000.
    parse_s_per_byte, parse_s
        Seconds that a receiver spends on a message, per byte (reducing it, for an AllReduce) and per message;
        0 or from 1e-18 to 1 and to 3600.
    pattern
        The way that every AllReduce runs: "ring", "halving-doubling", "shuffle", "tree", or "cheapest", the
        best of all for its size. None: as NCCL and gloo do, in a ring, or down and up a tree where NCCL
        would, because that takes less.
    reduction
        The measured cost of an AllReduce, a :class:`hocket.MeasuredReduction`; holds where no pattern is
        given. None: not measured.
    window_bytes
        HTTP/2's window between workers and servers, in bytes. Transfers then go first come, first served, and
        a larger one stops once for those behind it; 0: whole, as their plan has them. None: as is usual for
        what runs, off in synchronous steps and 28 MB in predictions of asynchronous ones.
    nodes
        The machines that workers share, a :class:`hocket.Nodes`, where one has several GPUs: workers are GPUs
        then, ``bandwidth_bps`` is that of one NIC and ``startup_s`` between nodes. None: every worker has a
        machine and an interface of its own. Only of collectives, in a ring or a tree, and not beside a
        measured all-reduce.
    shards
        Fully sharded: the number of workers that share one copy of the model, a divisor of ``num_workers``;
        between such groups gradients are all-reduced (HSDP). None: all workers share one copy.

    Raises
    ------
    UnknownNameError
        When no pattern has that name.
    HocketError
        When a value is out of its range, or one excludes another.

    Examples
    --------
    >>> import hocket
    >>> network = hocket.Network(bandwidth_bps=10e9, startup_s=50e-6, num_workers=4)
    >>> network.num_workers
    4
    """

    bandwidth_bps: float = 10e9
    startup_s: float = 0.0
    num_workers: int = 1
    num_servers: int = 1
    parse_s_per_byte: float = 0.0
    parse_s: float = 0.0
    pattern: PatternChoice | None = None
    reduction: MeasuredReduction | None = None
    window_bytes: float | None = None
    nodes: Nodes | None = None
    shards: int | None = None

    def __post_init__(self) -> None:
        check_bandwidth(self.bandwidth_bps)
        check_cost(self.startup_s, "startup", "s", MOST_STARTUP_S, "50e-6")
        check_cost(self.parse_s_per_byte, "parse cost", "s/byte", MOST_S_PER_BYTE, "1e-10")
        check_cost(self.parse_s, "parse cost", "s", MOST_STARTUP_S, "10e-6")
        if self.pattern is not None and self.pattern not in _CHOICES:
            raise UnknownNameError("pattern", self.pattern, list(_CHOICES))
        if self.reduction is not None and not isinstance(self.reduction, MeasuredReduction):
            raise HocketError(f"reduction {self.reduction!r} is not a MeasuredReduction")
        check_window(self.window_bytes)
        if self.nodes is not None:
            self._check_nodes(self.nodes)
        counts = [(self.num_workers, "workers"), (self.num_servers, "servers")]
        counts += [] if self.shards is None else [(self.shards, "shards")]
        for count, what in counts:
            if isinstance(count, bool) or not isinstance(count, int):
                raise HocketError(f"{count!r} {what}: give a whole number")
            if count < 1:
                raise HocketError(f"{count} {what} cannot train; give at least 1")
            if count > _MOST:
                raise HocketError(f"{count} {what} are more than {_MOST}; give fewer")

    def _check_nodes(self, nodes: Nodes) -> None:
        if not isinstance(nodes, Nodes):
            raise HocketError(f"nodes {nodes!r} is not a Nodes")
        if self.reduction is not None:
            raise HocketError(
                f"an all-reduce measured between {self.reduction.workers} workers says nothing of"
                f" {nodes.text}; leave one of them out"
            )
        modelled: tuple[PatternChoice, ...] = ("ring", "tree")
        if self.pattern is not None and nodes.gpus > 1 and self.pattern not in modelled:
            raise HocketError(
                f"pattern '{self.pattern}' between {nodes.text} is not modelled; use ring or tree"
            )
        if self.pattern not in (None, "ring") and nodes.per_rack is not None:
            raise HocketError(f"pattern '{self.pattern}' between racks is not modelled; use ring or one rack")

    @property
    def window_bits(self) -> float:
        """The window of synchronous steps; 0.0: off."""
        return 8.0 * (self.window_bytes or 0.0)

    def _summary(self) -> ObjectSummary:
        parse, each = duration_text(self.parse_s), duration_text(self.parse_s_per_byte)
        interface = "an interface" if self.nodes is None else "a NIC"
        lines = [
            ("bandwidth", f"{scaled_text(self.bandwidth_bps, 'bit/s')} {interface}, each way"),
            ("startup", f"{duration_text(self.startup_s)} a transfer"),
            ("parsing", f"{parse} a message, {each} a byte"),
        ]
        reduced = self.reduction
        if reduced is not None and self.pattern is None:
            costs = duration_text(reduced.a_s), duration_text(reduced.b_s_per_byte)
            measured = f"{costs[0]}, and {costs[1]} a byte, between {reduced.workers} workers as measured"
            lines.append(("all-reduce", measured))
        else:
            lines.append(("all-reduce", self.pattern or "ring or tree by size"))
        if self.window_bytes is not None:
            lines.append(("window", scaled_text(self.window_bytes, "B") if self.window_bytes else "off"))
        if self.nodes is not None:
            lines.append(("machines", self.nodes.text))
        machines = counted(self.num_workers, "worker"), counted(self.num_servers, "server")
        return ObjectSummary(f"Network of {' and '.join(machines)}", lines)


def check_window(window_bytes: float | None) -> None:
    """Refuse what is no window in bytes.

    Raises
    ------
    HocketError
        Naming the value and the rule.
    """
    if window_bytes is None:
        return
    if isinstance(window_bytes, bool) or not isinstance(window_bytes, int | float):
        raise HocketError(f"window {window_bytes!r} is not a number of bytes; give e.g. 28e6, or 0 for off")
    if window_bytes != 0 and not 1 <= window_bytes <= MOST_BYTES:
        rule = "is neither 0 (off) nor from 1 byte to below 2^63"
        raise HocketError(f"window {window_bytes} B {rule}; give e.g. 28e6")


def check_exchange(network: Network, architecture: Literal["ps", "allreduce", "fsdp"]) -> None:
    """Refuse what only the other way of exchanging gradients has, and would be ignored.

    Raises
    ------
    HocketError
        For a window where there are no servers, and for a pattern or nodes where parameter servers collect
        gradients.
    """
    if architecture != "ps" and network.window_bits:
        others = "all-reduce has" if architecture == "allreduce" else "collectives have"
        raise HocketError(
            f"a window of {network.window_bytes:.0f} B is for transfers of parameter servers; {others} "
            "none; leave it out"
        )
    if architecture != "fsdp" and network.shards is not None:
        raise HocketError(f"{network.shards} shards: only fully sharded training has some; leave them out")
    if architecture == "ps" and network.nodes is not None:
        raise HocketError(
            f"{network.nodes.text}: not modelled with parameter servers; use all-reduce, or leave them out"
        )
    if architecture == "ps" and network.pattern is not None:
        raise HocketError(
            f"pattern '{network.pattern}' is one of all-reduce; leave it out for parameter servers"
        )
