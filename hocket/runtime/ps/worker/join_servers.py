"""A worker's joining of its servers: with its own values or for theirs, behind the steps that count."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from hocket.errors import HocketError
from hocket.runtime.ps.wire import training_messages
from hocket.runtime.ps.wire.packing import PackedValues
from hocket.runtime.ps.worker.server_connection import ServerConnection

if TYPE_CHECKING:
    from hocket.runtime.ps.worker.client import Client


def join(client: Client, values: Callable[[], PackedValues]) -> tuple[dict[str, torch.Tensor], int]:
    """Add a pair for each server to ``client.pairs``; ``values()``: what goes to servers that have none.

    Returns
    -------
    Everybody's values at the start, by name, and how many steps of this worker count in them.

    Raises
    ------
    TransportError, HocketError
        When a server cannot be reached or refuses this worker, or they do not belong together.
    """
    addresses = [client.job.address]
    for k in range(client.job.servers):
        tensors = [client.spec.parameters[i] for i in client.homes.of[k]]
        pair = ServerConnection(client, k, addresses[k], tensors)
        client.pairs.append(pair)
        pair.begin(client.spec)
        client.until(functools.partial(_has, pair, "started"), f"server {k} did not answer")
        assert pair.started is not None
        if k == 0:
            addresses = pair.started.servers
    first_step = _first_step(client)
    given: PackedValues | None = None
    initial: dict[str, torch.Tensor] = {}
    for pair in client.pairs:
        pair.say(training_messages.GoOn(first_step))
    for pair in client.pairs:
        assert pair.started is not None
        if pair.started.wants_values:
            given = values() if given is None else given
            mine = _part(client, given, pair)
            pair.send_values(mine)
            initial |= mine[0]
        else:
            client.until(functools.partial(_has, pair, "values"), f"server {pair.index} sent no values")
            assert pair.values is not None
            initial |= pair.values
            pair.values = None
    return initial, first_step


def _first_step(client: Client) -> int:
    """The number of this worker's steps that every server has."""
    started = [pair.started for pair in client.pairs if pair.started is not None]
    for pair, each in zip(client.pairs, started, strict=True):
        if each.wants_values and any(other.steps for other in started):
            raise HocketError(
                f"worker {client.worker} cannot join: server {pair.index} has nothing in its checkpoint,"
                " others have steps; give it back its files, or all of them an empty folder"
            )
    return min(each.steps for each in started)


def _part(client: Client, values: PackedValues, pair: ServerConnection) -> PackedValues:
    """The part of ``values`` that lives on the server of ``pair``."""
    names = {tensor.name for tensor in pair.tensors}
    state = {tensor.name for tensor in client.spec.state} if pair.index == 0 else set()

    def here(key: str) -> bool:
        return key in names or key in state or key.rpartition("/")[0] in names

    tensors, others = values
    return {k: v for k, v in tensors.items() if here(k)}, {k: v for k, v in others.items() if here(k)}


def _has(pair: ServerConnection, what: str) -> bool:
    return getattr(pair, what) is not None
