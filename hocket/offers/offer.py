"""An offer: one kind of node that may be rented, its cards, its links and its price."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hocket.datasheets import device_name
from hocket.errors import HocketError
from hocket.network.ranges import MOST_STARTUP_S, check_bandwidth, check_cost
from hocket.notebook import ObjectSummary, Summarized
from hocket.text import counted, scaled_text

MOST_NODES, MOST_GPUS, MOST_NICS, LEAST_PRICE, MOST_PRICE = 4096, 64, 64, 1e-6, 1e9
_LONGEST = {"name": 60, "device": 100, "currency": 10}


@dataclass(frozen=True, repr=False, kw_only=True)
class Offer(Summarized):
    """A kind of node that may be rented, as many as ``most_nodes`` of it.

    Parameters
    ----------
    name
        The name that answers call it by, of at most 60 characters.
    device
        Its cards, as datasheets or steps name them, in any case: "h100", "NVIDIA A100-SXM4-80GB".
    gpus
        Cards in a node, from 1 to 64.
    price_per_hour
        The price of a node an hour, from 1e-6 to 1e9, in any one currency.
    most_nodes
        The most nodes that may be had, from 1 to 4096.
    currency
        The currency's name, for answers, of at most 10 characters; "": none is told.
    nics
        Network interfaces of a node, from 1 to 64.
    bandwidth_bps
        Bits a second of each interface, each way; None where nodes have no network between them, so that one
        node is all there is.
    intra_bps
        Bits a second of each card to the others of its node, each way; None: by its datasheet.
    latency_s
        Seconds that a message between nodes takes beside its bytes; None: as is assumed for all offers.

    Raises
    ------
    HocketError
        When a value is out of its range, or several nodes have no network.

    Examples
    --------
    >>> import hocket
    >>> offer = hocket.Offer(name="a", device="h100", gpus=8, price_per_hour=24, most_nodes=1)
    >>> offer.gpus
    8
    """

    name: str
    device: str
    gpus: int
    price_per_hour: float
    most_nodes: int
    currency: str = ""
    nics: int = 1
    bandwidth_bps: float | None = None
    intra_bps: float | None = None
    latency_s: float | None = None

    def __post_init__(self) -> None:
        for what in _LONGEST:
            _check_text(what, getattr(self, what))
        counts = (("gpus", MOST_GPUS), ("most_nodes", MOST_NODES), ("nics", MOST_NICS))
        for what, most in counts:
            count = getattr(self, what)
            if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= most:
                raise HocketError(f"{what} {count!r} is not a whole number from 1 to {most}; give e.g. 1")
        price = self.price_per_hour
        if (
            isinstance(price, bool)
            or not isinstance(price, int | float)
            or not LEAST_PRICE <= price <= MOST_PRICE
        ):
            rule = "is not a price from 1e-6 to 1e9; give that of one node, e.g. 24"
            raise HocketError(f"price_per_hour {price!r} {rule}")
        for bandwidth_bps in (self.bandwidth_bps, self.intra_bps):
            if bandwidth_bps is not None:
                check_bandwidth(bandwidth_bps)
        if self.latency_s is not None:
            check_cost(self.latency_s, "latency", "s", MOST_STARTUP_S, "10e-6")
        if self.bandwidth_bps is None and self.most_nodes > 1:
            raise HocketError(
                f"bandwidth: missing, and {self.most_nodes} nodes need one between them; give that of each"
                " NIC, e.g. 100Gbit/s, or most_nodes 1"
            )

    @property
    def card(self) -> str:
        """The datasheet's name of its cards, or ``device`` in lower case where no datasheet has it."""
        return device_name(self.device)

    @property
    def price_per_gpu_hour(self) -> float:
        """The price of a card an hour."""
        return self.price_per_hour / self.gpus

    def machines(self, nodes: int) -> str:
        """So many nodes in words: ``64 h100 in 8 nodes``."""
        return f"{nodes * self.gpus} {self.card} in {counted(nodes, 'node')}"

    def _summary(self) -> ObjectSummary:
        between = "none" if self.bandwidth_bps is None else scaled_text(self.bandwidth_bps, "bit/s")
        inside = "by the datasheet" if self.intra_bps is None else scaled_text(self.intra_bps / 8, "B/s")
        price = f"{self.price_per_hour:g} {self.currency}".rstrip()
        lines = [
            ("node", f"{self.gpus} {self.card}, {price} an hour, at most {counted(self.most_nodes, 'node')}"),
            ("between", f"{counted(self.nics, 'NIC')}, each {between}"),
            ("inside", f"{inside}, each card"),
        ]
        return ObjectSummary(f"Offer '{self.name}'", lines)


def _check_text(what: str, text: str) -> None:
    """Refuse a text that answers could not show in a line of a terminal."""
    if not isinstance(text, str) or not (text.strip() or what == "currency"):
        raise HocketError(f"{what} {text!r} says nothing; give the offer's {what}")
    if not text.isprintable():
        raise HocketError(f"{what} {text!r} has characters that cannot be printed; leave them out")
    longest = _LONGEST[what]
    if len(text) > longest:
        rule = f"has {len(text)} characters, and may have {longest}; shorten it"
        raise HocketError(f"{what} '{text[:longest]}...' {rule}")


def check_offers(offers: list[Offer] | tuple[Offer, ...]) -> None:
    """Refuse offers that cannot be told apart, or whose prices cannot be compared.

    Raises
    ------
    HocketError
        Naming them.
    """
    if not offers:
        raise HocketError("no offer to compare; give at least one")
    names: set[str] = set()
    for offer in offers:
        if offer.name in names:
            raise HocketError(f"two offers are called '{offer.name}'; give each a name of its own")
        names.add(offer.name)
    currencies = {offer.currency.casefold(): offer.currency for offer in offers}
    if len(currencies) > 1:
        told = " and ".join(map(repr, sorted(currencies.values())[:3]))
        fix = (
            "fill currency in in every row or in none"
            if "" in currencies
            else "convert them into one currency"
        )
        raise HocketError(f"prices are in {told}: they cannot be compared; {fix}")


def is_count(value: float) -> bool:
    """True if ``value`` is a whole number, written in whatever way."""
    return math.isfinite(value) and value == int(value)
