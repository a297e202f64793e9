"""``hocket.network/1``: what was measured of a network, or written down by hand, as a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from hocket.document import convert_document, read_document, write_json
from hocket.errors import FormatError, HocketError
from hocket.network.link import Network
from hocket.network.measured_reduction import MeasuredHalves, MeasuredLine, MeasuredReduction
from hocket.network.ranges import MOST_STARTUP_S
from hocket.network.units import LEAST_BPS, MOST_BPS, MOST_S_PER_BYTE
from hocket.network.unknown_keys import say_ignored
from hocket.notebook import ObjectSummary, Summarized

NETWORK_FORMAT = "hocket.network/1"

# The ranges are Network's and MeasuredReduction's; here they let a refusal name the field.
Seconds = Annotated[float, msgspec.Meta(ge=0, le=MOST_STARTUP_S)]
SecondsPerByte = Annotated[float, msgspec.Meta(ge=0, le=MOST_S_PER_BYTE)]
Bandwidth = Annotated[float, msgspec.Meta(ge=LEAST_BPS, le=MOST_BPS)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Positive = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Workers = Annotated[int, msgspec.Meta(ge=2)]


class MeasuredPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A measured time: ``concurrent`` transfers of ``size_bytes`` each, at once, took ``seconds``."""

    size_bytes: Count
    seconds: Positive
    concurrent: Count = 1


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """T = a + k b M + (k-1) eta M through ``points``, with the error relative to each point's time.

    ``note`` names coefficients that fit best below 0 and were held there.
    """

    a_s: Seconds
    b_s_per_byte: SecondsPerByte
    eta_s_per_byte: SecondsPerByte = 0.0
    rms_error: Share
    max_error: Share
    points: tuple[MeasuredPoint, ...]
    note: str = ""

    def seconds(self, size_bytes: float, concurrent: int = 1) -> float:
        """Seconds that each of ``concurrent`` transfers of ``size_bytes`` takes, by the fit."""
        shared = concurrent * self.b_s_per_byte + (concurrent - 1) * self.eta_s_per_byte
        return self.a_s + shared * size_bytes


class Fits(msgspec.Struct, frozen=True, kw_only=True):
    """The fits behind a measured network: a transfer, unpacking it, an AllReduce, several at once.

    ``gather``, ``scatter``, ``exchange``: as in :class:`Halves`; None: not measured.
    """

    transfer: Fit
    parse: Fit
    allreduce: Fit
    contention: Fit
    gather: Fit | None = None
    scatter: Fit | None = None
    exchange: Fit | None = None


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a collective of d bytes, of all shares together: a + b d."""

    a_s: Seconds
    b_s_per_byte: SecondsPerByte


class Halves(msgspec.Struct, frozen=True, kw_only=True):
    """The costs of an all-gather, of the library's reduce-scatter, and of an all-to-all."""

    gather: Line
    scatter: Line | None = None
    exchange: Line | None = None


