"""The network of an offer's nodes, and what of it the offer does not say."""

from __future__ import annotations

from hocket.datasheets import DEVICES
from hocket.errors import HocketError
from hocket.network import USUAL_STARTUP_S, Network, Nodes
from hocket.offers.offer import Offer

_NVLINK_S, _SLOT_S = 0.6e-6, 1e-6
_SLOT_BPS = 8 * 64e9
"""A PCIe 5.0 slot's rate; what is faster is NVLink or its like."""


def network_of(offer: Offer) -> Network:
    """The network between an offer's cards, whose numbers are the offer's, the datasheet's or assumed.

    Raises
    ------
    HocketError
        Where nothing says what connects the cards of a node.
    """
    intra_bps = inside_bps(offer)
    if intra_bps is None and offer.gpus > 1:
        raise HocketError(
            f"offer '{offer.name}': nothing says what connects the {offer.gpus} {offer.card} of a node; give"
            " intra_bandwidth, what one sends to the others, e.g. 450GB/s or 32GB/s"
        )
    startup_s = USUAL_STARTUP_S if offer.latency_s is None else offer.latency_s
    linked = intra_bps is not None and intra_bps > _SLOT_BPS
    nodes = Nodes(
        gpus=offer.gpus,
        intra_bps=intra_bps,
        nics=offer.nics,
        intra_startup_s=_NVLINK_S if linked else _SLOT_S,
    )
    if offer.bandwidth_bps is None:
        return Network(startup_s=startup_s, nodes=nodes)
    return Network(bandwidth_bps=offer.bandwidth_bps, startup_s=startup_s, nodes=nodes)


def inside_bps(offer: Offer) -> float | None:
    """Bits a second that one card sends to others of its node; None where nothing says."""
    if offer.intra_bps is not None:
        return offer.intra_bps
    sheet = DEVICES.get(offer.card)
    return 8 * sheet.peer_bytes_per_s if sheet is not None and sheet.peer_bytes_per_s else None
