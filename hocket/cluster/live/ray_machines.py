"""Machines of a Ray cluster: their names, their GPUs, and which of them is which node."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from hocket.cluster.gpu_type import type_of_name
from hocket.cluster.live.devices import boot_of_machine, this_machine, visible_devices
from hocket.cluster.live.nodes import text_of
from hocket.document import convert_document, read_document, write_json
from hocket.errors import HocketError
from hocket.process_stats import first_environment

_TYPES = "ray-types.json"
_POLL_S = 0.5


class ActorMachine(msgspec.Struct, frozen=True):
    """An actor's account of its machine: interpreter, a file of ours as it sees it, boot, name, GPUs."""

    python: str
    file_digest: str
    boot: str
    name: str
    devices: tuple[str, ...] | None


def devices_of(seen: tuple[str, ...] | None, of_ray: float | None) -> tuple[str, ...] | None:
    """The GPUs of a machine of Ray's: of those that are seen as many as Ray has, which may be fewer.

    ``of_ray``: None where it has none, or knows nothing of them; where none is seen, numbers stand for Ray's.
    """
    if of_ray is None:
        return seen
    return tuple(map(str, range(int(of_ray)))) if seen is None else seen[: int(of_ray)]


def type_in_ray(node: Any) -> str:
    """The type of GPUs that a machine has in Ray, as the resource accelerator_type:A100; "" without."""
    names = (name.partition(":") for name in node.get("Resources", {}))
    return next((type_of_name(kind) for what, _, kind in names if what == "accelerator_type"), "")


def kept_types(folder: Path) -> dict[str, str]:
    """The type of each node's GPUs when the cluster in ``folder`` was seen last."""
    path = folder / _TYPES
    return convert_document(read_document(path), dict[str, str], str(path)) if path.exists() else {}


def keep_types(folder: Path, types: dict[str, str]) -> None:
    """Keep the type of each node's GPUs in ``folder``."""
    write_json(types, folder / _TYPES)


def machine_seeing(path: str) -> ActorMachine:
    """This machine, as it sees the file at ``path``."""
    seen = hashlib.sha256(text_of(path).encode()).hexdigest()
    return ActorMachine(
        sys.executable, seen, boot_of_machine(), this_machine(), visible_devices(_began_with())
    )


def _began_with() -> dict[str, str]:
    """The environment that this process began with: Ray may hide GPUs from actors that ask for none."""
    try:
        return first_environment("self")
    except OSError:
        return dict(os.environ)


def alive(ray: Any) -> list[Any]:
    """The nodes that Ray has now, by address."""
    return sorted((n for n in ray.nodes() if n["Alive"]), key=lambda n: str(n["NodeManagerAddress"]))


def wait_for_machines(ray: Any, count: int, within_s: float) -> None:
    """Wait until Ray has ``count`` machines.

    Raises
    ------
    HocketError
        When it has fewer after ``within_s``.
    """
    deadline_s = time.monotonic() + within_s
    while (there := len(alive(ray))) < count:
        if time.monotonic() > deadline_s:
            raise HocketError(
                f"{there} of {count} Ray nodes are there after {within_s:g} s; start the others, give"
                f" --nodes-within more time, or give --servers {there}"
            )
        time.sleep(_POLL_S)


def names_of(node: Any) -> tuple[str, ...]:
    """The names that a machine of Ray's can be called by: its host's name, its address, Ray's own id."""
    return str(node["NodeManagerHostname"]), str(node["NodeManagerAddress"]), str(node["NodeID"])


def machines_of(ray_machines: Sequence[Any], folder: Path, count: int | None) -> dict[str, str]:
    """The machine of each node by the node's name, as it was when the cluster in ``folder`` was begun.

    A new cluster has ``count`` nodes, or one of each of ``ray_machines``; where there is one machine it is
    all of them. A machine goes by its host's name, or where several have that by its address, or where they
    have that in common, too, by the id that Ray gave it.

    Raises
    ------
    HocketError
        When there are fewer machines, or the cluster has another number of nodes.
    """
    path = folder / "ray-nodes.json"
    if path.exists():
        known = convert_document(read_document(path), dict[str, str], str(path))
        if count is not None and count != len(known):
            raise HocketError(
                f"{count} servers, and the cluster in {folder} has {len(known)}; give --servers {len(known)}"
            )
        return known
    num = Counter(name for node in ray_machines for name in set(names_of(node)))
    machines = [next(name for name in names_of(node) if num[name] == 1) for node in ray_machines]
    wanted = len(machines) if count is None else count
    if len(machines) == 1:
        machines *= wanted
    if wanted > len(machines):
        raise HocketError(
            f"{wanted} servers, and the Ray cluster has {len(machines)} nodes; give --servers {len(machines)}"
        )
    known = {f"node{place}": machine for place, machine in enumerate(machines[:wanted])}
    write_json(known, path)
    return known
