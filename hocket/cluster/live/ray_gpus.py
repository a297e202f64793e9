"""GPUs of Ray's nodes: which nodes share them, and that Ray gives them to nobody else meanwhile."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from typing import Any

from hocket.cluster.live.devices import MASK, shared_out, slots_of
from hocket.cluster.live.nodes import AbsentError, Node
from hocket.cluster.live.ray_nodes import RayNode
from hocket.cluster.live.ray_reservation import release_gpus
from hocket.errors import HocketError
from hocket.text import listed


def tell_apart(nodes: Sequence[Node]) -> list[str]:
    """Let Ray's nodes on one machine be parts of it where each has GPUs of its own; a line for others there.

    Those share the GPUs that they see. There is no line for nodes on one Ray node: these were asked for.

    Raises
    ------
    HocketError
        Where two see some GPUs that both have, and others.
    """
    by_machine: dict[str, list[RayNode]] = {}
    for node in nodes:
        if isinstance(node, RayNode) and node.address:
            by_machine.setdefault(node.machine, []).append(node)
    lines = []
    for machine, there in by_machine.items():
        seen = {node.devices: node for node in there}
        for one, other in itertools.combinations(seen.values(), 2):
            if both := sorted(set(one.devices or ()) & set(other.devices or ())):
                raise HocketError(
                    f"{one.name} and {other.name} are Ray nodes on one machine and both have its GPU"
                    f" {', '.join(both)}; give each GPUs of its own ({MASK}=0,1 ray start ...), or end one"
                )
        for devices in seen:
            sharing = [node for node in there if node.devices == devices]
            if len(seen) > 1:
                for node in sharing:
                    node.be_part(",".join(devices or ()))
            if (num := len({node.ray_id for node in sharing})) > 1:
                names = listed([node.name for node in sharing])
                share = f"share its GPUs {', '.join(devices)}" if devices else "share it"
                host = machine.rpartition("/")[2]
                lines.append(f"{names} are {num} Ray nodes on one machine, {host}: they {share}")
    return lines


def hold_gpus(nodes: Sequence[Node], gpus_per_server: int) -> None:
    """Hold in Ray the GPUs that each node is to have, where Ray has GPUs; these are the nodes' from then on.

    A node that is absent has none held until the manager is started again.

    Raises
    ------
    HocketError
        When a machine has fewer, other programs hold them, or Ray gave one to two nodes.
    """
    shared_out(nodes, gpus_per_server)  # it has as many
    there = [node for node in nodes if isinstance(node, RayNode) and node.devices]
    for node in there:
        on_it = [each for each in there if each.machine == node.machine]
        with contextlib.suppress(AbsentError):
            node.hold(sum(slots_of(each, gpus_per_server) for each in on_it))
    owners: dict[tuple[str, str], str] = {}
    for each, given in zip(nodes, shared_out(nodes, gpus_per_server), strict=True):
        for gpu in given:
            if (owner := owners.setdefault((each.machine, gpu), each.name)) != each.name:
                raise HocketError(
                    f"{owner} and {each.name} are Ray nodes on one machine, and Ray gave both GPU {gpu}; give"
                    f" each GPUs of its own ({MASK}=0,1 ray start ...), or end one"
                )


def let_gpus_go(ray: Any, nodes: Sequence[Node]) -> None:
    """Give GPUs back to Ray on machines on which none of our ranks is left."""
    ours = [node for node in nodes if isinstance(node, RayNode) and node.held]
    busy = {node.machine for node in ours if node.has_ranks()}
    for node in ours:
        if node.machine not in busy:
            with contextlib.suppress(AbsentError):
                release_gpus(ray, node.ray_machine(), node.cluster)
