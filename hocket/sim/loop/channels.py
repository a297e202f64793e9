"""Channels of the event loop: who moves bytes, and how fast while links are shared max-min fairly.

Channel w M + s carries the pulls of worker w from server s, channel W M + w M + s its pushes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hocket.kernel import kernel
from hocket.network.max_min import fill
from hocket.sim.loop.lanes import set_time

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

IDLE, STARTING, MOVING = 0, 1, 2


class Channels(NamedTuple):
    """The state of the 2 W M channels, and how many of them move bytes where."""

    stage: Ints  # (2 W M,)
    left_bits: Floats  # as of since_s
    rate_bps: Floats
    since_s: Floats
    at_server: Ints  # (2, M) channels that move bytes, downwards and upwards
    at_worker: Ints  # (2, W)
    server_changed: Flags
    worker_changed: Flags
    way_changed: Flags  # (2,)


class Room(NamedTuple):
    """Arrays for ``fill_links`` to work in, and whether any link carries both pulls and pushes."""

    flows: Ints
    share_bps: Floats
    left_bps: Floats
    load: Ints
    coupled: bool


@kernel
def new_channels(num_workers, num_servers):
    """All channels idle."""
    num_channels = 2 * num_workers * num_servers
    return Channels(
        np.zeros(num_channels, np.int64),
        np.zeros(num_channels),
        np.zeros(num_channels),
        np.zeros(num_channels),
        np.zeros((2, num_servers), np.int64),
        np.zeros((2, num_workers), np.int64),
        np.zeros((2, num_servers), np.bool_),
        np.zeros((2, num_workers), np.bool_),
        np.zeros(2, np.bool_),
    )


@kernel
def new_room(route, num_links):
    """Room for channels that move over ``route`` (2 W M, hops)."""
    carries = np.zeros((2, num_links), np.bool_)
    for channel in range(len(route)):
        for link in route[channel]:
            if link >= 0:
                carries[2 * channel // len(route), link] = True
    return Room(
        np.empty(len(route), np.int64),
        np.empty(len(route)),
        np.empty(num_links),
        np.empty(num_links, np.int64),
        (carries[0] & carries[1]).any(),
    )


@kernel
def alike_links(server_bps, worker_bps):
    """Route and capacities where all interfaces of a side are alike and ``share_alike`` can be called."""
    return np.zeros((0, 1), np.int64), np.array([server_bps, worker_bps], np.float64)


@kernel
def join(change, channel, alike, channels):
    """Count a channel in (+1) or out (-1) at both of its ends, and note that shares there have changed.

    alike: for how many workers the channel's stands.
    """
    num_servers, num_workers = channels.at_server.shape[1], channels.at_worker.shape[1]
    up, pair = channel // (num_workers * num_servers), channel % (num_workers * num_servers)
    w, s = pair // num_servers, pair % num_servers
    channels.at_server[up, s] += change * alike
    channels.at_worker[up, w] += change
    channels.way_changed[up] = channels.server_changed[up, s] = channels.worker_changed[up, w] = True


@kernel
def share_alike(tree, channels, first_channel, server_bps, worker_bps, now):
    """Give channels whose neighbours came or went their max-min share: one server, or one simulated worker.

    That is the lesser of equal parts of the interfaces at both ends, if all interfaces of a side are alike.
    With one server a channel is its worker's only one, so what a worker's interface allows is the same for
    all of them. With one worker that stands for several in lockstep, each of them has the same channels, so
    all channels get the same. Either way nobody leaves anything that another could have.
    """
    num_servers, num_workers = channels.at_server.shape[1], channels.at_worker.shape[1]
    num_pairs = num_workers * num_servers
    for up in range(2):
        if not channels.way_changed[up]:
            continue
        for s in range(num_servers):
            if channels.at_server[up, s] == 0:
                continue
            of_server_bps = server_bps / channels.at_server[up, s]
            for w in range(num_workers):
                channel = up * num_pairs + w * num_servers + s
                if channels.stage[channel] != MOVING or not (
                    channels.server_changed[up, s] or channels.worker_changed[up, w]
                ):
                    continue
                share = min(of_server_bps, worker_bps / channels.at_worker[up, w])
                if share != channels.rate_bps[channel]:
                    _retime(tree, channels, first_channel, channel, share, now)
        channels.way_changed[up] = False
        channels.server_changed[up] = False
        channels.worker_changed[up] = False


@kernel
def fill_links(tree, channels, first_channel, route, capacity_bps, room, now):
    """Give moving channels their max-min share of all the links of ``route`` (2 W M, hops).

    Where no link carries both, a direction in which nothing came or went keeps its shares.
    """
    num_pairs = len(route) // 2
    count = 0
    for channel in range(len(route)):
        if channels.stage[channel] == MOVING and (room.coupled or channels.way_changed[channel // num_pairs]):
            room.flows[count] = channel
            count += 1
    fill(route, capacity_bps, room.flows[:count], room.share_bps, room.left_bps, room.load)
    for channel in room.flows[:count]:
        if room.share_bps[channel] != channels.rate_bps[channel]:
            _retime(tree, channels, first_channel, channel, room.share_bps[channel], now)
    channels.way_changed[:] = False


@kernel
def _retime(tree, channels, first_channel, channel, share_bps, now):
    """Count what a channel has moved, and set when it ends with ``share_bps``."""
    moved = channels.rate_bps[channel] * (now - channels.since_s[channel])
    channels.left_bits[channel] = max(0.0, channels.left_bits[channel] - moved)
    channels.rate_bps[channel] = share_bps
    channels.since_s[channel] = now
    set_time(tree, first_channel + channel, now + channels.left_bits[channel] / share_bps)
