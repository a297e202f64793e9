"""GPUs as processes name them: those that a machine leaves to us, shared out to the nodes on it."""

from __future__ import annotations

import contextlib
import itertools
import os
import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from hocket.cluster.gpu_type import TYPE_RULE, GpuType, is_type_name
from hocket.cluster.live.nvml import gpu_types, nvml_gpus
from hocket.errors import HocketError
from hocket.text import counted

MASK = "CUDA_VISIBLE_DEVICES"
BY_BUS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""The variable with which numbers of GPUs are those that nvidia-smi and NVML have."""

PART = "#"
"""The sign between a machine's name and a part of it that has GPUs of its own."""

_UNKNOWN = "unknown"
_DEVICE = re.compile(r"nvidia[0-9]+")
_NAMED = re.compile(r"[0-9]+|(GPU|MIG)-[0-9a-zA-Z/-]+", re.ASCII)


class GpuMachine(Protocol):
    """A node, as far as its GPUs go.

    ``machine``: equal for nodes that are on one machine; ``devices``: the GPUs that it leaves to us, None
    where none is seen; ``slots``: how many of them the node is to have, None: as many as every node.
    """

    @property
    def name(self) -> str:
        """The node's name."""

    @property
    def machine(self) -> str:
        """The machine that it is on."""

    @property
    def devices(self) -> tuple[str, ...] | None:
        """The GPUs there."""

    def type_of(self, device: str) -> str:
        """The type of one of them, "" where that is not known."""

    @property
    def slots(self) -> int | None:
        """The GPUs that it is to have."""


_FILES = Path("/dev")
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def boot_of_machine() -> str:
    """The id of this machine's boot, which its containers share."""
    try:
        return _BOOT.read_text().strip() or platform.node()
    except (OSError, UnicodeDecodeError):
        return platform.node()


def this_machine() -> str:
    """A name of this machine that no other one has; a container with a host name of its own is a machine."""
    return f"{boot_of_machine()}/{platform.node()}"


def visible_devices(environment: Mapping[str, str], folder: Path = _FILES) -> tuple[str, ...] | None:
    """The GPUs of this machine for a process of this environment, as its CUDA_VISIBLE_DEVICES names them.

    A mask that is empty leaves none. Without a mask all GPUs are ours; None where there is no GPU to see. As
    in CUDA, a mask ends at its first entry that names nothing, such as -1. ``folder``: where GPUs' files are.
    """
    present = len(nvml_gpus()) if folder == _FILES else 0
    if not present:
        with contextlib.suppress(OSError):
            present = sum(_DEVICE.fullmatch(each) is not None for each in os.listdir(folder))
    mask = environment.get(MASK)
    if mask is None:
        return tuple(map(str, range(present))) or None
    found: list[str] = []
    for entry in map(str.strip, mask.split(",")):
        absent = present and entry.isdecimal() and int(entry) >= present
        if not entry or entry.startswith("-") or absent:
            break
        if entry not in found:
            found.append(entry)
    return tuple(found)


def shared_out(nodes: Sequence[GpuMachine], gpus_per_server: int) -> list[tuple[str, ...]]:
    """The GPUs of each node, one a slot, none of them twice; empty where a mask leaves none.

    Nodes on one machine have its GPUs one after the other. Where none is seen, numbers stand for slots.

    Raises
    ------
    HocketError
        When a machine has fewer GPUs than its nodes are to have.
    """
    given: list[tuple[str, ...]] = []
    taken: dict[str, int] = {}
    for node in nodes:
        first = taken.get(node.machine, 0)
        end = taken[node.machine] = first + slots_of(node, gpus_per_server)
        if node.devices is None:
            given.append(tuple(map(str, range(first, end))))
        elif not node.devices:
            given.append(())
        elif end > len(node.devices):
            on_it = [each.name for each in nodes if each.machine == node.machine]
            wanted = sum(slots_of(each, gpus_per_server) for each in nodes if each.machine == node.machine)
            raise HocketError(
                f"{', '.join(on_it)}: {counted(wanted, 'GPU')} on one machine, which"
                f" has {len(node.devices)} ({', '.join(node.devices)}); give fewer --servers or"
                f" --gpus-per-server, or {MASK}= for slots without GPUs"
            )
        else:
            given.append(node.devices[first:end])
    return given