class AllReduce(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of an AllReduce of d bytes between ``workers`` workers: a + b d; eta as in :class:`Fit`.

    ``halves``: of other collectives between them; None: not measured.
    """

    workers: Workers
    a_s: Seconds
    b_s_per_byte: SecondsPerByte
    eta_s_per_byte: SecondsPerByte = 0.0
    halves: Halves | None = None


class MeasurementHost(msgspec.Struct, frozen=True, kw_only=True):
    """A measurement: with what, between how many workers and where, and how often each size was timed."""

    torch: str
    backend: str
    workers: Workers
    where: str
    repeats: Count | None = None


class RecordedReductions(msgspec.Struct, frozen=True, kw_only=True):
    """Collectives that a profiler recorded of a job: kinds, traces, how many steps, and their line."""

    traces: tuple[str, ...]
    steps: Count
    group: str = ""
    kinds: tuple[str, ...] = ("all_reduce",)
    fit: Fit


class NetworkFile(Summarized, msgspec.Struct, frozen=True, kw_only=True):
    """The content of a network file; only the bandwidth has to be known.

    Attributes
    ----------
    bandwidth_bps, startup_s, parse_s_per_byte, parse_s
        As in :class:`hocket.Network`.
    allreduce
        The measured cost of an AllReduce; None: not measured.
    fits, host
        The measurements behind the figures, and where they were made; None: written by hand.
    recorded
        The recorded collectives that the figures were fitted to, where they come from a job's trace.

    Examples
    --------
    >>> import hocket
    >>> file = hocket.NetworkFile(bandwidth_bps=10e9, startup_s=50e-6)
    >>> file.network(num_workers=4).num_workers
    4
    """

    bandwidth_bps: Bandwidth
    startup_s: Seconds = 0.0
    parse_s_per_byte: SecondsPerByte = 0.0
    parse_s: Seconds = 0.0
    allreduce: AllReduce | None = None
    fits: Fits | None = None
    host: MeasurementHost | None = None
    recorded: RecordedReductions | None = None

    def network(self, num_workers: int = 1, num_servers: int = 1) -> Network:
        """The network of a job with these workers and servers; its AllReduce is the measured one, if any.

        Raises
        ------
        HocketError
            When a number or a figure is out of its range.
        """
        return Network(
            bandwidth_bps=self.bandwidth_bps,
            startup_s=self.startup_s,
            num_workers=num_workers,
            num_servers=num_servers,
            parse_s_per_byte=self.parse_s_per_byte,
            parse_s=self.parse_s,
            reduction=None if self.allreduce is None else _reduction(self.allreduce),
        )

    def _summary(self) -> ObjectSummary:
        lines = [line for line in self.network()._summary().lines if line[0] != "window"]
        if self.host is not None:
            host = self.host
            lines.append(("measured", f"{host.workers} workers on {host.where}, {host.backend}"))
        return ObjectSummary("NetworkFile; network(num_workers) is the network of a job", lines)


def _reduction(measured: AllReduce) -> MeasuredReduction:
    fields = msgspec.structs.asdict(measured)
    if measured.halves is not None:
        lines = msgspec.structs.asdict(measured.halves).items()
        known = {name: MeasuredLine(**msgspec.structs.asdict(line)) for name, line in lines if line}
        fields["halves"] = MeasuredHalves(**known)
    return MeasuredReduction(**fields)


class _Document(NetworkFile, frozen=True, kw_only=True):
    format: Literal["hocket.network/1"]


def load_network(path: str | Path, note: Callable[[str], None] | None = None) -> NetworkFile:
    """Read a ``hocket.network/1`` file, as ``hocket network measure`` writes it or as written by hand.

    Keys that the format has not are ignored.

    Parameters
    ----------
    path
        The file; compressed where its name ends in ``.zst`` or ``.gz``, "-" for standard input.
    note
        Called with a line that names ignored keys; None: a warning says so.

    Returns
    -------
    The file's content, a :class:`hocket.NetworkFile`; its ``network(num_workers=4)`` is the
    :class:`hocket.Network` of a job.

    Raises
    ------
    FormatError
        Naming the file, the field and the rule.

    Examples
    --------
    >>> import hocket
    >>> network = hocket.load_network("network.json").network(num_workers=4)
    >>> network.num_workers
    4
    """
    plain = read_document(path)
    document = convert_document(plain, _Document, str(path), NETWORK_FORMAT)
    say_ignored(plain, _Document, str(path), NETWORK_FORMAT, note)
    file = NetworkFile(**{name: getattr(document, name) for name in NetworkFile.__struct_fields__})
    try:
        file.network()
    except HocketError as error:
        raise FormatError(str(path), "", str(error)) from None
    return file


def save_network(file: NetworkFile, path: str | Path) -> None:
    """Write a network as ``hocket.network/1``, whole or not at all.

    Parameters
    ----------
    file
        The content of the file.
    path
        The file to write; compressed where its name ends in ``.zst`` or ``.gz``, "-" for standard output.

    Raises
    ------
    HocketError
        When the file cannot be written.

    Examples
    --------
    >>> import hocket
    >>> hocket.save_network(hocket.NetworkFile(bandwidth_bps=10e9), "mine.json")
    """
    write_json(network_document(file), path)


def network_document(file: NetworkFile) -> dict[str, Any]:
    """The ``hocket.network/1`` document of ``file`` as plain data, without what was not measured."""
    return {"format": NETWORK_FORMAT, **_known(msgspec.to_builtins(file))}


def _known(fields: dict[str, Any]) -> dict[str, Any]:
    """``fields`` without those that are None, at any depth."""
    return {
        key: _known(value) if isinstance(value, dict) else value
        for key, value in fields.items()
        if value is not None
    }
