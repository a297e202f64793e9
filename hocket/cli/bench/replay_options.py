"""Options of benchmarks that replay steps on an emulated cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

from hocket.cli import options
from hocket.cli.name_options import complete_policy, lowercase
from hocket.cli.panels import BENCHMARK, NETWORK, OUTPUT, PLANNING, WORKERS, option
from hocket.errors import UnknownNameError
from hocket.network import parse_bandwidth, parse_duration

if TYPE_CHECKING:
    from hocket.bench.replay.accuracy_request import Mode, Transport

_POLICIES = {"panel": PLANNING, "metavar": "LIST", "callback": lowercase, "autocompletion": complete_policy}


@dataclass(frozen=True, kw_only=True)
class _ReplayedStep:
    step: Annotated[
        list[str] | None,
        option(
            "--step",
            panel=BENCHMARK,
            metavar="LIST",
            help="Steps to replay, as bench plan takes them, or chain; several by commas.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class PredictedRows(_ReplayedStep):
    """Options for the rows of ``bench predict``: a step, an order, a mode, workers and servers."""

    policy: Annotated[
        str, option(help="Orders to compare; those for all-reduce have no servers.", **_POLICIES)
    ] = "fifo,random,tic,tac,reverse"
    mode: Annotated[
        str, option(panel=PLANNING, metavar="LIST", callback=lowercase, help="async, sync or both.")
    ] = "async,sync"
    workers: Annotated[
        str, option(panel=WORKERS, metavar="LIST", help="Numbers of them: 4, 1,2,4 or 1-8.")
    ] = "1,2,4,8"
    servers: Annotated[str, option(panel=WORKERS, metavar="LIST", help="Numbers of them.")] = "1,2"

    def modes(self) -> tuple[Mode, ...]:
        """The modes of ``--mode``."""
        from hocket.bench.replay.accuracy_request import MODES

        return cast("tuple[Mode, ...]", _names("mode", self.mode, MODES))


@dataclass(frozen=True, kw_only=True)
class OrderedRows(_ReplayedStep):
    """Options for the rows of ``bench orders``: a step, an order, and a scale of durations."""

    policy: Annotated[str, option(help="Orders to compare, the others with the first.", **_POLICIES)] = (
        "random,tac"
    )
    rho: Annotated[
        str,
        option(
            panel=BENCHMARK,
            metavar="LIST",
            help="Durations are scaled: all workers' transfers over a worker's operations.",
        ),
    ] = "0.6,0.9,1.2"


_Transfer = Annotated[
    str,
    option(
        panel=BENCHMARK,
        rare=True,
        metavar="TIME",
        help="Sizes are scaled: pulling all parameters, alone, takes this long.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class _ScaledTransfers:
    rate: Annotated[
        str, option(panel=NETWORK, metavar="RATE", help="Of the lab's links, each way: 1Gbit/s, or 1gbit.")
    ] = "1gbit"
    transfer: _Transfer = "250ms"

    def rate_bps(self) -> float:
        """The bits a second of ``--rate``."""
        return parse_bandwidth(self.rate)

    def transfer_s(self) -> float:
        """The seconds of ``--transfer``."""
        return parse_duration(self.transfer)


@dataclass(frozen=True, kw_only=True)
class ReplayScale(_ScaledTransfers):
    """Options for links, and for sizes and durations that are scaled to them."""

    rho: Annotated[
        float,
        option(panel=BENCHMARK, metavar="LIST", help="Durations are scaled: transfers over operations."),
    ] = 1.0


@dataclass(frozen=True, kw_only=True)
class _OneTransport:
    transport: Annotated[
        Literal["gloo", "grpc"],
        option(panel=NETWORK, rare=True, callback=lowercase, help="The transport of tensors."),
    ] = "gloo"


@dataclass(frozen=True, kw_only=True)
class OrderedTransfers(_ScaledTransfers, _OneTransport):
    """Options for what tensors travel by, for links, and for sizes that are scaled to them."""

    transfer: _Transfer = "100ms"


_Steps = Annotated[int, option(panel=BENCHMARK, rare=True, metavar="N", help="Steps of each row.")]
_Skip = Annotated[
    int, option(panel=BENCHMARK, rare=True, metavar="N", help="Of them, left out at the beginning.")
]


@dataclass(frozen=True, kw_only=True)
class PredictedSteps:
    """Options for the steps of each row of ``bench predict``."""

    steps: _Steps = 14
    skip: _Skip = 3
    rounds: Annotated[
        int,
        option(
            panel=BENCHMARK,
            rare=True,
            metavar="N",
            help="Async: how often each row is replayed, its workers beginning at other moments.",
        ),
    ] = 4


@dataclass(frozen=True, kw_only=True)
class OrderedSteps:
    """Options for the steps of each row of ``bench orders``."""

    steps: _Steps = 12
    skip: _Skip = 2
    rounds: Annotated[
        int,
        option(panel=BENCHMARK, rare=True, metavar="N", help="Times that each row is replayed, in turns."),
    ] = 3


@dataclass(frozen=True, kw_only=True)
class PredictedTransports:
    """Options for what tensors travel by, one or several."""

    transport: Annotated[
        str, option(panel=NETWORK, rare=True, callback=lowercase, help="gloo, grpc or both.")
    ] = "gloo"
    window: Annotated[
        str | None,
        option(
            panel=NETWORK,
            rare=True,
            metavar="SIZE|off",
            help="HTTP/2's, which gRPC is given and predicted by: 28MB, or off.",
            show_default="28MB",
        ),
    ] = None

    def names(self) -> tuple[Transport, ...]:
        """The transports of ``--transport``."""
        from hocket.bench.replay.accuracy_request import TRANSPORTS

        return cast("tuple[Transport, ...]", _names("transport", self.transport, TRANSPORTS))


@dataclass(frozen=True, kw_only=True)
class PredictedOutput:
    """Options for what ``bench predict`` writes and prints."""

    plot: Annotated[
        Path | None, option(panel=OUTPUT, metavar="FILE", help="Write a page of measured against predicted.")
    ] = None
    json: options.Json = False


def _names(what: str, text: str, valid: Sequence[str]) -> tuple[str, ...]:
    for part in text.split(","):
        if part not in valid:
            raise UnknownNameError(what, part, list(valid))
    return tuple(text.split(","))
