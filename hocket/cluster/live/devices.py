"""GPUs as processes name them: those that a machine leaves to us, shared out to the nodes on it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from hocket.errors import HocketError
from hocket.text import counted

MASK = "CUDA_VISIBLE_DEVICES"
_DEVICE = re.compile(r"nvidia[0-9]+")


class GpuMachine(Protocol):
    """A node, as far as its GPUs go.

    ``machine``: equal for nodes that are on one machine; ``devices``: the GPUs that it leaves to us, None
    where none is seen.
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


def visible_devices(environment: Mapping[str, str], folder: Path = Path("/dev")) -> tuple[str, ...] | None:
    """The GPUs of this machine for a process of this environment, as its CUDA_VISIBLE_DEVICES names them.

    A mask that is empty leaves none. Without a mask all GPUs are ours; None where there is no GPU to see. As
    in CUDA, a mask ends at its first entry that names nothing, such as -1. ``folder``: where GPUs' files are.
    """
    try:
        present = sum(_DEVICE.fullmatch(each) is not None for each in os.listdir(folder))
    except OSError:
        present = 0
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
        end = taken[node.machine] = first + gpus_per_server
        if node.devices is None:
            given.append(tuple(map(str, range(first, end))))
        elif not node.devices:
            given.append(())
        elif end > len(node.devices):
            on_it = [each.name for each in nodes if each.machine == node.machine]
            raise HocketError(
                f"{', '.join(on_it)}: {counted(len(on_it) * gpus_per_server, 'GPU')} on one machine, which"
                f" has {len(node.devices)} ({', '.join(node.devices)}); give fewer --servers or"
                f" --gpus-per-server, or {MASK}= for slots without GPUs"
            )
        else:
            given.append(node.devices[first:end])
    return given