def slots_of(node: GpuMachine, gpus_per_server: int) -> int:
    """The number of GPUs that a node is to have."""
    return gpus_per_server if node.slots is None else node.slots


def split_evenly(nodes: Sequence[GpuMachine]) -> list[int]:
    """The number of GPUs of each node: its machine's, split evenly over its nodes; 1 where none is seen.

    Raises
    ------
    HocketError
        When a machine has fewer GPUs than nodes.
    """
    found = []
    for place, node in enumerate(nodes):
        on_it = [k for k, each in enumerate(nodes) if each.machine == node.machine]
        if not node.devices:
            found.append(1)
            continue
        each, more = divmod(len(node.devices), len(on_it))
        if each == 0:
            raise HocketError(
                f"{counted(len(node.devices), 'GPU')} ({', '.join(node.devices)}) for {len(on_it)} nodes on"
                f" one machine; give at most --servers {len(node.devices)}"
            )
        found.append(each + (on_it.index(place) < more))
    return found


def listed_devices(text: str) -> dict[str, str]:
    """The GPUs that ``--gpus 0,2:a100`` names, and the type of each, "" where it is not said.

    They are numbers as nvidia-smi has them, or UUIDs.
    """
    found: dict[str, str] = {}
    for part in text.split(","):
        name, said, kind = (each.strip() for each in part.partition(":"))
        if _NAMED.fullmatch(name) is None:
            raise HocketError(f"--gpus {text}: '{name}' is no GPU; give numbers or UUIDs such as 0,2,5")
        if name in found:
            raise HocketError(f"--gpus {text}: {name} is there twice; name each GPU once")
        if said and not is_type_name(kind.lower()):
            raise HocketError(f"--gpus {text}: '{kind}': {TYPE_RULE}")
        found[name] = kind.lower()
    return found


def known_types(environment: Mapping[str, str]) -> dict[str, str]:
    """The types of this machine's GPUs, by the names that a process of this environment has for them.

    Where they are of several, numbers in its CUDA_VISIBLE_DEVICES may be in another order than NVML's.
    """
    types = gpu_types()
    if len(set(types.values())) < 2 or MASK not in environment or BY_BUS.items() <= environment.items():
        return types
    return {name: kind for name, kind in types.items() if not name.isdecimal()}


def types_of_slots(nodes: Sequence[GpuMachine], gpus_per_server: int) -> tuple[GpuType, ...]:
    """The types of a cluster's GPUs, in order; empty where no node knows any."""
    found = []
    for node, given in zip(nodes, shared_out(nodes, gpus_per_server), strict=True):
        there = [node.type_of(device) or _UNKNOWN for device in given]
        there += [_UNKNOWN] * (slots_of(node, gpus_per_server) - len(there))
        # Nobody is placed where a node has no GPU: any type will do.
        found += [*there, *there[-1:] * (gpus_per_server - len(there))]
    if set(found) <= {_UNKNOWN}:
        return ()
    runs = ((name, len(list(run))) for name, run in itertools.groupby(found))
    return tuple(GpuType(name=name, num_gpus=count) for name, count in runs)


def lacking_bytes(
    nodes: Sequence[GpuMachine], gpus_per_server: int, memory_bytes: float, memory_of: Mapping[str, int]
) -> list[int | None]:
    """The bytes that each GPU of a cluster lacks of ``memory_bytes``; None where there is no such GPU.

    memory_of: bytes of this machine's GPUs, by their names; what is not known of others, they do not lack.
    """
    found: list[int | None] = []
    for node, given in zip(nodes, shared_out(nodes, gpus_per_server), strict=True):
        ours = node.machine.partition(PART)[0] == this_machine()
        known = memory_of if node.devices is not None and ours else {}
        names = [*given, *[""] * (slots_of(node, gpus_per_server) - len(given))]
        there = [max(0, int(memory_bytes) - known.get(name, int(memory_bytes))) for name in names]
        found += [*there, *[None] * (gpus_per_server - len(there))]
    return found
