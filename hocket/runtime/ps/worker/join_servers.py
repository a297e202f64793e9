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


def join_servers(client: Client, values: Callable[[], PackedValues]) -> tuple[dict[str, torch.Tensor], int]:
    """Connect ``client`` to each server; ``values()``: what goes to servers that have none.

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
        connection = ServerConnection(client, k, addresses[k], tensors)
        client.connections.append(connection)
        connection.request_join(client.spec)
        client.wait_or_fail(
            functools.partial(_has_attribute, connection, "join_answer"), f"server {k} did not answer"
        )
        assert connection.join_answer is not None
        if k == 0:
            addresses = connection.join_answer.servers
    first_step = _first_step(client)
    given: PackedValues | None = None
    initial: dict[str, torch.Tensor] = {}
    for connection in client.connections:
        connection.send_message(training_messages.ResumeAfter(first_step))
    for connection in client.connections:
        assert connection.join_answer is not None
        if connection.join_answer.wants_values:
            given = values() if given is None else given
            mine = _part(client, given, connection)
            connection.send_values(mine)
            initial |= mine[0]
        else:
            client.wait_or_fail(
                functools.partial(_has_attribute, connection, "values"),
                f"server {connection.index} sent no values",
            )
            assert connection.values is not None
            initial |= connection.values
            connection.values = None
    return initial, first_step


def _first_step(client: Client) -> int:
    """The number of this worker's steps that every server has."""
    started = [
        connection.join_answer for connection in client.connections if connection.join_answer is not None
    ]
    for connection, each in zip(client.connections, started, strict=True):
        if each.wants_values and any(other.steps for other in started):
            raise HocketError(
                f"worker {client.worker} cannot join: server {connection.index} has nothing in its"
                " checkpoint, others have steps; give it back its files, or all of them an empty folder"
            )
    return min(each.steps for each in started)


def _part(client: Client, values: PackedValues, connection: ServerConnection) -> PackedValues:
    """The part of ``values`` that lives on the server of ``connection``."""
    names = {tensor.name for tensor in connection.tensors}
    state = {tensor.name for tensor in client.spec.state} if connection.index == 0 else set()

    def here(key: str) -> bool:
        return key in names or key in state or key.rpartition("/")[0] in names

    tensors, others = values
    return {k: v for k, v in tensors.items() if here(k)}, {k: v for k, v in others.items() if here(k)}


def _has_attribute(connection: ServerConnection, what: str) -> bool:
    return getattr(connection, what) is not None
