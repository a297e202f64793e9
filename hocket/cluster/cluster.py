"""The cluster that jobs share: servers, their GPUs, and what a transfer costs between them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from hocket.cluster.gpu_type import GpuType, WholeType, check_types
from hocket.errors import HocketError, UnknownNameError
from hocket.text import counted

Sharing = Literal["equation5", "max-min"]

# Measured by the contention paper: AllReduces of two nodes on 10 Gbit/s Ethernet (section III-A2, Fig. 2).
STARTUP_S = 6.69e-4
PER_BYTE_S = 8.53e-10
# eta over b: the paper does not print eta, its authors' code has 0.235 and 0.856 ms/MB.
CONTENTION_SHARE = 0.235 / 0.856
_MOST = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Equal servers of equal GPUs, or of GPUs of several types.

    Attributes
    ----------
    num_servers, gpus_per_server : how many.
    gpu_memory_bytes : of each GPU; jobs share a GPU as far as it goes.
    gpu_types : in the order of GPUs so many of each type, all of them together; a type may come again.
        Empty: one type that nobody names, on which every job computes at speed 1.
    startup_s : a, seconds before the first byte of each transfer.
    per_byte_s : b, seconds a byte takes when its servers do nothing else.
    contention_per_byte_s : eta, what each further transfer adds to that (Eq. 5); None: in proportion to b.
    sharing : "equation5": with k transfers on the busiest of its servers a transfer takes k b + (k-1) eta a
        byte; "max-min": each server's link carries 1/b bytes a second, shared max-min fairly.
    racks, oversubscription : with "max-min", servers stand in that many racks, in order; a transfer between
        racks also crosses an uplink of each, which carries what its rack's links do, over oversubscription.
    """

    num_servers: int
    gpus_per_server: int
    gpu_memory_bytes: float = 16e9
    gpu_types: tuple[GpuType, ...] = ()
    startup_s: float = STARTUP_S
    per_byte_s: float = PER_BYTE_S
    contention_per_byte_s: float | None = None
    sharing: Sharing = "equation5"
    racks: int = 1
    oversubscription: float = 1.0

    def __post_init__(self) -> None:
        for count, what in ((self.num_servers, "servers"), (self.gpus_per_server, "GPUs per server")):
            if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= _MOST:
                raise HocketError(f"{count!r} {what}: give a whole number from 1 to {_MOST}")
        if self.num_servers * self.gpus_per_server > _MOST:
            raise HocketError(
                f"{self.num_servers} x {self.gpus_per_server} GPUs: a cluster has at most {_MOST}; give fewer"
            )
        _check_range(self.gpu_memory_bytes, 1.0, 2.0**53, "bytes of GPU memory", "16e9")
        _check_range(self.startup_s, 0.0, 1e9, "s of startup", "6.69e-4")
        _check_range(self.per_byte_s, 1e-18, 1e9, "s per byte", "8.53e-10")
        if self.contention_per_byte_s is not None:
            _check_range(self.contention_per_byte_s, 0.0, 1e9, "s per byte of contention", "2.34e-10")
        check_types(self.gpu_types, self.num_gpus)
        for each in self.gpu_types:
            if each.memory_bytes is not None:
                _check_range(each.memory_bytes, 1.0, 2.0**53, f"bytes of memory of each {each.name}", "16e9")
        if self.sharing not in get_args(Sharing):
            raise UnknownNameError("sharing", str(self.sharing), list(get_args(Sharing)))
        racks = self.racks
        if isinstance(racks, bool) or not isinstance(racks, int) or not 1 <= racks <= self.num_servers:
            raise HocketError(
                f"{racks!r} racks for {counted(self.num_servers, 'server')}: a rack holds at least one; "
                "give fewer racks or more servers"
            )
        _check_range(self.oversubscription, 1.0, 1e6, "of oversubscription", "4 (1 is none)")
        if self.sharing == "equation5" and (racks > 1 or self.oversubscription != 1.0):
            raise HocketError(
                f"{racks} racks, oversubscription {self.oversubscription}: Eq. 5 knows servers alone; "
                "racks need sharing 'max-min'"
            )

    @property
    def num_gpus(self) -> int:
        """All GPUs; GPU g is number g % gpus_per_server of server g // gpus_per_server."""
        return self.num_servers * self.gpus_per_server

    @cached_property
    def types(self) -> tuple[WholeType, ...]:
        """The different types, each with all GPUs of it, in the order in which they come first."""
        runs = self.gpu_types or (GpuType(name="", num_gpus=self.num_gpus),)
        found: dict[str, WholeType] = {}
        for run in runs:
            memory = self.gpu_memory_bytes if run.memory_bytes is None else run.memory_bytes
            before = found[run.name].num_gpus if run.name in found else 0
            found[run.name] = WholeType(run.name, before + run.num_gpus, memory)
        return tuple(found.values())

    def type_names(self) -> list[str]:
        """The name of each GPU's type, "" where nobody names it."""
        return [self.types[kind].name for kind in self.type_of_gpu().tolist()]

    def type_of_gpu(self) -> npt.NDArray[np.int64]:
        """The number of each GPU's type among :attr:`types`, (GPUs,)."""
        if not self.gpu_types:
            return np.zeros(self.num_gpus, np.int64)
        number = {each.name: kind for kind, each in enumerate(self.types)}
        kinds = np.array([number[run.name] for run in self.gpu_types], np.int64)
        return np.repeat(kinds, [run.num_gpus for run in self.gpu_types])

    @property
    def eta_s(self) -> float:
        """Seconds a byte of a transfer costs for each other transfer on its busiest server."""
        if self.sharing == "max-min":
            return 0.0
        if self.contention_per_byte_s is None:
            return self.per_byte_s * CONTENTION_SHARE
        return self.contention_per_byte_s

    @property
    def num_links(self) -> int:
        """Each server's link, then each rack's uplink where there are several racks."""
        return self.num_servers + (self.racks if self.racks > 1 else 0)

    def rack_of(self) -> npt.NDArray[np.int64]:
        """The rack of each server, (servers,): in order, split evenly."""
        return np.arange(self.num_servers) * self.racks // self.num_servers

    def link_capacity(self) -> npt.NDArray[np.float64]:
        """The capacity of each link, in links of a server, (links,)."""
        if self.racks == 1:
            return np.ones(self.num_servers)
        uplinks = np.bincount(self.rack_of(), minlength=self.racks) / self.oversubscription
        return np.concatenate([np.ones(self.num_servers), uplinks])


def _check_range(value: float, least: float, most: float, what: str, example: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise HocketError(f"{value!r} {what} is not between {least:g} and {most:g}; give e.g. {example}")
