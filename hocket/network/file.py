"""``hocket.network/1``: what was measured of a network, or written down by hand, as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from hocket.document import decode, read_bytes, write_json
from hocket.network.link import MeasuredReduction, Network

NETWORK_FORMAT = "hocket.network/1"

# The ranges are Network's and MeasuredReduction's; here they let a refusal name the field.
Cost = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Bandwidth = Annotated[float, msgspec.Meta(ge=1e-3, le=1e18)]
Positive = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Workers = Annotated[int, msgspec.Meta(ge=2)]


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A measured time: ``concurrent`` transfers of ``size_bytes`` each, at once, took ``seconds``."""

    size_bytes: Count
    seconds: Positive
    concurrent: Count = 1


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """T = a + k b M + (k-1) eta M through ``points``, with the error relative to each point's time.

    ``note`` names coefficients that fit best below 0 and were held there.
    """

    a_s: Cost
    b_s_per_byte: Cost
    eta_s_per_byte: Cost = 0.0
    rms_error: Cost
    max_error: Cost
    points: tuple[Point, ...]
    note: str = ""

    def seconds(self, size_bytes: float, concurrent: int = 1) -> float:
        """What the fit says of ``concurrent`` transfers of ``size_bytes`` each."""
        shared = concurrent * self.b_s_per_byte + (concurrent - 1) * self.eta_s_per_byte
        return self.a_s + shared * size_bytes


class Fits(msgspec.Struct, frozen=True, kw_only=True):
    """The four fits behind a measured network: a transfer, unpacking it, an AllReduce, several at once."""

    transfer: Fit
    parse: Fit
    allreduce: Fit
    contention: Fit


class AllReduce(msgspec.Struct, frozen=True, kw_only=True):
    """What an AllReduce of d bytes costs between ``workers`` workers: a + b d, and eta as in :class:`Fit`."""

    workers: Workers
    a_s: Cost
    b_s_per_byte: Cost
    eta_s_per_byte: Cost = 0.0


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """Where a network was measured: with what, between how many workers, on which machines."""

    torch: str
    backend: str
    workers: Workers
    where: str


class NetworkFile(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a network file; only the bandwidth has to be known.

    ``startup_s``: one transfer's; ``parse_s_per_byte``, ``parse_s``: what a receiver spends on a message;
    ``allreduce``, ``fits``, ``host``: present where they were measured.
    """

    bandwidth_bps: Bandwidth
    startup_s: Cost = 0.0
    parse_s_per_byte: Cost = 0.0
    parse_s: Cost = 0.0
    allreduce: AllReduce | None = None
    fits: Fits | None = None
    host: Host | None = None

    def network(self, num_workers: int = 1, num_servers: int = 1) -> Network:
        """The network of a job with these workers and servers; its AllReduce is the measured one, if any."""
        reduction = self.allreduce
        return Network(
            bandwidth_bps=self.bandwidth_bps,
            startup_s=self.startup_s,
            num_workers=num_workers,
            num_servers=num_servers,
            parse_s_per_byte=self.parse_s_per_byte,
            parse_s=self.parse_s,
            reduction=None if reduction is None else MeasuredReduction(**msgspec.structs.asdict(reduction)),
        )


class _Document(NetworkFile, frozen=True, kw_only=True):
    format: Literal["hocket.network/1"]


def load_network(path: str | Path) -> NetworkFile:
    """Read a ``hocket.network/1`` file (``.json`` or ``.json.zst``).

    Raises
    ------
    FormatError
        Naming the file, the field and the rule.
    """
    document = decode(read_bytes(path), _Document, NETWORK_FORMAT, str(path))
    return NetworkFile(**{name: getattr(document, name) for name in NetworkFile.__struct_fields__})


def save_network(file: NetworkFile, path: str | Path) -> None:
    """Write ``file`` as ``hocket.network/1``, whole or not at all."""
    write_json(network_document(file), path)


def network_document(file: NetworkFile) -> dict[str, Any]:
    """The ``hocket.network/1`` document of ``file`` as plain data, without what was not measured."""
    fields: dict[str, Any] = msgspec.to_builtins(file)
    return {"format": NETWORK_FORMAT, **{key: value for key, value in fields.items() if value is not None}}
