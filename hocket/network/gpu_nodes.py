"""Machines with several GPUs: what connects those inside of one, and how many interfaces lead out of it."""

from __future__ import annotations

from dataclasses import dataclass

from hocket.errors import HocketError
from hocket.network.ranges import MOST_STARTUP_S, check_bandwidth, check_cost
from hocket.notebook import ObjectSummary, Summarized
from hocket.text import counted, duration_text, scaled_text

MOST_GPUS, MOST_NICS, MOST_IN_A_RACK = 1024, 64, 1_000_000
MOST_OVERSUBSCRIPTION = 1e6


@dataclass(frozen=True, repr=False, kw_only=True)
class Nodes(Summarized):
    """Equal machines of several GPUs each: a network of two levels, and racks above it.

    Workers are GPUs. They fill one node after the other, and the last node may be filled in part: then only
    the NICs near its GPUs carry anything, as many of all as GPUs are there, rounded up.

    Parameters
    ----------
    gpus
        The number of GPUs in each node, from 1 to 1024.
    intra_bps
        Bits per second that one GPU sends to others of its node, in one direction, as the datasheet has it:
        half of what NVLink's total of both directions is (an H100's 900 GB/s are 450 GB/s or 3.6e12), or
        what its PCIe slot carries. Four fifths of it are reached. None: only where a node has one GPU.
    nics
        The number of network interfaces that lead out of each node, from 1 to 64, of the network's
        ``bandwidth_bps`` each. Rings use all of them, a part of each ring's bytes over each.
    intra_startup_s
        Seconds from one GPU to the next inside of a node, 0 or from 1e-18 to 3600, beside what a protocol
        waits for; NCCL reckons with 0.6e-6 over NVLink and 1e-6 over PCIe.
    in_switch
        Switches inside of a node sum up (NVLink SHARP, of the H100 and later).
    per_rack
        The number of nodes in a rack, from 1 to 1000000; None: all are in one rack.
    oversubscription
        The sum of a full rack's NICs' bandwidths, divided by that of the rack's uplink, from 1 to 1e6; only
        where there are racks.

    Raises
    ------
    HocketError
        When a value is out of its range, a node of several GPUs has nothing inside, or one rack is
        oversubscribed.

    Examples
    --------
    >>> import hocket
    >>> nodes = hocket.Nodes(gpus=8, intra_bps=3.6e12, nics=8)
    >>> network = hocket.Network(bandwidth_bps=400e9, startup_s=5e-6, num_workers=64, nodes=nodes)
    >>> network.nodes.count(network.num_workers)
    8
    """

    gpus: int
    intra_bps: float | None = None
    nics: int = 1
    intra_startup_s: float = 0.6e-6
    in_switch: bool = False
    per_rack: int | None = None
    oversubscription: float = 1.0

    def __post_init__(self) -> None:
        _check_count(self.gpus, "GPUs a node", MOST_GPUS)
        _check_count(self.nics, "NICs a node", MOST_NICS)
        if self.intra_bps is not None:
            try:
                check_bandwidth(self.intra_bps)
            except HocketError as error:
                raise HocketError(f"inside of a node: {error}") from None
        elif self.gpus > 1:
            raise HocketError(
                f"{self.gpus} GPUs a node and nothing between them; give what one GPU sends to the others,"
                " e.g. 450GB/s for an H100's NVLink or 32GB/s for PCIe 4.0"
            )
        check_cost(self.intra_startup_s, "startup inside of a node", "s", MOST_STARTUP_S, "0.6e-6")
        if self.in_switch and self.gpus == 1:
            raise HocketError("switches that sum up inside of nodes of one GPU; leave them out")
        if self.per_rack is not None:
            _check_count(self.per_rack, "nodes a rack", MOST_IN_A_RACK)
        _check_oversubscription(self.oversubscription, self.per_rack)

    def count(self, num_workers: int) -> int:
        """The number of nodes that so many workers fill."""
        return -(-num_workers // self.gpus)

    def in_last(self, num_workers: int) -> int:
        """The number of GPUs that work in the last node."""
        return num_workers - self.gpus * (self.count(num_workers) - 1)

    def fills_several(self, num_workers: int) -> bool:
        """Tell whether so many workers fill more than one node of several GPUs, and none of them in part."""
        return 1 < self.gpus < num_workers and num_workers % self.gpus == 0

    def racks(self, num_workers: int) -> int:
        """The number of racks that so many workers' nodes fill."""
        return 1 if self.per_rack is None else -(-self.count(num_workers) // self.per_rack)

    def out_bps(self, nic_bps: float, num_workers: int) -> float:
        """Bits per second out of the node that has the least of them, and through its rack's uplink."""
        nics = -(-self.nics * self.in_last(num_workers) // self.gpus)
        if self.per_rack is None or self.racks(num_workers) == 1:
            return nics * nic_bps
        return nic_bps * min(nics, self.per_rack * self.nics / self.oversubscription)

    @property
    def text(self) -> str:
        """The nodes in a few words: ``nodes of 8 GPUs (450 GB/s inside) and 8 NICs``."""
        inside = "" if self.intra_bps is None else f" ({scaled_text(self.intra_bps / 8, 'B/s')} inside)"
        summing = ", switches sum up" if self.in_switch else ""
        said = f"nodes of {counted(self.gpus, 'GPU')}{inside} and {counted(self.nics, 'NIC')}{summing}"
        if self.per_rack is None:
            return said
        above = f", uplinks {self.oversubscription:g}x oversubscribed" if self.oversubscription > 1 else ""
        return f"{said}, {self.per_rack} a rack{above}"

    def _summary(self) -> ObjectSummary:
        inside = "nothing: one GPU"
        if self.intra_bps is not None:
            inside = f"{scaled_text(self.intra_bps / 8, 'B/s')} a GPU, one way"
            inside += f"; startup {duration_text(self.intra_startup_s)}"
        above = "one rack" if self.per_rack is None else f"{self.per_rack} nodes a rack"
        if self.oversubscription > 1:
            above += f", oversubscription {self.oversubscription:g}"
        lines = [("inside", inside), ("outwards", counted(self.nics, "NIC")), ("above", above)]
        return ObjectSummary(f"Nodes of {counted(self.gpus, 'GPU')}", lines)


def _check_count(value: int, what: str, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise HocketError(f"{value!r} {what}: give a whole number")
    if not 1 <= value <= most:
        raise HocketError(f"{value} {what} are not from 1 to {most}; give e.g. 8")


def _check_oversubscription(value: float, per_rack: int | None) -> None:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 1.0 <= value <= MOST_OVERSUBSCRIPTION
    ):
        raise HocketError(f"oversubscription {value!r} is not between 1 (none) and 1e6; give e.g. 4")
    if value != 1.0 and per_rack is None:
        raise HocketError(
            f"oversubscription {value:g} of one rack, whose uplink nothing crosses; give the machines a rack"
            " too, or leave it out"
        )
